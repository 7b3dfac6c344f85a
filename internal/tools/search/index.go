package search

import (
	"math"
	"slices"
	"sync"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// The parts of a tool that are searched.
const (
	fieldName    = iota
	fieldKeyword // what the configuration adds
	fieldServer
	fieldFirst // the first sentence of the description: what the tool does
	fieldRest  // the rest: how it is used
	fieldParameter
	fieldParameterText
	fields
)

// The ranking's parameters. They were set on 66 queries of an agent over the 527 tools of LiveMCPBench, and are round
// numbers within a wide plateau. The agent's queries of the other half of the tasks, 62, had no part in it, nor had our
// own 64 over 266 tools of npm servers: testdata/README.md has what they come to.
const (
	k1 = 0.9 // how soon more of the same word adds nothing
	b  = 0.3 // how much a long text counts against a word

	nameBoost   = 0.2 // for a tool all of whose name is in the query
	serverBoost = 0.1 // of the best score of its server, for a tool that matches itself
	prefixScore = 0.4 // of a word of which the other is the beginning
	verbScore   = 0.3 // of a verb for the same kind of action
)

// weights are what a word in each field counts.
var weights = [fields]float64{fieldName: 2, fieldKeyword: 2, fieldServer: 3, fieldFirst: 1, fieldRest: 0.5, fieldParameter: 0.25, fieldParameterText: 0.25}

// posting is a tool that has a word.
type posting struct {
	tool  int32
	score float32 // what the word adds to the tool
	name  float32 // the share of the tool's name that the word is
}

// Index finds the tools of one set. It does not change, and may be used by many at once.
type Index struct {
	tools    []sandbox.Tool
	servers  []int32 // number of each tool's server
	nServers int
	terms    map[string]int32 // number of each stem
	sorted   []string         // all stems, in order
	postings [][]posting      // by number of the stem, in the order of the tools
	spare    sync.Pool        // *scores of searches that are over
}

// New indexes a set of tools: what a search answers are numbers within it. The tools are not copied and
// must not change. Ten thousand take about a second.
func New(tools []sandbox.Tool) *Index {
	ix := &Index{tools: tools, servers: make([]int32, len(tools)), terms: map[string]int32{}}
	c := counter{ix: ix, stems: map[string]string{}, lengths: make([][fields]float64, len(tools))}
	servers := map[string]int32{}
	for i, t := range tools {
		n, known := servers[t.Server]
		if !known {
			n = int32(len(servers))
			servers[t.Server] = n
		}
		ix.servers[i] = n
		c.tool(i, t)
	}
	ix.nServers = len(servers)
	c.finish()
	ix.sorted = make([]string, 0, len(ix.terms))
	for w := range ix.terms {
		ix.sorted = append(ix.sorted, w)
	}
	slices.Sort(ix.sorted)
	return ix
}

// occurrence is how often a tool has a word, by field.
type occurrence struct {
	tool   int32
	counts [fields]float64
}

// counter counts the words of all tools.
type counter struct {
	ix      *Index
	stems   map[string]string // of words that were met before; stemming is what an index costs
	lengths [][fields]float64
	sum     [fields]float64
	found   [][]occurrence // by number of the stem
}

func (c *counter) tool(i int, t sandbox.Tool) {
	first, rest := sentence(t.Description)
	c.add(i, fieldName, t.Name)
	c.add(i, fieldServer, t.Server)
	c.add(i, fieldFirst, first)
	c.add(i, fieldFirst, t.Summary)
	c.add(i, fieldRest, rest)
	for _, k := range t.Keywords {
		c.add(i, fieldKeyword, k)
	}
	names, texts := parameters(t.Input)
	for _, name := range names {
		c.add(i, fieldParameter, name)
	}
	for _, text := range texts {
		c.add(i, fieldParameterText, text)
	}
}

func (c *counter) add(tool, field int, text string) {
	for _, w := range stems(text, c.stem) {
		n, known := c.ix.terms[w]
		if !known {
			n = int32(len(c.found))
			c.ix.terms[w] = n
			c.found = append(c.found, nil)
		}
		list := c.found[n]
		if len(list) == 0 || list[len(list)-1].tool != int32(tool) {
			list = append(list, occurrence{tool: int32(tool)})
			c.found[n] = list
		}
		list[len(list)-1].counts[field]++
		c.lengths[tool][field]++
		c.sum[field]++
	}
}

func (c *counter) stem(word string) string {
	s, known := c.stems[word]
	if !known {
		s = stem(word)
		c.stems[word] = s
	}
	return s
}

// finish computes what each word adds to each tool.
func (c *counter) finish() {
	all := float64(len(c.ix.tools))
	c.ix.postings = make([][]posting, len(c.found))
	for n, list := range c.found {
		have := float64(len(list))
		rarity := math.Log(1 + (all-have+0.5)/(have+0.5))
		postings := make([]posting, len(list))
		for i, o := range list {
			var weight float64
			for f, count := range o.counts {
				if count > 0 {
					mean := c.sum[f] / all
					weight += weights[f] * count / (1 - b + b*c.lengths[o.tool][f]/mean)
				}
			}
			postings[i] = posting{tool: o.tool, score: float32(rarity * weight * (k1 + 1) / (weight + k1))}
			if count := o.counts[fieldName]; count > 0 {
				postings[i].name = float32(count / c.lengths[o.tool][fieldName])
			}
		}
		c.ix.postings[n] = postings
	}
}
