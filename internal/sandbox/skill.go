package sandbox

import (
	"cmp"
	"encoding/json"
	"io/fs"
	"maps"
	"strings"
	"time"
	"unicode"
)

// Categories of a Skill. Those of plugins are PluginCategory + the plugin's name, those of MCP servers
// ServerCategory + the server's.
const (
	CategoryPublic  = "public"  // ships with the server, the same for all users
	CategoryCustom  = "custom"  // a user's own
	CategoryVirtual = "virtual" // of one thread, in memory
	PluginCategory  = "plugin:"
	ServerCategory  = "mcp:"
)

// ServerSkillFolder is the name under which a thread has a skill of an MCP server: its folder in the
// sandbox. The standard allows no name with "--", so that it is not the name of another skill.
func ServerSkillFolder(server, skill string) string {
	clean := func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_' || r == '.' {
			return r
		}
		return '-'
	}
	return strings.Map(clean, server) + "--" + skill
}

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
	Metadata      json.RawMessage // "metadata" as a JSON object; nil when SKILL.md has none
	Hidden        bool            // "disable-model-invocation": for people only, not for an agent's catalogue
	NotCallable   bool            // "user-invocable: false": for agents only, no command
	Frontmatter   json.RawMessage // the YAML of SKILL.md as a JSON object; nil in a skill that does not load
	Category      string          // CategoryPublic, CategoryCustom, CategoryVirtual, PluginCategory + plugin, or ServerCategory + server
	Location      string          // virtual path of SKILL.md
	Digest        string          // of all files: "sha256:" and 64 hex digits; "" in a skill that does not load
	Trusted       bool            // its scripts may run without an approval
	Enabled       bool            // for the user who asked; false in a skill that does not load
	Broken        bool            // it does not load; Findings say why. It hides no other of its name
	Findings      []Finding       // at most 100
	Defaults      *ScriptDefaults // of runs of its scripts; nil: nothing
}

// ScriptDefaults are what runs of a skill's scripts have. What a request says of the first three counts more.
type ScriptDefaults struct {
	Env        map[string]string
	EnvSecrets map[string]string // variable -> name of a secret
	Timeout    time.Duration     // 0: that of all scripts
	Template   string            // of the sandbox where they run; "": that of the thread
}

// Template is that of the sandbox where the skill's scripts run, "" when it is the thread's own.
func (s Skill) Template() string {
	if s.Defaults == nil {
		return ""
	}
	return s.Defaults.Template
}

// Fill puts the defaults into a run that says nothing of them. What the run says of a variable counts,
// whether it is a text or a secret.
func (d *ScriptDefaults) Fill(s *Script) {
	if d == nil {
		return
	}
	s.Env, s.EnvSecrets = s.fill(d.Env, s.Env), s.fill(d.EnvSecrets, s.EnvSecrets)
	s.Timeout = cmp.Or(s.Timeout, d.Timeout)
}

// fill returns own with the variables of defaults that the run does not have.
func (s *Script) fill(defaults, own map[string]string) map[string]string {
	if len(defaults) == 0 {
		return own
	}
	all := map[string]string{}
	for name, value := range defaults {
		_, text := s.Env[name]
		_, secret := s.EnvSecrets[name]
		if !text && !secret {
			all[name] = value
		}
	}
	maps.Copy(all, own)
	return all
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

// VirtualSkill is a skill that one thread gets, in memory. Its SKILL.md is made of its description and body,
// or is one of its files when it has neither.
type VirtualSkill struct {
	Name        string
	Description string
	Body        string            // the Markdown of SKILL.md, below its frontmatter
	Files       map[string]string // contents by path, relative to the skill's folder, with slashes
	Replace     bool              // in place of a virtual skill of that name
	Server      string            // the MCP server that it is of, whose scripts are not trusted; "" when a caller gave it
}

// ActiveSkill is a skill as an agent gets it that activates one.
type ActiveSkill struct {
	Name      string
	Location  string   // virtual path of SKILL.md
	Body      string   // its instructions, without the frontmatter
	Resources []string // its other files, relative to its folder, sorted
	// AllowedTools are those of Skill.
	AllowedTools []string
	// Tools are those of its channel, and Away is why they cannot be called now, or nil.
	Tools []Tool
	Away  error
}

// SkillFound is a skill that a search found.
type SkillFound struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Location    string `json:"location"` // virtual path of SKILL.md
}
