package hub

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/codeapi/wrapperpath"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/excerpt"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/serverconfig"
)

// Catalog is the tools that threads have: it lists, finds and calls them.
type Catalog struct {
	o       *Options
	configs *configurations
	pool    *pool
	changes *changes
	indexes indexes // for searches

	mu    sync.Mutex
	views map[serverconfig.Scope]*view
}

// ForgetThread closes the connections that only this thread uses.
func (g *Catalog) ForgetThread(t sandbox.Thread) {
	g.pool.retire(func(c *conn) bool {
		return c.key.scope == serverconfig.Scope{Tenant: t.Tenant, User: t.User, Thread: t.ID}
	})
}

// maxViews bounds the views that are kept.
const maxViews = 1024

// view is what a thread sees of the tools, at one epoch. It does not change.
type view struct {
	epoch     uint64
	set       sandbox.ToolSet
	byPrinted map[string]entry
	byPair    map[toolKey]entry
	refused   map[string]error // servers whose tools collide with others', by name
	servers   map[string]bool  // that have tools
}

type toolKey struct{ server, tool string }

type entry struct {
	conn *conn
	tool *tool
}

// contact returns the thread's connections to the servers, after a bounded wait for servers that connect for
// the first time. A failed connection is left out; an error is that the hub is closed.
func (g *Catalog) contact(ctx context.Context, t sandbox.Thread, servers []*serverconfig.Server, wait time.Duration) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, s := range servers {
		c, err := g.pool.get(s, t)
		if errors.Is(err, errStopping) {
			return err
		}
		if err != nil {
			g.o.Log.Warn("MCP server: no connection", "server", s.Name, "error", err)
			continue
		}
		wg.Go(func() { c.firstContact(ctx, wait) })
	}
	return nil
}

// view returns what the thread sees now, without connecting to anything.
func (g *Catalog) view(t sandbox.Thread) *view {
	epoch := g.changes.epoch.Load() // before everything that it stands for
	cfg := g.configs.of(t.Owner)
	key := serverconfig.ScopeOf(serverconfig.ScopeUser, t)
	if cfg.ThreadScoped() {
		key = serverconfig.ScopeOf(serverconfig.ScopeThread, t)
	}
	g.mu.Lock()
	v := g.views[key]
	g.mu.Unlock()
	if v != nil && v.epoch == epoch {
		return v
	}
	var conns []*conn
	for _, s := range cfg.Usable() {
		if c := g.pool.find(s, t); c != nil && c.terms.Load().are(s) {
			conns = append(conns, c)
		}
	}
	v = newView(epoch, conns)
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.views) >= maxViews {
		clear(g.views)
	}
	g.views[key] = v
	return v
}

