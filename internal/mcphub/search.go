package mcphub

import (
	"cmp"
	"context"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

const (
	maxFound      = 15
	maxShortDesc  = 200 // characters
	maxQueryWords = 64
	maxQuery      = 4 << 10 // bytes
)

// The parameters of BM25, and what a word in each part of a tool weighs.
const (
	bm25K1 = 1.2
	bm25B  = 0.75

	weightName        = 3
	weightServer      = 1
	weightDescription = 1
	weightParameter   = 0.5
)

// index finds tools by words.
type index struct {
	tools    []sandbox.Tool
	lengths  []float64
	mean     float64
	postings map[string][]posting
}

// posting is how much of a word a tool has.
type posting struct {
	tool   int
	weight float64
}

func newIndex(tools []sandbox.Tool) *index {
	ix := &index{tools: tools, lengths: make([]float64, len(tools)), postings: map[string][]posting{}}
	for i, t := range tools {
		weights := map[string]float64{}
		add := func(text string, weight float64) {
			for _, w := range words(text) {
				weights[w] += weight
				ix.lengths[i] += weight
			}
		}
		add(t.Name, weightName)
		add(t.Server, weightServer)
		add(t.Description, weightDescription)
		for _, p := range parameters(t.Input) {
			add(p, weightParameter)
		}
		for w, weight := range weights {
			ix.postings[w] = append(ix.postings[w], posting{i, weight})
		}
		ix.mean += ix.lengths[i] / float64(len(tools))
	}
	return ix
}

// find gives the tools that have a word of the query, best first.
func (ix *index) find(query string) []sandbox.Tool {
	scores := map[int]float64{}
	asked := words(cut(query, maxQuery))
	for _, w := range asked[:min(len(asked), maxQueryWords)] {
		list := ix.postings[w]
		idf := math.Log(1 + (float64(len(ix.tools)-len(list))+0.5)/(float64(len(list))+0.5))
		for _, p := range list {
			norm := bm25K1 * (1 - bm25B + bm25B*ix.lengths[p.tool]/ix.mean)
			scores[p.tool] += idf * p.weight * (bm25K1 + 1) / (p.weight + norm)
		}
	}
	found := make([]int, 0, len(scores))
	for i := range scores {
		found = append(found, i)
	}
	// Equal scores keep the order of the names.
	slices.SortFunc(found, func(a, b int) int {
		return cmp.Or(cmp.Compare(scores[b], scores[a]), cmp.Compare(a, b))
	})
	tools := make([]sandbox.Tool, len(found))
	for i, n := range found {
		tools[i] = ix.tools[n]
	}
	return tools
}

// parameters gives the names and descriptions of a tool's parameters, and of those within them.
func parameters(schema json.RawMessage) []string {
	var texts []string
	var walk func(raw json.RawMessage, depth int)
	walk = func(raw json.RawMessage, depth int) {
		var s struct {
			Description string                     `json:"description"`
			Properties  map[string]json.RawMessage `json:"properties"`
			Items       json.RawMessage            `json:"items"`
		}
		if depth > 4 || len(texts) > 500 || json.Unmarshal(raw, &s) != nil {
			return
		}
		if depth > 0 {
			texts = append(texts, s.Description)
		}
		for name, p := range s.Properties {
			texts = append(texts, name)
			walk(p, depth+1)
		}
		if len(s.Items) > 0 && s.Items[0] == '{' {
			walk(s.Items, depth+1)
		}
	}
	walk(schema, 0)
	return texts
}

// words cuts a text into stems: at everything that is no letter or digit, and at the humps of camelCase.
// Words that say nothing are left out, unless there are no others.
func words(text string) []string {
	var all, kept []string
	for _, part := range strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
		for _, w := range humps(part) {
			w = strings.ToLower(w)
			all = append(all, stem(w))
			if !stopWords[w] {
				kept = append(kept, stem(w))
			}
		}
	}
	if len(kept) == 0 {
		return all
	}
	return kept
}

// humps cuts readHTMLFile2 into read, HTML, File, 2.
func humps(word string) []string {
	var parts []string
	runes := []rune(word)
	start := 0
	for i := 1; i < len(runes); i++ {
		before, r := runes[i-1], runes[i]
		hump := unicode.IsUpper(r) && !unicode.IsUpper(before) ||
			unicode.IsUpper(r) && i+1 < len(runes) && unicode.IsLower(runes[i+1]) ||
			unicode.IsDigit(r) != unicode.IsDigit(before)
		if hump {
			parts = append(parts, string(runes[start:i]))
			start = i
		}
	}
	return append(parts, string(runes[start:]))
}

