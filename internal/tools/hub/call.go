package hub

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/skerry-sandbox/skerry/internal/observe/tracing"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/serverconfig"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/transport"
)

// Resolve returns the tool that ref names among those of the thread: by server and name, by its printed
// name, or as "server.name". It connects only to servers that the name can belong to, and waits for them up to
// Options.ConnectTimeout: a call of a server's tool has no use for an answer without that server. An error is
// NotFound, naming what looks alike, or Unavailable when the tool's server is.
func (g *Catalog) Resolve(ctx context.Context, t sandbox.Thread, ref sandbox.ToolRef) (sandbox.Tool, error) {
	return g.ResolveAmong(ctx, t, ref, nil)
}

// ResolveAmong is Resolve for a caller who may know only of the tools that visible reports true of; a server is asked
// about as a tool without a name. nil: of all.
func (g *Catalog) ResolveAmong(ctx context.Context, t sandbox.Thread, ref sandbox.ToolRef, visible func(sandbox.Tool) bool) (sandbox.Tool, error) {
	e, err := g.resolve(ctx, t, ref, visible)
	if err != nil {
		return sandbox.Tool{}, err
	}
	return e.tool.Tool, nil
}

func (g *Catalog) resolve(ctx context.Context, t sandbox.Thread, ref sandbox.ToolRef, visible func(sandbox.Tool) bool) (entry, error) {
	if visible == nil {
		visible = everything
	}
	cfg := g.configs.of(t.Owner)
	v := g.view(t)
	if e, ok := v.find(ref); ok {
		if !visible(e.tool.Tool) {
			return entry{}, notFound(cfg, v, ref, visible)
		}
		e.conn.touch()
		return e, nil
	}
	candidates := owners(cfg, ref)
	if err := g.contact(ctx, t, candidates, g.o.ConnectTimeout); err != nil {
		return entry{}, err
	}
	v = g.view(t)
	if e, ok := v.find(ref); ok && visible(e.tool.Tool) {
		return e, nil
	}
	for _, s := range candidates {
		if err := g.whyNot(s, v, t); err != nil && visible(s.AsTool()) {
			return entry{}, err
		}
	}
	candidates = slices.DeleteFunc(candidates, func(s *serverconfig.Server) bool { return !visible(s.AsTool()) })
	if err := g.errQuarantined(candidates, t, ref); err != nil {
		return entry{}, err
	}
	return entry{}, notFound(cfg, v, ref, visible)
}

// whyNot says why the tools of a server are not known, or nil when they are.
func (g *Catalog) whyNot(s *serverconfig.Server, v *view, t sandbox.Thread) error {
	if err := v.refused[s.Name]; err != nil {
		return configError(s.Name, err)
	}
	c := g.pool.find(s, t)
	if v.servers[s.Name] {
		return nil
	}
	if c == nil { // contact has just tried to make it
		return g.pool.errFull()
	}
	tools, _, err := c.known()
	if tools == nil && err == nil {
		err = sandbox.Errorf(sandbox.Unavailable, "the MCP server %q is still connecting", s.Name)
	}
	return err
}

// owners returns the servers that the tool of a name can belong to.
func owners(cfg *serverconfig.Set, ref sandbox.ToolRef) []*serverconfig.Server {
	name := ref.Printed
	if name == "" {
		name = ref.Name
	}
	var list []*serverconfig.Server
	for _, s := range cfg.Usable() {
		if s.Name == ref.Server || ref.Server == "" && (strings.HasPrefix(name, sandbox.PrintedServer(s.Name)+"__") || strings.HasPrefix(name, s.Name+".")) {
			list = append(list, s)
		}
	}
	return list
}

func everything(sandbox.Tool) bool { return true }

// notFound names what looks alike, of what the caller may know of.
func notFound(cfg *serverconfig.Set, v *view, ref sandbox.ToolRef, visible func(sandbox.Tool) bool) error {
	want := ref.Printed
	if ref.Server != "" {
		want = ref.Server + "." + ref.Name
		s := cfg.ByName[ref.Server]
		switch {
		case s == nil || !s.IsEnabled() || !visible(s.AsTool()):
			return sandbox.Errorf(sandbox.NotFound, "there is no MCP server %.80q%s", ref.Server, orMaybe(nearest(ref.Server, serverNames(cfg, visible))))
		case s.Err != nil:
			return configError(s.Name, s.Err)
		}
	} else if want == "" {
		want = ref.Name
	}
	var names []string
	for printed, e := range v.byPrinted {
		if (ref.Server == "" || e.tool.Server == ref.Server) && visible(e.tool.Tool) {
			names = append(names, printed)
		}
	}
	like := ref.Printed
	if like == "" {
		like = sandbox.PrintedName(ref.Server, ref.Name)
	}
	return sandbox.Errorf(sandbox.NotFound, "there is no tool %.200q%s", want, orMaybe(nearest(like, names)))
}

