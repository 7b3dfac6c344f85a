package sandbox

import "encoding/json"

// SkillManifest is a skill with all of its files, as the Skills extension of MCP tells it.
type SkillManifest struct {
	Name        string
	Description string
	Location    string          // virtual path of SKILL.md
	Frontmatter json.RawMessage // the YAML of SKILL.md as a JSON object
	Files       []SkillFile     // sorted by path; SKILL.md is one of them
}

// SkillFile is one file of a skill.
type SkillFile struct {
	Path   string // relative to the skill's folder, with slashes
	Bytes  int64
	Digest string // "sha256:" and 64 hex digits
}

// Severities of a Finding.
const (
	SeverityInfo    = "info"    // worth knowing
	SeverityWarning = "warning" // works, but is not as it should be, or wants a look
	SeverityError   = "error"   // this part does not load, or is dangerous
)

// Finding is what a check of a skill, plugin or command noticed.
type Finding struct {
	Rule     string `json:"rule"`           // stable and in kebab-case: "unknown-key"
	Severity string `json:"severity"`       // SeverityInfo, SeverityWarning, SeverityError
	File     string `json:"file,omitempty"` // relative to the folder that was checked, with slashes
	Line     int    `json:"line,omitempty"` // from 1
	Message  string `json:"message"`        // what is wrong and what would be right, for a person
}
