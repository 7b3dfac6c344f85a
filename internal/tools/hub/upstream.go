package hub

import (
	"context"
	"encoding/json"
	"slices"
	"sync"

	"github.com/skerry-sandbox/skerry/internal/observe/tracing"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/serverconfig"
)

// Upstream is what MCP servers offer beside tools: resources, resource templates and prompts.
type Upstream struct {
	o          *Options
	catalog    *Catalog
	background *background
	changes    *changes
}

// Upstream lists the resources, resource templates or prompts of the thread's servers, side by side, in
// the order of the servers' names. With a server it lists those of this one, and its failure is the
// error; else a server that fails, or has none, is missing in the answer and disturbs nothing else.
func (u *Upstream) Upstream(ctx context.Context, t sandbox.Thread, kind sandbox.UpstreamKind, server string) ([]sandbox.UpstreamItem, error) {
	if server != "" {
		c, err := u.conn(ctx, t, server)
		if err != nil {
			return nil, err
		}
		return listItems(ctx, c, kind)
	}
	v, err := u.catalog.tools(ctx, t)
	if err != nil {
		return nil, err
	}
	servers := slices.SortedFunc(slices.Values(u.catalog.configs.of(t.Owner).Usable()), serverconfig.Compare)
	lists := make([][]sandbox.UpstreamItem, len(servers))
	var wg sync.WaitGroup
	for i, s := range servers {
		c, err := u.catalog.pool.get(s, t)
		if err != nil || v.refused[s.Name] != nil {
			continue
		}
		wg.Go(func() {
			if lists[i], err = listItems(ctx, c, kind); err != nil {
				u.o.Log.Debug("MCP server: not listed", "server", s.Name, "what", string(kind), "error", err)
			}
		})
	}
	wg.Wait()
	return slices.Concat(lists...), nil
}

// Ask sends a request to one of the thread's servers and returns its result as the server wrote it. An error
// is NotFound, ToolFailed, Timeout, Unavailable, CapacityExceeded or Invalid. ToolFailed is caused by a
// sandbox.UpstreamError when the server answered with one; Invalid says that the parameters are not those of
// the method.
func (u *Upstream) Ask(ctx context.Context, t sandbox.Thread, r sandbox.UpstreamRequest) (json.RawMessage, error) {
	ctx, span := u.o.Tracer.Start(ctx, r.Method, tracing.Client)
	defer span.End()
	answer, err := u.ask(ctx, t, r)
	about(span, r.Method, r.Server, r.Params, err)
	return answer, err
}

func (u *Upstream) ask(ctx context.Context, t sandbox.Thread, r sandbox.UpstreamRequest) (json.RawMessage, error) {
	q, err := newQuestion(r.Method, withTrace(ctx, u.o.Tracer, r.Params))
	if err != nil {
		return nil, err
	}
	c, err := u.conn(ctx, t, r.Server)
	if err != nil {
		return nil, err
	}
	return askServer(ctx, c, q)
}

// conn returns the thread's connection to a server by its name.
func (u *Upstream) conn(ctx context.Context, t sandbox.Thread, name string) (*conn, error) {
	cfg := u.catalog.configs.of(t.Owner)
	s := cfg.ByName[name]
	if s == nil || !s.IsEnabled() || s.Err != nil {
		return nil, notFound(cfg, u.catalog.view(t), sandbox.ToolRef{Server: name}, everything)
	}
	if err := u.catalog.contact(ctx, t, []*serverconfig.Server{s}, u.catalog.o.ConnectTimeout); err != nil {
		return nil, err
	}
	if err := u.catalog.view(t).refused[name]; err != nil {
		return nil, configError(name, err)
	}
	return u.catalog.pool.get(s, t)
}

// UpstreamChanged returns a channel that is closed when a server says that its prompts or its resources are
// others now. What they are is not kept here: a list asks the servers each time. Of resource templates
// servers do not tell.
func (u *Upstream) UpstreamChanged(kind sandbox.UpstreamKind) <-chan struct{} {
	return u.changes.upstream.next(kind)
}