func serverNames(cfg *serverconfig.Set, visible func(sandbox.Tool) bool) []string {
	var names []string
	for _, s := range cfg.List {
		if s.IsEnabled() && visible(s.AsTool()) {
			names = append(names, s.Name)
		}
	}
	return names
}

func orMaybe(near []string) string {
	if len(near) == 0 {
		return ""
	}
	return "; did you mean " + strings.Join(near, " or ") + "?"
}

// Call calls a tool of Resolve or Tools, on the thread's own connection. input is a JSON object;
// nothing stands for {}. A failure that the tool reports is a result with IsError and its text. An error
// is Invalid (with the wrong fields), NotFound, ToolFailed (the server answered with an error, or
// with too much), Timeout, Unavailable or CapacityExceeded. No call is made twice.
func (g *Catalog) Call(ctx context.Context, t sandbox.Thread, tool sandbox.Tool, input []byte) (sandbox.ToolResult, error) {
	return g.CallWatched(ctx, t, tool, input, sandbox.ToolWatch{})
}

// CallWatched is Call with a listener to what the server says while the call runs. When ctx
// ends, the server is told that no caller waits for the call any more (notifications/cancelled).
func (g *Catalog) CallWatched(ctx context.Context, t sandbox.Thread, tool sandbox.Tool, input []byte, watch sandbox.ToolWatch) (sandbox.ToolResult, error) {
	args, err := g.Arguments(ctx, t, tool, input)
	if err != nil {
		return sandbox.ToolResult{}, err
	}
	return g.CallChecked(ctx, t, tool, args, watch)
}

// Arguments returns the very bytes that a tool's server gets as arguments for an input. Errors are those of
// Resolve, and Invalid with the wrong fields.
func (g *Catalog) Arguments(ctx context.Context, t sandbox.Thread, tool sandbox.Tool, input []byte) ([]byte, error) {
	e, err := g.resolve(ctx, t, sandbox.ToolRef{Server: tool.Server, Name: tool.Name}, nil)
	if err != nil {
		return nil, err
	}
	args, problem, err := e.tool.input.Check(e.tool.Printed, input)
	if err != nil {
		return nil, err
	}
	if problem != nil {
		g.o.Log.Debug("MCP server: arguments not checked, the schema is of no use", "tool", e.tool.Printed, "error", problem)
	}
	return args, nil
}

// CallChecked is CallWatched with arguments of Arguments, which are sent as they are.
func (g *Catalog) CallChecked(ctx context.Context, t sandbox.Thread, tool sandbox.Tool, args []byte, watch sandbox.ToolWatch) (sandbox.ToolResult, error) {
	began := time.Now()
	e, err := g.resolve(ctx, t, sandbox.ToolRef{Server: tool.Server, Name: tool.Name}, nil)
	if err != nil {
		return sandbox.ToolResult{}, err
	}
	ctx, span := g.o.Tracer.Start(ctx, transport.MethodCall+" "+e.tool.Name, tracing.Client)
	defer span.End()
	res, err := callTool(ctx, e.conn, t, e.tool, args, watch)
	about(span, transport.MethodCall, tool.Server, args, err)
	span.Set("gen_ai.tool.name", e.tool.Name)
	span.SetInt("skerry.tool.output_bytes", int64(len(res.Result)))
	if res.IsError {
		span.FailedAs("tool_error")
	}
	res.Millis = time.Since(began).Milliseconds()
	return res, err
}

// errQuarantined is why a tool that is named is not there, or nil.
func (g *Catalog) errQuarantined(candidates []*serverconfig.Server, t sandbox.Thread, ref sandbox.ToolRef) error {
	for _, s := range candidates {
		c := g.pool.find(s, t)
		if c == nil {
			continue
		}
		tools, _, _ := c.known()
		if tools == nil {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(tools.quarantined)) {
			names := []string{sandbox.PrintedName(s.Name, name), s.Name + "." + name}
			if ref.Server == s.Name {
				names = append(names, name)
			}
			if slices.Contains(names, ref.Name) || slices.Contains(names, ref.Printed) {
				return sandbox.Errorf(sandbox.Forbidden, "the tool %q of the MCP server %q is quarantined: it is not as it was when it was first seen, or approved. An administrator looks at it with `skerry mcp drift ls %s` and lets it in with `skerry mcp drift approve %s %s`", name, s.Name, s.Name, s.Name, name)
			}
		}
	}
	return nil
}
