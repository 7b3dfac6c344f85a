package manifest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	packsv1 "github.com/skerry-sandbox/skerry/sdk/packs/v1"
)

// pack returns a good manifest, changed.
func pack(change func(*packsv1.PackManifest)) *packsv1.PackManifest {
	m := &packsv1.PackManifest{PackId: "crm", Version: "1", Tools: []*packsv1.ToolDefinition{{
		Name: "find", Description: "Finds a lead", InputSchemaJson: `{"type":"object","properties":{"name":{"type":"string"}}}`,
		OutputSchemaJson: `{"type":"object"}`, RequiredCapabilities: []string{"crm"}, Disclosure: "always", AnnotationsJson: `{"readOnlyHint":true}`,
	}}}
	change(m)
	return m
}

// TestManifest: a good manifest is in the hub's words, with the defaults that it left out.
func TestManifest(t *testing.T) {
	t.Parallel()
	m, err := Check(pack(func(*packsv1.PackManifest) {}), []string{"crm"})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"tools":[{"name":"find","description":"Finds a lead","inputSchema":{"type":"object","properties":{"name":{"type":"string"}}},"outputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}]}`
	if string(m.List) != want {
		t.Errorf("list %s", m.List)
	}
	if want := `{"concurrency":16,"tools":{"find":{"timeout":30000,"disclosure":"always","capabilities":["crm"]}}}`; string(m.Config) != want {
		t.Errorf("config %s", m.Config)
	}
	again, err := Check(pack(func(*packsv1.PackManifest) {}), nil)
	if err != nil || !m.Same(again) {
		t.Errorf("%v: the same manifest is another one", err)
	}
	other, err := Check(pack(func(p *packsv1.PackManifest) { p.Tools[0].TimeoutSeconds = 31 }), nil)
	if err != nil || m.Same(other) {
		t.Errorf("%v: another timeout is the same manifest", err)
	}
}

// TestBrokenManifests: each is refused with its tool and the place.
func TestBrokenManifests(t *testing.T) {
	t.Parallel()
	tool := func(change func(*packsv1.ToolDefinition)) func(*packsv1.PackManifest) {
		return func(m *packsv1.PackManifest) { change(m.Tools[0]) }
	}
	input := func(text string) func(*packsv1.PackManifest) {
		return tool(func(d *packsv1.ToolDefinition) { d.InputSchemaJson = text })
	}
	for _, c := range []struct {
		name   string
		change func(*packsv1.PackManifest)
		want   string
	}{
		{"id", func(m *packsv1.PackManifest) { m.PackId = "Crm" }, "pack_id"},
		{"id with two dashes", func(m *packsv1.PackManifest) { m.PackId = "a--b" }, "pack_id"},
		{"id of plugins", func(m *packsv1.PackManifest) { m.PackId = "plugin-a" }, "belong to plugins"},
		{"version", func(m *packsv1.PackManifest) { m.Version = "1\n2" }, "version"},
		{"parallel", func(m *packsv1.PackManifest) { m.MaxParallelCalls = 1001 }, "max_parallel_calls"},
		{"10,000 tools", func(m *packsv1.PackManifest) {
			for i := range 10_000 {
				m.Tools = append(m.Tools, &packsv1.ToolDefinition{Name: fmt.Sprint("t", i)})
			}
		}, "at most 1000, and this one has 10001"},
		{"name", tool(func(d *packsv1.ToolDefinition) { d.Name = "a b" }), `tools[0] "a b": name`},
		{"same name", func(m *packsv1.PackManifest) { m.Tools = append(m.Tools, m.Tools[0]) }, `tools[1] "find": name: tools[0] has it`},
		{"1 MiB of description", tool(func(d *packsv1.ToolDefinition) { d.Description = strings.Repeat("x", 1<<20) }), `tools[0] "find": description: has 1048576 bytes`},
		{"timeout", tool(func(d *packsv1.ToolDefinition) { d.TimeoutSeconds = 3601 }), "timeout_seconds"},
		{"disclosure", tool(func(d *packsv1.ToolDefinition) { d.Disclosure = "later" }), "disclosure"},
		{"capability", tool(func(d *packsv1.ToolDefinition) { d.RequiredCapabilities = []string{"a b"} }), "required_capabilities"},
		{"capability of another", tool(func(d *packsv1.ToolDefinition) { d.RequiredCapabilities = []string{"root"} }), `does not let its tools require "root"`},
		{"annotations", tool(func(d *packsv1.ToolDefinition) { d.AnnotationsJson = "[]" }), "annotations_json"},
		{"no JSON", input("{"), "input_schema_json: is not a JSON object"},
		{"no object", input(`{"type":"string"}`), "input_schema_json: /type"},
		{"wrong type", input(`{"type":"object","properties":{"to":{"type":"strin"}}}`), "/properties/to/type"},
		{"reference outside", input(`{"type":"object","properties":{"a":{"$ref":"https://example.com/x.json"}}}`), "references out of the schema"},
		{"reference to a file", input(`{"type":"object","properties":{"a":{"$ref":"file:///etc/passwd"}}}`), "references out of the schema"},
		{"reference to nothing", input(`{"type":"object","properties":{"a":{"$ref":"#/$defs/b"}}}`), "/$defs/b"},
		{"deep", input(`{"type":"object","x":` + strings.Repeat(`{"a":`, 2000) + "1" + strings.Repeat("}", 2000) + "}"), "nested too deeply"},
		{"output", tool(func(d *packsv1.ToolDefinition) { d.OutputSchemaJson = `{"type":5}` }), "output_schema_json"},
		{"schemas of 9 MiB", func(m *packsv1.PackManifest) {
			for i := range 40 {
				m.Tools = append(m.Tools, &packsv1.ToolDefinition{Name: fmt.Sprint("t", i), InputSchemaJson: `{"type":"object","x":"` + strings.Repeat("x", 250<<10) + `"}`})
			}
		}, "more than 8388608 bytes"},
	} {
		_, err := Check(pack(c.change), []string{"crm"})
		if sandbox.KindOf(err) != sandbox.Invalid || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %.300v, want %q", c.name, err, c.want)
		}
	}
	if _, err := Check(nil, nil); sandbox.KindOf(err) != sandbox.Invalid {
		t.Errorf("none: %v", err)
	}
	// A schema that refers to itself is a tree, and no mistake.
	if _, err := Check(pack(input(`{"type":"object","properties":{"child":{"$ref":"#"}}}`)), nil); err != nil {
		t.Errorf("a cycle: %v", err)
	}
}

// FuzzCheck: whatever a tool says, what comes out is JSON within the limits.
func FuzzCheck(f *testing.F) {
	f.Add("find", "Finds", `{"type":"object"}`, `{}`, "crm", int32(0), "always")
	f.Add("x", "\xff", `{"$ref":"#/a"}`, `[`, "", int32(-1), "")
	f.Fuzz(func(t *testing.T, name, description, input, annotations, capability string, timeout int32, disclosure string) {
		m, err := Check(&packsv1.PackManifest{PackId: "p", Tools: []*packsv1.ToolDefinition{{
			Name: name, Description: description, InputSchemaJson: input, OutputSchemaJson: input, AnnotationsJson: annotations,
			RequiredCapabilities: []string{capability}, TimeoutSeconds: timeout, Disclosure: disclosure,
		}}}, nil)
		if err == nil && (!json.Valid(m.List) || !json.Valid(m.Config)) {
			t.Errorf("%s %s", m.List, m.Config)
		}
	})
}
