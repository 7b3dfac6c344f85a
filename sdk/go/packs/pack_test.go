package packs_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/e2e/docblock"
	"github.com/skerry-sandbox/skerry/sdk/go/packs"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestDocs: the program of the page is that of the example, which compiles.
func TestDocs(t *testing.T) {
	t.Parallel()
	example, err := os.ReadFile("example_test.go")
	must(t, err)
	for _, b := range docblock.Marked(t) {
		if !strings.Contains(string(example), "\t"+strings.ReplaceAll(strings.TrimSpace(b.Text), "\n", "\n\t")) {
			t.Errorf("%s is another program than that of example_test.go", b)
		}
	}
}

type query struct {
	Name  string `json:"name" jsonschema:"whom to look for"`
	Limit int    `json:"limit,omitempty"`
}

type found struct {
	Names []string `json:"names"`
}

// TestSchemas: schemas come from the types, and properties of a tool are in the manifest.
func TestSchemas(t *testing.T) {
	t.Parallel()
	p := packs.New("crm", "1")
	must(t, packs.Tool(p, "find", "Finds", func(_ context.Context, q query) (found, error) { return found{[]string{q.Name}}, nil },
		packs.Requires("crm", "web"), packs.Timeout(90*time.Second), packs.Disclosure("always"), packs.Annotations(map[string]any{"readOnlyHint": true})))
	d := p.Manifest().GetTools()[0]
	in, out := d.GetInputSchemaJson(), d.GetOutputSchemaJson()
	if !strings.Contains(in, `"required":["name"]`) || !strings.Contains(in, "whom to look for") || !strings.Contains(out, `"names"`) {
		t.Errorf("%s\n%s", in, out)
	}
	if d.GetTimeoutSeconds() != 90 || d.GetDisclosure() != "always" || d.GetAnnotationsJson() != `{"readOnlyHint":true}` || strings.Join(d.GetRequiredCapabilities(), ",") != "crm,web" {
		t.Errorf("%+v", d)
	}
	if err := packs.Tool(p, "find", "", func(context.Context, query) (string, error) { return "", nil }); err == nil {
		t.Error("two tools have one name")
	}
	if err := packs.Tool(p, "chan", "", func(context.Context, chan int) (string, error) { return "", nil }); err == nil {
		t.Error("a channel has a schema")
	}
}

// TestFile: a tool returns a file beside structured content, whose schema is in the manifest.
func TestFile(t *testing.T) {
	t.Parallel()
	p := packs.New("crm", "1")
	must(t, packs.Tool(p, "dump", "", func(context.Context, struct{}) (*packs.Result, error) {
		block, path := packs.File("a.csv", "text/csv", []byte("1\n"))
		return &packs.Result{Content: []map[string]any{block}, Structured: map[string]any{"names": []string{path}}}, nil
	}, packs.Output[found]()))
	if out := p.Manifest().GetTools()[0].GetOutputSchemaJson(); !strings.Contains(out, `"names"`) {
		t.Error(out)
	}
	r, err := p.Call(t.Context(), "dump", struct{}{})
	must(t, err)
	if resource, _ := r.Content[0]["resource"].(map[string]any); resource["uri"] != "file:///mnt/user-data/workspace/tool-results/a.csv" || resource["blob"] != "MQo=" {
		t.Errorf("%+v", r)
	}
	if err := packs.Tool(p, "bad", "", func(context.Context, struct{}) (*packs.Result, error) { return nil, nil }, packs.Output[chan int]()); err == nil {
		t.Error("a channel has a schema")
	}
}

// TestCall: a pack runs without a server, with the checks that a server makes.
func TestCall(t *testing.T) {
	t.Parallel()
	p := packs.New("crm", "1")
	must(t, packs.Tool(p, "find", "", func(_ context.Context, q query) (found, error) {
		if q.Name == "panic" {
			panic("x")
		}
		if q.Name == "" {
			return found{}, errors.New("whom?")
		}
		return found{[]string{q.Name}}, nil
	}))
	r, err := p.Call(t.Context(), "find", query{Name: "Ada"})
	if err != nil || r.IsError || r.Text() != `{"names":["Ada"]}` || r.Structured == nil {
		t.Errorf("%v %+v", err, r)
	}
	if r, err = p.Call(t.Context(), "find", query{}); err != nil || !r.IsError || r.Text() != "whom?" {
		t.Errorf("%v %+v", err, r)
	}
	if r, err = p.Call(t.Context(), "find", query{Name: "panic"}); err != nil || !r.IsError {
		t.Errorf("%v %+v", err, r)
	}
	if _, err = p.Call(t.Context(), "find", map[string]any{"name": 5}); err == nil {
		t.Error("wrong arguments are taken")
	}
	p.Remove("find")
	if _, err = p.Call(t.Context(), "find", query{}); err == nil {
		t.Error("a tool that was removed is there")
	}
}
