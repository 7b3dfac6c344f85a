package search

import (
	"cmp"
	"slices"
	"sort"
	"strings"
	"unicode/utf8"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Bounds of a search.
const (
	maxQuery    = 4 << 10 // bytes
	maxAsked    = 64      // different words
	minPrefix   = 4       // bytes of a word that may be the beginning of another
	maxPrefixed = 32      // words that begin with one of the query
	maxWork     = 150_000 // postings, which is half a millisecond; the rarest words come first
)

// Hit is a tool that was found.
type Hit struct {
	Tool  int     // its number in the set
	Score float64 // comparable within one answer only
	// Why are the words of the query that the tool has, as they stand in it, each once; a word that the
	// tool has only in another form is followed by that form: "erase (remov)".
	Why []string
}

// term is a word of a query with the stems that stand for it.
type term struct {
	word    string
	stem    int32 // -1 when no tool has it
	longer  []form
	verbs   []form
	visited int // postings
}

// form is a stem that stands for a word, and how well.
type form struct {
	stem  int32
	text  string
	share float32
}

// Find returns the best tools for a query, at most most of them, best first, and how many have a word of
// it at all. Equal ones come in the order of the set. keep says which tools are looked at; nil is all. A
// query without a known word finds nothing.
func (ix *Index) Find(query string, most int, keep func(sandbox.Tool) bool) (hits []Hit, found int) {
	asked := ix.asked(query)
	s := ix.scores()
	defer ix.spare.Put(s)
	work := 0
	for i, t := range asked {
		if work += t.visited; work > maxWork && i > 0 {
			asked = asked[:i]
			break
		}
		if t.stem >= 0 {
			for _, p := range ix.postings[t.stem] {
				s.add(p.tool, p.score)
				s.name[p.tool] += p.name
			}
		}
		s.addBest(ix, t.longer)
		s.addBest(ix, t.verbs)
	}
	list := s.tools
	if keep != nil {
		list = slices.DeleteFunc(list, func(n int32) bool { return !keep(ix.tools[n]) })
	}
	ix.boost(s, list)
	found = len(list)
	for _, n := range top(list, most, s.total) {
		hits = append(hits, Hit{Tool: int(n), Score: float64(s.total[n]), Why: ix.why(n, asked)})
	}
	return hits, found
}

// asked returns the words of a query, the rarest first.
func (ix *Index) asked(query string) []term {
	if len(query) > maxQuery {
		query = query[:maxQuery]
		for !utf8.ValidString(query) && len(query) > maxQuery-utf8.UTFMax {
			query = query[:len(query)-1]
		}
	}
	var list []term
	seen := map[string]bool{}
	for _, w := range asking(telling(words(query))) {
		s := stem(w)
		if seen[s] || len(list) == maxAsked {
			continue
		}
		seen[s] = true
		t := term{word: w, stem: -1, longer: ix.prefixed(s)}
		if n, known := ix.terms[s]; known {
			t.stem = n
			t.visited = len(ix.postings[n])
		}
		for _, v := range related()[s] {
			if n, known := ix.terms[v]; known {
				t.verbs = append(t.verbs, form{n, v, verbScore})
			}
		}
		for _, f := range slices.Concat(t.longer, t.verbs) {
			t.visited += len(ix.postings[f.stem])
		}
		list = append(list, t)
	}
	slices.SortStableFunc(list, func(a, b term) int { return cmp.Compare(a.visited, b.visited) })
	return list
}

// prefixed returns the stems that begin with s, and those with which s begins. The nearer in length, the
// better they stand for it.
func (ix *Index) prefixed(s string) []form {
	if len(s) < minPrefix {
		return nil
	}
	var list []form
	add := func(w string, short, long int) {
		list = append(list, form{ix.terms[w], w, prefixScore * float32(short) / float32(long)})
	}
	for i := sort.SearchStrings(ix.sorted, s); i < len(ix.sorted) && strings.HasPrefix(ix.sorted[i], s) && len(list) < maxPrefixed; i++ {
		if w := ix.sorted[i]; w != s {
			add(w, len(s), len(w))
		}
	}
	for i := minPrefix; i < len(s); i++ {
		if _, known := ix.terms[s[:i]]; known {
			add(s[:i], i, len(s))
		}
	}
	return list
}

// scores are those of all tools for one query.
type scores struct {
	total, best, name []float32
	has               []bool
	tools, touched    []int32
}

// scores returns scores that are all zero.
func (ix *Index) scores() *scores {
	n := len(ix.tools)
	s, reused := ix.spare.Get().(*scores)
	if !reused {
		return &scores{total: make([]float32, n), best: make([]float32, n), name: make([]float32, n), has: make([]bool, n), tools: make([]int32, 0, n)}
	}
	clear(s.total)
	clear(s.name)
	clear(s.has)
	s.tools = s.tools[:0] // best is left at zero by addBest
	return s
}

func (s *scores) add(tool int32, score float32) {
	if !s.has[tool] {
		s.has[tool] = true
		s.tools = append(s.tools, tool)
	}
	s.total[tool] += score
}

// addBest adds the best of several forms of a word to each tool that has one.
func (s *scores) addBest(ix *Index, forms []form) {
	s.touched = s.touched[:0]
	for _, f := range forms {
		for _, p := range ix.postings[f.stem] {
			if s.best[p.tool] == 0 {
				s.touched = append(s.touched, p.tool)
			}
			s.best[p.tool] = max(s.best[p.tool], p.score*f.share)
		}
	}
	for _, n := range s.touched {
		s.add(n, s.best[n])
		s.best[n] = 0
	}
}

// boost prefers tools whose name is asked for, and those of the server that answers best: what an agent
// does next is often done by the neighbour of the tool that its words describe.
func (ix *Index) boost(s *scores, list []int32) {
	best := make([]float32, ix.nServers)
	for _, n := range list {
		s.total[n] *= 1 + nameBoost*s.name[n]
		best[ix.servers[n]] = max(best[ix.servers[n]], s.total[n])
	}
	for _, n := range list {
		s.total[n] += serverBoost * best[ix.servers[n]]
	}
}

// top returns the best of a list, in order.
func top(list []int32, most int, total []float32) []int32 {
	before := func(a, b int32) bool { return total[a] > total[b] || total[a] == total[b] && a < b }
	var kept []int32
	for _, n := range list {
		if len(kept) == most && (most == 0 || !before(n, kept[most-1])) {
			continue
		}
		at := sort.Search(len(kept), func(i int) bool { return before(n, kept[i]) })
		kept = slices.Insert(kept, at, n)
		kept = kept[:min(len(kept), most)]
	}
	return kept
}

func (ix *Index) why(tool int32, asked []term) []string {
	var list []string
	for _, t := range asked {
		if t.stem >= 0 && ix.has(tool, t.stem) {
			list = append(list, t.word)
			continue
		}
		for _, f := range slices.Concat(t.longer, t.verbs) {
			if ix.has(tool, f.stem) {
				list = append(list, t.word+" ("+f.text+")")
				break
			}
		}
	}
	return list
}

func (ix *Index) has(tool, stem int32) bool {
	_, found := slices.BinarySearchFunc(ix.postings[stem], tool, func(p posting, n int32) int { return cmp.Compare(p.tool, n) })
	return found
}
