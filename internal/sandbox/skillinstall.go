package sandbox

// SkillInstall is what a request to install a skill says beside the archive itself.
type SkillInstall struct {
	Source string // where the archive is from, for people and the audit log: a virtual path, a file's name, an address
	Thread string // when it is from one
	// Marketplace and Skill name a skill of a marketplace.
	Marketplace, Skill string
	Digest             string // the skill must have this digest, as skills.Digest makes it; "" = any
	Strict             bool   // an error of the static scan refuses the skill
}

// SkillInstalled is a skill that was installed.
type SkillInstalled struct {
	Name        string
	Description string
	Digest      string
	Bytes       int64     // of the archive
	Findings    []Finding // of SKILL.md, then of the static scan
}
