package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	prompts "github.com/skerry-sandbox/skerry/internal/prompt"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/codeapi/wrapperpath"
	"github.com/skerry-sandbox/skerry/internal/tools/search"
)

// corpusSet is the first n tools of the corpus, as a thread has them.
func corpusSet(t *testing.T, n int) (set sandbox.ToolSet, servers []sandbox.ToolServer) {
	t.Helper()
	_, all, err := readCorpus()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		for i, tool := range s.Tools {
			if len(set.Tools) == n {
				break
			}
			if i == 0 {
				servers = append(servers, sandbox.ToolServer{Name: s.Server, Description: s.Description})
			}
			servers[len(servers)-1].ToolCount++
			set.Tools = append(set.Tools, sandbox.Tool{
				Server: s.Server, Name: tool.Name, Printed: strings.ReplaceAll(s.Server, "-", "_") + "__" + tool.Name, Description: tool.Description,
				Input: tool.InputSchema, Output: tool.OutputSchema, WrapperPath: wrapperpath.Of(s.Server, tool.Name),
			})
		}
	}
	return set, servers
}

func promptOf(t *testing.T, mode string, set sandbox.ToolSet, servers []sandbox.ToolServer) prompt {
	t.Helper()
	made, err := prompts.Build(prompts.Input{Mode: mode, Settings: sandbox.DefaultCodeSettings(), Tools: set, Servers: servers})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(made)
	if err != nil {
		t.Fatal(err)
	}
	var p prompt // as the bench reads it from the server's answer
	if err := json.Unmarshal(text, &p); err != nil {
		t.Fatal(err)
	}
	return p
}

// TestOneSearchCostsLess: the definitions of code mode and one full search have fewer tokens than the definitions of all
// tools, from ten tools on, whatever is asked for.
func TestOneSearchCostsLess(t *testing.T) {
	count, err := newCounter()
	if err != nil {
		t.Fatal(err)
	}
	var labelled []struct{ Query string }
	raw, err := os.ReadFile("../internal/tools/search/testdata/queries.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &labelled); err != nil {
		t.Fatal(err)
	}
	queries := []string{commonQuery}
	for _, q := range labelled {
		queries = append(queries, q.Query)
	}
	for _, n := range sizes {
		set, servers := corpusSet(t, n)
		direct := tokensOf(t, count, promptOf(t, sandbox.ModeDirect, set, servers).directOnly().definitions())
		code := tokensOf(t, count, promptOf(t, sandbox.ModeCode, set, servers).codeOnly().definitions())
		ix := search.New(set.Tools)
		dearest, of := 0, ""
		for _, query := range queries {
			q, err := search.Checked(sandbox.ToolQuery{Query: query, Detail: sandbox.DetailFull})
			if err != nil {
				t.Fatal(err)
			}
			answer, err := json.Marshal(ix.Answer(q, nil))
			if err != nil {
				t.Fatal(err)
			}
			if cost := tokensOf(t, count, string(answer)); cost > dearest {
				dearest, of = cost, query
			}
		}
		t.Logf("%d tools: direct %d, code %d and at most %d for %q", n, direct, code, dearest, of)
		if code+dearest >= direct {
			t.Errorf("%d tools: %d and a search of %d for %q are not less than %d", n, code, dearest, of, direct)
		}
	}
}

func tokensOf(t *testing.T, count counter, text string) int {
	t.Helper()
	n, err := count.text(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestEstimate: by which the server weighs definitions, is near what a vocabulary counts.
func TestEstimate(t *testing.T) {
	count, err := newCounter()
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range sizes {
		set, servers := corpusSet(t, n)
		counted := tokensOf(t, count, promptOf(t, sandbox.ModeDirect, set, servers).directOnly().definitions())
		more := float64(set.ShownTokens()-counted) / float64(counted)
		t.Logf("%d tools: %d tokens estimated, %d counted", n, set.ShownTokens(), counted)
		if more < -0.15 || more > 0.15 {
			t.Errorf("%d tools: the estimate is off by %.0f %%", n, 100*more)
		}
	}
}