// stem takes English endings off, so that "files", "listing" and "created" find file, list and create.
func stem(w string) string {
	if len(w) < 4 {
		return w
	}
	switch {
	case strings.HasSuffix(w, "ies") && len(w) > 4:
		w = w[:len(w)-3] + "y"
	case strings.HasSuffix(w, "sses"), strings.HasSuffix(w, "xes"), strings.HasSuffix(w, "ches"), strings.HasSuffix(w, "shes"):
		w = w[:len(w)-2]
	case strings.HasSuffix(w, "s") && !strings.HasSuffix(w, "ss") && !strings.HasSuffix(w, "us") && !strings.HasSuffix(w, "is"):
		w = w[:len(w)-1]
	}
	for _, ending := range []string{"ingly", "edly", "ing", "ed"} {
		base, ok := strings.CutSuffix(w, ending)
		if ok && len(base) >= 3 && strings.ContainsAny(base, "aeiouy") {
			w = undouble(base)
			break
		}
	}
	return strings.TrimSuffix(w, "e")
}

func undouble(w string) string {
	if n := len(w); n >= 4 && w[n-1] == w[n-2] && !strings.ContainsRune("lsz", rune(w[n-1])) {
		return w[:n-1]
	}
	return w
}

var stopWords = func() map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields(`a an and are as at be been but by can could did do does for from had has have how i if in
		into is it its just let me my no not of on or our please should so some than that the their them then there these
		they this those to us was we were what when where which who will with would you your`) {
		m[w] = true
	}
	return m
}()

// Search finds tools of a thread by what they do: at most 15, best first. An empty query lists tools by
// name. An error is Invalid (Detail is something else than "name", "desc" or "full"; "" is "desc"), or
// NotFound for a server that is not there.
func (h *Hub) Search(ctx context.Context, t sandbox.Thread, q sandbox.ToolQuery) (sandbox.ToolSearch, error) {
	if q.Detail == "" {
		q.Detail = "desc"
	}
	if !slices.Contains([]string{"name", "desc", "full"}, q.Detail) {
		return sandbox.ToolSearch{}, invalidField("detail", "%.40q is not name, desc or full", q.Detail)
	}
	v, err := h.tools(ctx, t)
	if err != nil {
		return sandbox.ToolSearch{}, err
	}
	server, err := h.filter(q.Server)
	if err != nil {
		return sandbox.ToolSearch{}, err
	}
	found := v.set.Tools
	if strings.TrimSpace(q.Query) != "" {
		v.indexed.Do(func() { v.index = newIndex(v.set.Tools) })
		found = v.index.find(q.Query)
	}
	if server != "" {
		found = slices.DeleteFunc(slices.Clone(found), func(t sandbox.Tool) bool { return t.Server != server })
	}
	res := sandbox.ToolSearch{Query: q.Query, ServerFilter: q.Server, MatchCount: len(found), Tools: []sandbox.ToolFound{}}
	for _, t := range found[:min(len(found), maxFound)] {
		res.Tools = append(res.Tools, shown(t, q.Detail))
	}
	res.Showing = len(res.Tools)
	return res, nil
}

// filter gives the server that a filter names, also by the way in which its tools are printed.
func (h *Hub) filter(name string) (string, error) {
	if name == "" {
		return "", nil
	}
	cfg := h.config()
	if s := cfg.byName[name]; s != nil && s.enabled() {
		return name, nil
	}
	for _, s := range cfg.usable() {
		if printedServer(s.name) == name {
			return s.name, nil
		}
	}
	return "", sandbox.Errorf(sandbox.NotFound, "there is no MCP server %.80q%s", name, orMaybe(nearest(name, serverNames(cfg))))
}

func shown(t sandbox.Tool, detail string) sandbox.ToolFound {
	f := sandbox.ToolFound{Name: t.Printed, ShortName: t.Name, Server: t.Server}
	switch detail {
	case "desc":
		f.Description = shorten(t.Description, maxShortDesc)
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
