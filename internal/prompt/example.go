package prompt

// outputAdvice is said in both modes: what a program prints is all that a model pays for.
const outputAdvice = "Only what a program prints comes back to you. Before you print a result, think of its size: filter it, take its first items, or count it, and print that. "

// The worked example, for TypeScript and JavaScript, and for Python. It reads, filters and writes in one program, and shows
// what not to print. internal/e2e runs both.
const (
	exampleTS = `import { listDocuments, getDocument } from './servers/google-drive';
import { updateRecord } from './servers/salesforce';
const { documents } = await listDocuments({ query: 'quarterly report' });
// BAD: console.log(documents), for there may be thousands. GOOD: how many, and the first titles.
console.log(documents.length, documents.slice(0, 10).map(d => d.title));
const latest = documents.sort((a, b) => b.modifiedTime.localeCompare(a.modifiedTime))[0];
const { content } = await getDocument({ documentId: latest.id });
const findings = content.split('\n').filter(line => /key finding|highlight/i.test(line)).slice(0, 5);
await updateRecord({ recordId: 'OPP-001', fields: { Description: findings.join('\n') } });
console.log('OPP-001 has', findings.length, 'lines of', latest.title);
`
	examplePython = `from servers.google_drive import list_documents, get_document
from servers.salesforce import update_record
documents = list_documents(query="quarterly report")["documents"]
# BAD: print(documents), for there may be thousands. GOOD: how many, and the first titles.
print(len(documents), [d["title"] for d in documents[:10]])
latest = max(documents, key=lambda d: d["modifiedTime"])
content = get_document(documentId=latest["id"])["content"]
findings = [line for line in content.splitlines() if "key finding" in line.lower() or "highlight" in line.lower()][:5]
update_record(recordId="OPP-001", fields={"Description": "\n".join(findings)})
print("OPP-001 has", len(findings), "lines of", latest["title"])
`
)

// workedExample is the advice with the example in the language that execute_code takes by default.
func workedExample(language string) string {
	example := exampleTS
	if language == "python" {
		example = examplePython
	}
	return outputAdvice + "An example, with servers that you may not have:\n<example>\n" + example + "</example>\n"
}
