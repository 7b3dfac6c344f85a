package sandbox

import (
	"encoding/json"
	"io/fs"
)

// Categories of a Skill. Those of plugins are PluginCategory + the plugin's name.
const (
	CategoryPublic  = "public"  // ships with the server, the same for all users
	CategoryCustom  = "custom"  // a user's own
	CategoryVirtual = "virtual" // of one thread, in memory
	PluginCategory  = "plugin:"
)

// Skill is one skill as a user or a thread sees it. Values are shared: callers must not change what
// slices and maps hold.
type Skill struct {
	Name          string          // its folder's name: unique in a list, and its name everywhere
	Title         string          // the name in SKILL.md; "" when it has none
	Description   string          // never "" in a skill that loads
	License       string          // "" when SKILL.md has none; so are the next two
	Compatibility string          // what it needs, for people
	ArgumentHint  string          // for those who call it as a command
	AllowedTools  []string        // "allowed-tools", one entry a tool: a pre-approval, never a restriction by itself
	Hidden        bool            // "disable-model-invocation": for people only, not for an agent's catalogue
	NotCallable   bool            // "user-invocable: false": for agents only, no command
	Frontmatter   json.RawMessage // the YAML of SKILL.md as a JSON object; nil in a skill that does not load
	Category      string          // CategoryPublic, CategoryCustom, CategoryVirtual, or PluginCategory + plugin
	Location      string          // virtual path of SKILL.md
	Digest        string          // of all files: "sha256:" and 64 hex digits; "" in a skill that does not load
	Trusted       bool            // its scripts may run without an approval
	Enabled       bool            // for the user who asked; false in a skill that does not load
	Broken        bool            // it does not load; Findings say why. It hides no other of its name
	Findings      []Finding       // at most 100
}

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

// SkillFileMode is the mode of a file of a skill or plugin on disk: a copy that a script makes of it (cp -r,
// shutil.copy) can be changed. The mount keeps the file itself as it is.
func SkillFileMode(executable bool) fs.FileMode {
	if executable {
		return 0o755
	}
	return 0o644
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

// findingScores are those of the severities.
var findingScores = map[string]int{SeverityError: 10, SeverityWarning: 3, SeverityInfo: 1}

// FindingScore sums findings up, each rule once: of a tool, 10 and more is a reason not to use it unseen.
func FindingScore(list []Finding) int {
	total, seen := 0, map[string]bool{}
	for _, f := range list {
		if !seen[f.Rule] {
			seen[f.Rule] = true
			total += findingScores[f.Severity]
		}
	}
	return total
}

// VirtualSkill is a skill that one thread gets, in memory.
type VirtualSkill struct {
	Name        string
	Description string
	Body        string            // the Markdown of SKILL.md, below its frontmatter
	Files       map[string]string // further files by path, relative to the skill's folder, with slashes
}

// ActiveSkill is a skill as an agent gets it that activates one.
type ActiveSkill struct {
	Name      string
	Location  string   // virtual path of SKILL.md
	Body      string   // its instructions, without the frontmatter
	Resources []string // its other files, relative to its folder, sorted
}

// SkillFound is a skill that a search found.
type SkillFound struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Location    string `json:"location"` // virtual path of SKILL.md
}