func newView(epoch uint64, conns []*conn) *view {
	v := &view{
		epoch: epoch, byPrinted: map[string]entry{}, byPair: map[toolKey]entry{},
		refused: map[string]error{}, servers: map[string]bool{},
	}
	// In the order of the names: of two servers that collide, the same one is refused each time.
	// A server of the file goes before a user's own.
	conns = slices.SortedFunc(slices.Values(conns), func(a, b *conn) int {
		if ofUser := a.cfg.User != nil; ofUser != (b.cfg.User != nil) {
			if ofUser {
				return 1
			}
			return -1
		}
		return strings.Compare(a.key.server, b.key.server)
	})
	for _, c := range conns {
		tools, _, _ := c.known()
		if tools != nil {
			v.add(c, tools)
		}
	}
	for _, e := range v.byPair {
		v.set.Tools = append(v.set.Tools, e.tool.Tool)
	}
	slices.SortFunc(v.set.Tools, func(a, b sandbox.Tool) int {
		if c := strings.Compare(a.Server, b.Server); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	wrapperpath.Place(v.set.Tools)
	v.set.Hash = hashTools(v.set.Tools)
	return v
}

// add adds the tools of a server, all of them or, when one bears the printed name of another's, none.
func (v *view) add(c *conn, tools *toolList) {
	for _, t := range tools.tools {
		if other, taken := v.byPrinted[t.Printed]; taken {
			v.refused[c.key.server] = sandbox.Errorf(sandbox.Conflict, "its tool %q and the tool %q of the server %q are both printed %s; rename one of the servers",
				t.Name, other.tool.Name, other.tool.Server, t.Printed)
			return
		}
	}
	v.servers[c.key.server] = true
	for _, t := range tools.tools {
		e := entry{c, t}
		v.byPrinted[t.Printed], v.byPair[toolKey{t.Server, t.Name}] = e, e
	}
}

// find returns the tool that ref names: by server and name, by its printed name, or as server.name.
func (v *view) find(ref sandbox.ToolRef) (entry, bool) {
	if ref.Server != "" {
		e, ok := v.byPair[toolKey{ref.Server, ref.Name}]
		if !ok { // some say both the server and the printed name
			e, ok = v.byPrinted[ref.Name]
			ok = ok && e.tool.Server == ref.Server
		}
		return e, ok
	}
	name := ref.Printed
	if name == "" {
		name = ref.Name
	}
	if e, ok := v.byPrinted[name]; ok {
		return e, true
	}
	for i := range len(name) {
		if name[i] != '.' {
			continue
		}
		if e, ok := v.byPair[toolKey{name[:i], name[i+1:]}]; ok {
			return e, true
		}
	}
	return entry{}, false
}

// Servers lists the servers of a thread, in the order of the configuration. It connects as Tools does. A
// server that cannot be used is listed with its error.
func (g *Catalog) Servers(ctx context.Context, t sandbox.Thread) ([]sandbox.ToolServer, error) {
	v, err := g.tools(ctx, t)
	if err != nil {
		return nil, err
	}
	cfg := g.configs.of(t.Owner)
	list := []sandbox.ToolServer{}
	for _, s := range cfg.List {
		if s.IsEnabled() {
			list = append(list, g.server(s, v, t))
		}
	}
	return list, nil
}

// ServerRequires returns the capabilities that users of a server need.
func (g *Catalog) ServerRequires(t sandbox.Thread, server string) []string {
	if s := g.configs.of(t.Owner).ByName[server]; s != nil {
		return s.Capabilities
	}
	return nil
}

func (g *Catalog) server(s *serverconfig.Server, v *view, t sandbox.Thread) sandbox.ToolServer {
	shown := sandbox.ToolServer{Name: s.Name, Description: s.Description, Transport: s.ShownTransport(), State: "idle"}
	err := s.Err
	if err == nil {
		c := g.pool.find(s, t)
		if c != nil {
			var tools *toolList
			// Not "is it in the view": a server may have connected since the view was made, and is not ready without tools.
			if tools, shown.State, err = c.known(); tools != nil && v.refused[s.Name] == nil && c.terms.Load().are(s) {
				shown.ToolCount = len(tools.tools)
			}
		}
		if refused := v.refused[s.Name]; refused != nil {
			err = refused
		}
		if u := s.User; u != nil && u.Pack != nil && err == nil {
			if away := u.Pack.Away(); away != nil {
				shown.State, shown.Error = stateUnavailable, excerpt.Detail(away)
				return shown
			}
		}
	}
	if err != nil {
		shown.Error = excerpt.Detail(err)
		if shown.State != stateNeedsLogin {
			shown.State = stateFailed
		}
	}
	return shown
}

// Tools returns all tools of a thread. It connects to the servers that were not needed before, side by
// side, and waits for them up to Options.FirstWait; what comes later moves Version on. A server that
// fails is missing in the answer and disturbs nothing else.
func (g *Catalog) Tools(ctx context.Context, t sandbox.Thread) (sandbox.ToolSet, error) {
	v, err := g.tools(ctx, t)
	if err != nil {
		return sandbox.ToolSet{}, err
	}
	return sandbox.ToolSet{Hash: v.set.Hash, Tools: slices.Clone(v.set.Tools)}, nil
}

func (g *Catalog) tools(ctx context.Context, t sandbox.Thread) (*view, error) {
	cfg := g.configs.of(t.Owner)
	if err := g.contact(ctx, t, cfg.Usable(), g.o.FirstWait); err != nil {
		return nil, err
	}
	// A deadline that passed while one server was slow is no reason to hide the others.
	if err := ctx.Err(); errors.Is(err, context.Canceled) {
		return nil, sandbox.Wrap(sandbox.Timeout, err, "the caller went away")
	}
	return g.view(t), nil
}
