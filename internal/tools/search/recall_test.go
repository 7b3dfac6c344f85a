package search

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// judged is a query with the tools that answer it, as server:name.
type judged struct {
	Query string
	Tools []string
}

func readJSON(t testing.TB, path string, to any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, to); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// recall returns the mean share of each query's tools among the first 1, 5 and 15.
func recall(t testing.TB, tools []sandbox.Tool, queries []judged) (at1, at5, at15 float64) {
	t.Helper()
	ix := New(tools)
	for _, q := range queries {
		rank := map[string]int{}
		hits, _ := ix.Find(q.Query, 15, nil)
		for i, h := range hits {
			rank[tools[h.Tool].Server+":"+tools[h.Tool].Name] = i + 1
		}
		each := 1 / float64(len(q.Tools)) / float64(len(queries))
		missed := true
		for _, name := range q.Tools {
			r := rank[name]
			if r == 1 {
				at1 += each
			}
			if r >= 1 && r <= 5 {
				at5 += each
				missed = false
			}
			if r >= 1 {
				at15 += each
			}
		}
		if missed {
			t.Logf("not in the first five: %q (%v)", q.Query, q.Tools)
		}
	}
	t.Logf("%d queries, %d tools: recall@1 %.3f, recall@5 %.3f, recall@15 %.3f", len(queries), len(tools), at1, at5, at15)
	return at1, at5, at15
}

// TestRecall measures the search on queries and tools that others wrote. The set's own authors
// reach a recall@5 of 0.68 with BM25.
func TestRecall(t *testing.T) {
	dir := "../../../testdata/tool-search"
	if _, err := os.Stat(dir); err != nil {
		t.Fatal("the test data is not there: ", err)
	}
	var corpus struct {
		Tools []struct{ Server, Tool, Description string }
	}
	var golden struct {
		Queries []struct {
			Query  string
			Labels []struct {
				ToolID string `json:"tool_id"`
			}
		}
	}
	readJSON(t, filepath.Join(dir, "corpus_v1.tools.json"), &corpus)
	readJSON(t, filepath.Join(dir, "retrieval_golden_v1.json"), &golden)
	var tools []sandbox.Tool
	for _, c := range corpus.Tools {
		tools = append(tools, sandbox.Tool{Server: c.Server, Name: c.Tool, Description: c.Description})
	}
	var queries []judged
	for _, q := range golden.Queries {
		j := judged{Query: q.Query}
		for _, l := range q.Labels {
			j.Tools = append(j.Tools, l.ToolID)
		}
		queries = append(queries, j)
	}
	if _, at5, _ := recall(t, tools, queries); at5 < 0.75 {
		t.Errorf("recall@5 is %.3f, below 0.75", at5)
	}
}

func npmTools(t testing.TB) []sandbox.Tool {
	t.Helper()
	var tools []sandbox.Tool
	readJSON(t, "testdata/npm-servers.json", &tools)
	if len(tools) < 200 {
		t.Fatalf("%d tools", len(tools))
	}
	return tools
}

// TestRecallOfOwn measures it on our own queries over real tools, many of them near twins.
func TestRecallOfOwn(t *testing.T) {
	tools := npmTools(t)
	var queries []judged
	readJSON(t, "testdata/queries.json", &queries)
	known := map[string]bool{}
	for _, tool := range tools {
		known[tool.Server+":"+tool.Name] = true
	}
	for _, q := range queries {
		for _, name := range q.Tools {
			if !known[name] {
				t.Fatalf("%q asks for %s, which is not there", q.Query, name)
			}
		}
	}
	if _, at5, _ := recall(t, tools, queries); at5 < 0.65 {
		t.Errorf("recall@5 is %.3f, below 0.65", at5)
	}
}
