package metrics

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.yaml.in/yaml/v4"

	"github.com/skerry-sandbox/skerry/internal/e2e/docblock"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// described is a metric as the document or the code has it.
type described struct {
	kind   string
	labels string // sorted, with blanks between
}

var metricRow = regexp.MustCompile("(?m)^\\| `(skerry_[a-z_]+)` \\| (histogram|counter|gauge) \\|([^|]*)\\|([^|]*)\\| ([^|]{1,}) \\|$")

// documented reads docs/metrics.md.
func documented(t *testing.T, text string) map[string]described {
	t.Helper()
	found := map[string]described{}
	for _, m := range metricRow.FindAllStringSubmatch(text, -1) {
		labels := strings.Fields(strings.NewReplacer("`", "", ",", "").Replace(m[3]))
		slices.Sort(labels)
		if strings.HasSuffix(m[1], "_seconds") && strings.TrimSpace(m[4]) != "seconds" {
			t.Errorf("docs/metrics.md: the unit of %s is %q", m[1], m[4])
		}
		found[m[1]] = described{m[2], strings.Join(labels, " ")}
	}
	return found
}

// used sets every metric, so that it shows its kind and labels.
func used(t *testing.T) (*Metrics, map[string]described) {
	t.Helper()
	m := New("1.2.3")
	m.Watch(func() Levels { return Levels{Sinks: map[string]int{"syslog": 1}, Pools: []Pool{{Template: "base"}}} })
	s := Start{Driver: "oci", Runtime: "runc", Template: "base"}
	m.Started(s, 0, 0, 0)
	m.StartFailed(s, sandbox.NotFound)
	m.Exec("exec", sandbox.StatusExited, new(1), 0)
	m.Changed("sandbox_hibernate", "idle")
	m.Refused("full")
	m.ToolCall("bridge", "ok", 0)
	m.ToolResult("bridge", 1)
	m.Returned("bridge", 1)
	m.Prompt(sandbox.ModeCode)
	m.Limited("execs", "user")
	m.Kept(nil, 0, 1)
	m.Restored(nil, 0)
	m.Request("/api/threads/:thread/exec", "POST", 429, time.Millisecond)
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]described{}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "skerry_") {
			continue
		}
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		slices.Sort(labels)
		found[f.GetName()] = described{strings.ToLower(f.GetType().String()), strings.Join(labels, " ")}
	}
	return m, found
}

var descName = regexp.MustCompile(`fqName: "(skerry_[a-z_]+)"`)

// TestDocumented: docs/metrics.md has each metric with its type and labels, and none that there is not; its alerts ask for
// metrics and labels that there are, and so do its other queries.
func TestDocumented(t *testing.T) {
	raw, err := os.ReadFile("../../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	m, have := used(t)
	said := documented(t, string(raw))
	for name, d := range have {
		if said[name] != d {
			t.Errorf("docs/metrics.md says of %s %+v, it is %+v", name, said[name], d)
		}
	}
	for name := range said {
		if _, ok := have[name]; !ok {
			t.Errorf("docs/metrics.md has %s, which is not there", name)
		}
	}
	// This test knows all that is registered.
	descs := make(chan *prometheus.Desc, 1000)
	m.registry.Describe(descs)
	close(descs)
	for d := range descs {
		if n := descName.FindStringSubmatch(d.String()); n != nil && have[n[1]] == (described{}) {
			t.Errorf("%s is registered, and this test gives it no value", n[1])
		}
	}
	blocks := docblock.Marked(t)
	if len(blocks) != 2 {
		t.Fatalf("%d tested blocks", len(blocks))
	}
	alerts := blocks[1].Text
	var rules struct {
		Groups []struct {
			Rules []struct{ Alert, Expr, For string }
		}
	}
	if err := yaml.Unmarshal([]byte(alerts), &rules); err != nil || len(rules.Groups) != 1 || len(rules.Groups[0].Rules) < 5 {
		t.Errorf("alerts: %+v, %v", rules, err)
	}
	asked := regexp.MustCompile(`(skerry_[a-z_]+)(?:\{([a-z]+)[!=~]+)?`).FindAllStringSubmatch(blocks[0].Text+alerts, -1)
	if len(asked) < 10 {
		t.Errorf("only %d metrics in alerts", len(asked))
	}
	for _, a := range asked {
		d, ok := have[a[1]]
		if base, suffix := strings.CutSuffix(strings.TrimSuffix(a[1], "_bucket"), "_count"); !ok && (suffix || base != a[1]) {
			d, ok = have[base]
			ok = ok && d.kind == "histogram"
		}
		if !ok || a[2] != "" && !slices.Contains(strings.Fields(d.labels), a[2]) {
			t.Errorf("an alert asks for %s, which is not there", a[0])
		}
	}
}

// TestDocumentedFails: what differs is seen.
func TestDocumentedFails(t *testing.T) {
	got := documented(t, "| `skerry_x_total` | counter | `b`, `a` | calls | that |\n| `skerry_y` | gauge | | things | of |\n")
	if len(got) != 2 || got["skerry_x_total"] != (described{"counter", "a b"}) || got["skerry_y"] != (described{"gauge", ""}) {
		t.Errorf("%+v", got)
	}
}
