package hub

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/serverconfig"
	"github.com/skerry-sandbox/skerry/internal/tools/search"
)

const (
	maxFound     = 15
	maxShortDesc = 200 // characters
	maxIndexes   = 32  // of tool sets that are kept; most threads of a server share one
)

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

// Search finds tools of a thread by what they do: at most 15, best first. An empty query lists tools by
// name. An error is Invalid (Detail is something else than "name", "desc" or "full"; "" is "desc"), or
// NotFound for a server that is not there.
func (g *Catalog) Search(ctx context.Context, t sandbox.Thread, q sandbox.ToolQuery) (sandbox.ToolSearch, error) {
	if q.Detail == "" {
		q.Detail = "desc"
	}
	if !slices.Contains([]string{"name", "desc", "full"}, q.Detail) {
		return sandbox.ToolSearch{}, serverconfig.InvalidField("detail", "%.40q is not name, desc or full", q.Detail)
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
	res := sandbox.ToolSearch{Query: q.Query, ServerFilter: q.Server, Tools: []sandbox.ToolFound{}}
	if strings.TrimSpace(q.Query) == "" {
		for _, t := range v.set.Tools {
			if !keep(t) {
				continue
			}
			if res.MatchCount++; res.MatchCount <= maxFound {
				res.Tools = append(res.Tools, shown(t, q.Detail))
			}
		}
	} else {
		var hits []search.Hit
		hits, res.MatchCount = g.indexes.of(v.set).Find(q.Query, maxFound, keep)
		for _, hit := range hits {
			f := shown(v.set.Tools[hit.Tool], q.Detail)
			if q.Detail == "full" {
				f.Why = hit.Why
			}
			res.Tools = append(res.Tools, f)
		}
	}
	res.Showing = len(res.Tools)
	return res, nil
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
		if serverconfig.PrintedServer(s.Name) == name && visible(s.AsTool()) {
			return s.Name, nil
		}
	}
	return "", sandbox.Errorf(sandbox.NotFound, "there is no MCP server %.80q%s", name, orMaybe(nearest(name, serverNames(cfg, visible))))
}

func shown(t sandbox.Tool, detail string) sandbox.ToolFound {
	f := sandbox.ToolFound{Name: t.Printed, ShortName: t.Name, Server: t.Server}
	switch detail {
	case "desc":
		f.Description = shorten(cmp.Or(t.Summary, t.Description), maxShortDesc)
	case "full":
		f.Description, f.Parameters, f.Output, f.WrapperPath = t.Description, t.Input, t.Output, t.WrapperPath
	}
	return f
}

// shorten cuts a text to most characters, at a word where there is one near.
func shorten(s string, most int) string {
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	cutAt := string([]rune(s)[:most-1])
	if i := strings.LastIndexAny(cutAt, " \n"); i > most/2 {
		cutAt = cutAt[:i]
	}
	return strings.TrimRight(cutAt, " \n.,;:") + "…"
}
