package sandbox

import "strings"

// SkillChannel is what a thread's record has of a skill whose tools are functions of a client's program.
type SkillChannel struct {
	// ID is random, and another one each time the skill is attached.
	ID string `json:"id"`
	// Hash is that of the secret in the channel's key.
	Hash string `json:"hash"`
	// Server is the process that has the skill, which is in memory: when it has ended, so has the channel.
	Server string `json:"server"`
	// Digest is that of the skill. One that comes back with the same text is active as before.
	Digest string `json:"digest"`
	// Active: the thread's agent has activated the skill.
	Active bool `json:"active,omitempty"`
}

// SkillKey lets a program provide the tools of a skill of one thread.
type SkillKey struct {
	PackID string `json:"pack_id" doc:"What the program opens its stream for: the name of the skill"`
	Key    string `json:"key" doc:"The bearer key of the stream. It is good for nothing else, and shown here only; it ends with the skill"`
}

// MaxSkillTools is how many tools a skill with a channel has at most: its activation shows all of them to the model.
const MaxSkillTools = 64

// skillServers begins what rules and records have as the server of a skill's tools. No MCP server can have such a name,
// and no tool such a printed name: a slash is in neither.
const skillServers = "skill/"

// SkillServer is what rules and records have as the server of a skill's tools.
func SkillServer(skill string) string { return skillServers + skill }

// SkillOfServer returns the skill that a server stands for; ok is false for any other server.
func SkillOfServer(server string) (skill string, ok bool) {
	return strings.CutPrefix(server, skillServers)
}

// SkillToolName is how a skill's tool is written where there is one name for it.
func SkillToolName(skill, tool string) string { return SkillServer(skill) + "/" + tool }

// SkillTool returns the skill and the tool that a reference names; ok is false when it names no tool of a skill.
func (r ToolRef) SkillTool() (skill, tool string, ok bool) {
	if skill, ok = SkillOfServer(r.Server); ok {
		return skill, r.Name, true
	}
	name := r.Printed
	if name == "" {
		name = r.Name
	}
	if name, ok = strings.CutPrefix(name, skillServers); !ok || r.Server != "" {
		return "", "", false
	}
	skill, tool, _ = strings.Cut(name, "/")
	return skill, tool, true
}
