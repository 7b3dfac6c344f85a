package helm

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	driver "github.com/skerry-sandbox/skerry/internal/driver/kubernetes"
)

// value is a leaf of values.yaml.
type value struct{ path, fallback, comment string }

// leaves reads values.yaml: every leaf with the comment above it, which it has to have. A map with all of its
// keys documented has no row of its own.
func leaves(t *testing.T) []value {
	t.Helper()
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(read(t, chart+"/values.yaml")), &doc); err != nil {
		t.Fatal(err)
	}
	var all []value
	var walk func(prefix string, n *yaml.Node)
	walk = func(prefix string, n *yaml.Node) {
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, v := n.Content[i], n.Content[i+1]
			path := prefix + key.Value
			if v.Kind == yaml.MappingNode && v.Style&yaml.FlowStyle == 0 {
				walk(path+".", v)
				continue
			}
			var words []string
			for line := range strings.Lines(key.HeadComment) {
				if line = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "#")); line == "" {
					words = nil // a paragraph above is not about this value
				} else {
					words = append(words, line)
				}
			}
			if len(words) == 0 {
				t.Errorf("values.yaml: %s has no comment", path)
			}
			var plain any
			if err := v.Decode(&plain); err != nil {
				t.Fatal(err)
			}
			text, err := json.Marshal(plain)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, value{path, string(text), strings.Join(words, " ")})
		}
	}
	walk("", doc.Content[0])
	if len(all) < 60 {
		t.Fatalf("only %d values: the file was not read", len(all))
	}
	return all
}

// TestSchema: the schema knows every value of values.yaml, describes it by its comment, and knows no other.
func TestSchema(t *testing.T) {
	var schema map[string]any
	if err := json.Unmarshal([]byte(read(t, chart+"/values.schema.json")), &schema); err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, v := range leaves(t) {
		known[v.path] = true
		node := schema
		for part := range strings.SplitSeq(v.path, ".") {
			if node["additionalProperties"] != false {
				t.Errorf("values.schema.json: what holds %s takes other keys, too", v.path)
			}
			node, _ = at(node, "properties", part).(map[string]any)
			if node == nil {
				t.Fatalf("values.schema.json: no %s", v.path)
			}
		}
		node["description"] = v.comment
	}
	var walk func(prefix string, node map[string]any)
	walk = func(prefix string, node map[string]any) {
		properties, _ := node["properties"].(map[string]any)
		for name, p := range properties {
			path, inner := prefix+name, p.(map[string]any)
			switch {
			case known[path]:
			case inner["properties"] == nil:
				t.Errorf("values.schema.json: %s is not in values.yaml", path)
			default:
				walk(path+".", inner)
			}
		}
	}
	walk("", schema)
	text, err := json.MarshalIndent(schema, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	same(t, chart+"/values.schema.json", string(text)+"\n")
}

// TestReadme: the tables of the chart's README are those of values.yaml and of the roles.
func TestReadme(t *testing.T) {
	const path = chart + "/README.md"
	text := read(t, path)
	begin, end := "<!-- values: made by scripts/generate.sh -->\n", "<!-- end of values -->"
	before, rest, ok := strings.Cut(text, begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the table of values", path)
	}
	var b strings.Builder
	b.WriteString(before + begin + "| value | default | meaning |\n|---|---|---|\n")
	for _, v := range leaves(t) {
		fmt.Fprintf(&b, "| `%s` | `%s` | %s |\n", v.path, v.fallback, strings.ReplaceAll(v.comment, "|", `\|`))
	}
	b.WriteString(end + after)
	same(t, path, b.String())
}

// TestRights: the roles allow what the driver needs, and nothing else.
func TestRights(t *testing.T) {
	for name, all := range map[string]bool{"production": true, "trial": false} { // with claims of pools and volumes, and without
		got := map[string]bool{}
		for _, o := range objects(t, rendered(t, name)) {
			if o["kind"] != "Role" && o["kind"] != "ClusterRole" {
				continue
			}
			rules, _ := o["rules"].([]any)
			for i := range rules {
				for _, group := range at(rules, i, "apiGroups").([]any) {
					for _, resource := range at(rules, i, "resources").([]any) {
						for _, verb := range at(rules, i, "verbs").([]any) {
							got[fmt.Sprintf("%v %v/%v %v", o["kind"], group, resource, verb)] = true
						}
					}
				}
			}
		}
		want := map[string]bool{}
		for _, r := range driver.Rights() {
			role := "Role"
			if r.Cluster {
				role = "ClusterRole"
			}
			if all || !r.Claims && !r.Volumes {
				want[fmt.Sprintf("%s %s/%s %s", role, r.Group, r.Resource, r.Verb)] = true
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: the roles give %v, the driver needs %v", name, slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
		}
	}
}

// TestRoles: README.md has a row with a reason for each verb of each role, and no other row.
func TestRoles(t *testing.T) {
	var want []string
	for _, o := range objects(t, rendered(t, "production")) {
		if o["kind"] != "Role" && o["kind"] != "ClusterRole" {
			continue
		}
		rules, _ := o["rules"].([]any)
		for i := range rules {
			resources, _ := at(rules, i, "resources").([]any)
			verbs, _ := at(rules, i, "verbs").([]any)
			for _, r := range resources {
				for _, v := range verbs {
					if r == "*" || v == "*" {
						t.Errorf("%s: everything", o["kind"])
					}
					want = append(want, fmt.Sprintf("| `%s` | `%s` | `%s` |", o["kind"], r, v))
				}
			}
		}
	}
	_, table, _ := strings.Cut(read(t, chart+"/README.md"), "| role | resource | verb | why |\n|---|---|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	var rows []string
	for row := range strings.SplitSeq(table, "\n") {
		cells := strings.Split(row, " | ")
		if len(cells) != 4 || len(strings.Trim(cells[3], " |")) < 10 {
			t.Errorf("README.md: a row without a reason: %s", row)
			continue
		}
		rows = append(rows, strings.Join(cells[:3], " | ")+" |")
	}
	slices.Sort(want)
	slices.Sort(rows)
	if len(want) == 0 || !slices.Equal(rows, want) {
		t.Errorf("README.md has\n%s\nthe roles have\n%s", strings.Join(rows, "\n"), strings.Join(want, "\n"))
	}
}
