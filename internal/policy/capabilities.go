package policy

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// holder is a caller in a thread, with its capabilities there: its own, except the ones that narrowing took
// from the thread. An administrator without a list has all.
type holder struct {
	g      *Guard
	caller sandbox.Caller
	thread sandbox.Thread
	names  []string // sandbox.AllCapabilities alone: all
}

// Holds reports whether a caller has a capability, thread or not.
func Holds(c sandbox.Caller, name string) bool {
	return slices.Contains(c.Capabilities, name) || slices.Contains(c.Capabilities, sandbox.AllCapabilities) || c.Admin() && len(c.Capabilities) == 0
}

func (g *Guard) holder(ctx context.Context, c sandbox.Caller, t sandbox.Thread) (holder, error) {
	h := holder{g: g, caller: c, thread: t, names: c.Capabilities}
	if Holds(c, sandbox.AllCapabilities) {
		h.names = []string{sandbox.AllCapabilities}
	}
	if g.o.Narrowed == nil {
		return h, nil
	}
	only, err := g.o.Narrowed(ctx, t)
	if err != nil || only == nil {
		return h, err
	}
	h.names = []string{}
	for _, name := range only {
		if Holds(c, name) {
			h.names = append(h.names, name)
		}
	}
	return h, nil
}

// missing returns those of the needed capabilities that the holder does not have.
func (h holder) missing(needs []string) []string {
	if slices.Contains(h.names, sandbox.AllCapabilities) {
		return nil
	}
	var list []string
	for _, n := range needs {
		if !slices.Contains(h.names, n) && !slices.Contains(list, n) {
			list = append(list, n)
		}
	}
	return list
}

// sees reports whether the holder may know of a tool, or of a server, which is a tool without a name.
func (h holder) sees(t sandbox.Tool) bool { return h.whyNot(t) == nil }

// whyNot says why the holder may not know of a tool.
func (h holder) whyNot(t sandbox.Tool) *Reason {
	if missing := h.missing(t.Requires); missing != nil {
		return lacks(missing)
	}
	if missing := h.missing(h.g.o.Decider.Requires(h.thread, t)); missing != nil {
		return lacks(missing)
	}
	if t.Name != "" && h.g.o.Decider.Hides(h.caller, h.thread, t) {
		return &Reason{Rule: "hidden", Effect: Deny, Text: "the rules deny this caller every call of the tool"}
	}
	return nil
}

func lacks(missing []string) *Reason {
	return &Reason{Rule: "capabilities", Effect: Deny, Text: "the caller has not: " + strings.Join(missing, ", ")}
}

// uses reports whether the holder may use a server. The hub refuses a missing one.
func (h holder) uses(name string) bool {
	return h.sees(sandbox.Tool{Server: name, Requires: h.g.o.Hub.ServerRequires(h.thread, name)})
}

// of takes out of a set what the holder must not know of.
func (h holder) of(set sandbox.ToolSet) sandbox.ToolSet {
	set.Skills = slices.DeleteFunc(slices.Clone(set.Skills), func(t sandbox.Tool) bool { return !h.sees(t) })
	gone := sha256.New()
	shown := make([]sandbox.Tool, 0, len(set.Tools))
	for _, t := range set.Tools {
		if h.sees(t) {
			shown = append(shown, t)
			continue
		}
		gone.Write([]byte(t.Printed + "\x00"))
	}
	if len(shown) == len(set.Tools) {
		return set
	}
	set.Hash, set.Tools = set.Hash+"-"+hex.EncodeToString(gone.Sum(nil)[:8]), shown
	return set
}

// Visible takes out of a list what the caller must not know of.
func (g *Guard) Visible(ctx context.Context, c sandbox.Caller, t sandbox.Thread, tools []sandbox.Tool) ([]sandbox.Tool, error) {
	h, err := g.holder(ctx, c, t)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(tools), func(tool sandbox.Tool) bool { return !h.sees(tool) }), nil
}

// Tools returns the tools that a caller may use in a thread.
func (g *Guard) Tools(ctx context.Context, c sandbox.Caller, t sandbox.Thread) (sandbox.ToolSet, error) {
	h, err := g.holder(ctx, c, t)
	if err != nil {
		return sandbox.ToolSet{}, err
	}
	set, err := g.o.Hub.Tools(ctx, t)
	if err != nil {
		return sandbox.ToolSet{}, err
	}
	return h.of(set), nil
}

// Servers lists the MCP servers that a caller may use in a thread, with the number of the tools that it may use.
func (g *Guard) Servers(ctx context.Context, c sandbox.Caller, t sandbox.Thread) ([]sandbox.ToolServer, error) {
	h, err := g.holder(ctx, c, t)
	if err != nil {
		return nil, err
	}
	servers, err := g.o.Hub.Servers(ctx, t)
	if err != nil {
		return nil, err
	}
	set, err := g.o.Hub.Tools(ctx, t)
	if err != nil {
		return nil, err
	}
	hidden := map[string]int{}
	for _, tool := range set.Tools {
		if !h.sees(tool) {
			hidden[tool.Server]++
		}
	}
	shown := make([]sandbox.ToolServer, 0, len(servers))
	for _, s := range servers {
		if h.uses(s.Name) {
			s.ToolCount = max(0, s.ToolCount-hidden[s.Name])
			shown = append(shown, s)
		}
	}
	return shown, nil
}

// Search finds tools among the tools that a caller may use in a thread.
func (g *Guard) Search(ctx context.Context, c sandbox.Caller, t sandbox.Thread, q sandbox.ToolQuery) (sandbox.ToolSearch, error) {
	h, err := g.holder(ctx, c, t)
	if err != nil {
		return sandbox.ToolSearch{}, err
	}
	q.Visible = h.sees
	return g.o.Hub.Search(ctx, t, q)
}

// Upstream lists what the servers that a caller may use offer of a kind.
func (g *Guard) Upstream(ctx context.Context, c sandbox.Caller, t sandbox.Thread, kind sandbox.UpstreamKind, server string) ([]sandbox.UpstreamItem, error) {
	h, err := g.holder(ctx, c, t)
	if err != nil {
		return nil, err
	}
	if server != "" && !h.uses(server) {
		return nil, noServer(server)
	}
	items, err := g.o.Upstream.Upstream(ctx, t, kind, server)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(items), func(i sandbox.UpstreamItem) bool { return !h.uses(i.Server) }), nil
}

func noServer(name string) error {
	return sandbox.Errorf(sandbox.NotFound, "there is no MCP server %.80q", name)
}
