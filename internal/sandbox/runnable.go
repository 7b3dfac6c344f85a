package sandbox

// Verdicts of a Runnable.
const (
	RunnableYes     = "yes"     // all that is known to be needed is there
	RunnableNo      = "no"      // something is missing
	RunnableUnknown = "unknown" // nothing is known to be missing, but not all could be told
)

// Runnable says whether a skill can run in the sandboxes of a template.
type Runnable struct {
	Template string   `json:"template" enum:"yes,no,unknown"` // for the template that a thread gets which asks for none
	Missing  []string `json:"missing"`                        // sorted: "command pandoc", "python pandas>=2", "node docx", "network api.example.com"
	Unsure   []string `json:"unsure,omitempty"`               // why it is "unknown": "scripts/x.py:7: …"
}
