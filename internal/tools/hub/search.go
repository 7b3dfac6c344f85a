package hub

import (
	"context"
	"strings"
	"sync"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/search"
)

// maxIndexes bounds the indexes that are kept; most threads of a server share one.
const maxIndexes = 32

// indexes keeps the index of each tool set that was searched. Threads with the same tools share it, and it
// is made once for each version of them.
type indexes struct {
	mu     sync.Mutex
	byHash map[string]*lazyIndex
}

type lazyIndex struct {
	once  sync.Once
	index *search.Index
}

func (x *indexes) of(set sandbox.ToolSet) *search.Index {
	x.mu.Lock()
	l := x.byHash[set.Hash]
	if l == nil {
		if x.byHash == nil || len(x.byHash) >= maxIndexes {
			x.byHash = map[string]*lazyIndex{}
		}
		l = &lazyIndex{}
		x.byHash[set.Hash] = l
	}
	x.mu.Unlock()
	l.once.Do(func() { l.index = search.New(set.Tools) })
	return l.index
}

// Search finds tools of a thread by what they do, best first. An empty query lists tools by name. package search
// says how many an answer has, and how much of each. An error is Invalid for a query that search.Checked refuses, or
// NotFound for a server that is not there.
func (g *Catalog) Search(ctx context.Context, t sandbox.Thread, q sandbox.ToolQuery) (sandbox.ToolSearch, error) {
	q, err := search.Checked(q)
	if err != nil {
		return sandbox.ToolSearch{}, err
	}
	v, err := g.tools(ctx, t)
	if err != nil {
		return sandbox.ToolSearch{}, err
	}
	visible := q.Visible
	if visible == nil {
		visible = everything
	}
	server, err := g.filter(t.Owner, q.Server, visible)
	if err != nil {
		return sandbox.ToolSearch{}, err
	}
	keep := func(t sandbox.Tool) bool { return (server == "" || t.Server == server) && visible(t) }
	if strings.TrimSpace(q.Query) == "" {
		return search.List(v.set.Tools, q, keep), nil
	}
	return g.indexes.of(v.set).Answer(q, keep), nil
}

// filter returns the server that a filter names, also by the way in which its tools are printed.
func (g *Catalog) filter(o sandbox.Owner, name string, visible func(sandbox.Tool) bool) (string, error) {
	if name == "" {
		return "", nil
	}
	cfg := g.configs.of(o)
	if s := cfg.ByName[name]; s != nil && s.IsEnabled() && visible(s.AsTool()) {
		return name, nil
	}
	for _, s := range cfg.Usable() {
		if sandbox.PrintedServer(s.Name) == name && visible(s.AsTool()) {
			return s.Name, nil
		}
	}
	return "", sandbox.Errorf(sandbox.NotFound, "there is no MCP server %.80q%s", name, orMaybe(nearest(name, serverNames(cfg, visible))))
}
