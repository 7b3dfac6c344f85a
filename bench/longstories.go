package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// minutesSize is the size of the document that is summarised, and decisions is how many of its lines are the summary.
const (
	minutesSize = 100 << 10
	decisions   = 8
)

// minutes are those of a long meeting, the same in every run.
func minutes() string {
	talk := strings.Split(strings.TrimSpace(transcript()+transcript()), "\n")
	each := len(talk) / decisions
	var b strings.Builder
	for i, line := range talk {
		if i%each == each/2 && i/each < decisions {
			fmt.Fprintf(&b, "Decision %d: %s\n", i/each+1, []string{
				"the pilot starts on 3 May with the Lisbon team.", "Marta signs off the migration plan by Friday.", "the price of the second year stays as offered.",
				"support answers within four hours in the summer.", "customer data is imported twice, the second time for real.", "the first delivery is on 14 June.",
				"auditors get read access from the start.", "the next review is in six weeks.",
			}[i/each])
		}
		b.WriteString(line + "\n")
	}
	text := b.String()
	return text[:min(len(text), minutesSize)]
}

// summary is what the lead's summary is to be.
func summary() string {
	lines := strings.Split(minutes(), "\n")
	return strings.Join(slices.DeleteFunc(lines, func(l string) bool { return !strings.HasPrefix(l, "Decision ") }), "\n")
}

// contoso are the ids of the ten leads of one company.
func contoso() []string {
	var ids []string
	for i := range 10 {
		ids = append(ids, fmt.Sprintf("00Q-2%03d", i+1))
	}
	return ids
}

type activity struct {
	Date string `json:"date"`
	Kind string `json:"kind"`
	Note string `json:"note"`
}

// contosoLead is a lead with the history that a CRM keeps.
func contosoLead(id string, n int) *lead {
	l := &lead{ID: id, Company: "Contoso " + []string{"Bergen", "Porto", "Graz", "Leeds", "Lyon", "Malmö", "Turin", "Ghent", "Cork", "Brno"}[n], Status: "open"}
	kinds := []string{"email", "call", "meeting"}
	for i := range 12 {
		l.Activities = append(l.Activities, activity{
			Date: fmt.Sprintf("2026-%02d-%02d", i/3+5, 1+(i*7+n)%27), Kind: kinds[(n*5+i*i)%len(kinds)],
			Note: strings.SplitN(strings.Split(transcript(), "\n")[n*12+i], ": ", 2)[1],
		})
	}
	slices.SortFunc(l.Activities, func(a, b activity) int { return strings.Compare(a.Date, b.Date) })
	return l
}

// wanted is the status that the lead is to have: that of its last activity.
func (l lead) wanted() string {
	if l.Activities[len(l.Activities)-1].Kind == "meeting" {
		return "qualified"
	}
	return "lost"
}

func summarised(leads map[string]lead) error {
	if l := leads["00Q-1001"]; l.Summary != summary() {
		return fmt.Errorf("the lead has a summary of %d bytes, want %d", len(l.Summary), len(summary()))
	}
	return nil
}

func judged(leads map[string]lead) error {
	for _, id := range contoso() {
		if l := leads[id]; len(l.Activities) == 0 || l.Status != l.wanted() {
			return fmt.Errorf("the lead %s has the status %q", id, l.Status)
		}
	}
	return nil
}

const saidSummary = "The eight decisions of the review are in the summary of the lead of Northwind Traders."

func summariseDirect(b *bench, c *conversation) error {
	if _, err := b.document(c, "review northwind"); err != nil {
		return err
	}
	l, err := b.northwind(c)
	if err != nil {
		return err
	}
	if _, err := b.use(c, "crm", "crm", "update_lead", map[string]any{"id": l.ID, "summary": summary()}); err != nil {
		return err
	}
	c.add(saidSummary, "")
	return nil
}

