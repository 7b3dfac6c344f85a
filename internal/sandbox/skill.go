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
