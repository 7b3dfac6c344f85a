package serverconfig

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// The values of drift: what becomes of a tool that is not as it was first seen, or approved.
const (
	driftRecord     = "record"     // it is recorded
	DriftQuarantine = "quarantine" // it is recorded, and not offered until it is approved
)

// Definition changes when an operator changes how a server is reached or started. Values of env and headers are no part
// of it: a new token is no new server.
func (s *Server) Definition() (string, error) {
	parts := struct {
		Type, Command, URL string
		Args               []string
		RunAs              *uint32
		Sandbox            Isolation
		Key                string
	}{Type: s.Type, Command: s.Command, URL: s.URL, Args: s.Args, RunAs: s.RunAs, Sandbox: s.Sandbox}
	if s.User != nil {
		parts.Key = s.User.Key
	}
	text, err := json.Marshal(parts)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}

// Usable returns the servers that a thread may use.
func (c *Set) Usable() []*Server {
	var list []*Server
	for _, s := range c.List {
		if s.IsEnabled() && s.Err == nil {
			list = append(list, s)
		}
	}
	return list
}

// AsTool stands for a server where it is asked who may see it.
func (s *Server) AsTool() sandbox.Tool {
	return sandbox.Tool{Server: s.Name, Requires: s.Capabilities}
}

func longestFirst(list []string) []string {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b string) int { return len(b) - len(a) })
	return slices.Compact(list)
}

// NamesSecrets reports whether the configuration has a ${secret:NAME}.
func (s *Server) NamesSecrets() bool { return bytes.Contains(s.Raw, []byte("${"+secretPrefix)) }