// A model does not know what a document looks like before it has seen some of it: it looks first.
const (
	lookText = `import { searchFiles, getDocument } from './servers/google-drive';
import { findLeads } from './servers/crm';
const [file] = await searchFiles({ query: 'review northwind' }) as any[];
const { content } = await getDocument({ documentId: file.id }) as any;
console.log(file.id, file.name, content.length, content.slice(0, 400));
console.log(content.split('\n').filter(l => /^(decision|action|summary)/i.test(l)).slice(0, 3));
console.log(await findLeads({ company: 'Northwind' }));`
	summariseText = `import { getDocument } from './servers/google-drive';
import { updateLead } from './servers/crm';
const { content } = await getDocument({ documentId: 'MINUTES' }) as any;
const lines = content.split('\n').filter(l => l.startsWith('Decision '));
await updateLead({ id: '00Q-1001', summary: lines.join('\n') });
console.log(lines.length, 'decisions written');`
)

func summariseCode(b *bench, c *conversation) error {
	if err := b.search(c, "find and read a document, find a lead and update it"); err != nil {
		return err
	}
	if err := b.execute(c, lookText); err != nil {
		return err
	}
	if err := b.execute(c, strings.ReplaceAll(summariseText, "MINUTES", minutesID)); err != nil {
		return err
	}
	c.add(saidSummary, "")
	return nil
}

const saidJudged = "All ten leads of Contoso are set: qualified where the last activity was a meeting, lost elsewhere."

// useAll is a turn in which the model makes several calls of one tool at once, as models do.
func (b *bench) useAll(c *conversation, tool string, inputs []map[string]any) ([]json.RawMessage, error) {
	var uses []toolUse
	var results []json.RawMessage
	for _, input := range inputs {
		result, err := b.tool("crm", tool, input)
		if err != nil {
			return nil, err
		}
		uses, results = append(uses, toolUse{"crm__" + tool, input}), append(results, result)
	}
	c.add(uses, results)
	return results, nil
}

func judgeDirect(b *bench, c *conversation) error {
	raw, err := b.use(c, "crm", "crm", "find_leads", map[string]any{"company": "Contoso"})
	if err != nil {
		return err
	}
	var found []lead
	if err := json.Unmarshal(raw, &found); err != nil || len(found) != 10 {
		return fmt.Errorf("%d leads found: %w", len(found), err)
	}
	var ask, change []map[string]any
	for _, l := range found {
		ask = append(ask, map[string]any{"id": l.ID})
	}
	records, err := b.useAll(c, "get_lead", ask)
	if err != nil {
		return err
	}
	for _, record := range records {
		var l lead
		if err := json.Unmarshal(record, &l); err != nil || len(l.Activities) == 0 {
			return errors.Join(errors.New("a lead without activities"), err)
		}
		change = append(change, map[string]any{"id": l.ID, "status": l.wanted()})
	}
	if _, err := b.useAll(c, "update_lead", change); err != nil {
		return err
	}
	c.add(saidJudged, "")
	return nil
}

const (
	oneLeadText = `import { findLeads, getLead } from './servers/crm';
const leads = await findLeads({ company: 'Contoso' }) as any[];
console.log(leads.length, JSON.stringify(await getLead({ id: leads[0].id })).slice(0, 400));`
	judgeText = `import { findLeads, getLead, updateLead } from './servers/crm';
let qualified = 0;
const leads = await findLeads({ company: 'Contoso' }) as any[];
for (const { id } of leads) {
  const { activities } = await getLead({ id }) as any;
  const last = activities.sort((a, b) => a.date.localeCompare(b.date)).at(-1);
  const status = last.kind === 'meeting' ? 'qualified' : 'lost';
  if (status === 'qualified') qualified++;
  await updateLead({ id, status });
}
console.log(leads.length, 'leads,', qualified, 'qualified');`
)

func judgeCode(b *bench, c *conversation) error {
	if err := b.search(c, "find leads, get a lead, update a lead"); err != nil {
		return err
	}
	if err := b.execute(c, oneLeadText); err != nil {
		return err
	}
	if err := b.execute(c, judgeText); err != nil {
		return err
	}
	c.add(saidJudged, "")
	return nil
}
