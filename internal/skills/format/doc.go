// Package format reads the folder of an Agent Skill (https://agentskills.io): its SKILL.md, the digest of its
// files, and how one of its scripts is run.
package format
