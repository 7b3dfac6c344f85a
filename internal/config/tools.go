package config

import (
	"path/filepath"
	"time"
)

// Tools is how tools are offered and called.
type Tools struct {
	// ToolDrift says what becomes of a tool of an MCP server that is not as it was first seen, or approved: "record", or
	// "quarantine": no caller gets it until it is approved. A server's own "drift" wins.
	ToolDrift string `yaml:"tool_drift"`
	// ToolCalls bounds how many tools one exec may call, ToolMiB the results of them together, and
	// ToolTimeout each call.
	ToolCalls   int           `yaml:"tool_calls_per_exec"`
	ToolMiB     int           `yaml:"tool_mib_per_exec"`
	ToolTimeout time.Duration `yaml:"tool_timeout"`
	// Packs says which programs may offer tools over connections that they open.
	Packs Packs `yaml:"packs"`
}

func defaultTools() Tools {
	return Tools{
		ToolDrift: "record", ToolCalls: 10_000, ToolMiB: 256, ToolTimeout: time.Hour,
		Packs: Packs{Enabled: true, Grace: time.Minute, Max: 500},
	}
}

// Packs is for tool packs.
type Packs struct {
	// Enabled takes the connections of packs.
	Enabled bool `yaml:"enabled"`
	// AuthorizedPacks is a file of SSH keys that may provide packs, in the style of authorized_keys; empty means
	// <data>/authorized_packs. It is read again when it changes.
	AuthorizedPacks string `yaml:"authorized_packs"`
	// Grace is how long the tools of a pack that went stay listed.
	Grace time.Duration `yaml:"grace"`
	// Max bounds the packs of this server.
	Max int `yaml:"max"`
}

// maxGrace is how long a pack may be expected back.
const maxGrace = time.Hour

func (p *Packs) check(bad func(key, format string, args ...any)) {
	if p.AuthorizedPacks != "" && !filepath.IsAbs(p.AuthorizedPacks) {
		bad("packs.authorized_packs", "%q is not an absolute path", p.AuthorizedPacks)
	}
	if p.Grace < time.Second || p.Grace > maxGrace {
		bad("packs.grace", "%s is not 1s to %s", p.Grace, maxGrace)
	}
	if p.Max < 1 || p.Max > 10_000 {
		bad("packs.max", "%d is not 1 to 10000", p.Max)
	}
}
