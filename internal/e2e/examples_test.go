package e2e

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write what the tests of -run hold: docs/api/examples.json, docs/compatibility.md, testdata")

// apiExample is a request of docs/api/examples.json with its answer: JSON, a text as a JSON string, or nothing.
type apiExample struct {
	Operation string          `json:"operation"`
	Path      string          `json:"path"`
	Body      json.RawMessage `json:"body,omitempty"`
	Status    int             `json:"status"`
	Answer    json.RawMessage `json:"answer,omitempty"`
}

// late are the operations that show what the server writes in the background, within seconds, with what it is to show:
// a signature, and the count of a sandbox.
var late = map[string]string{"verifyAudit": `"signed_at"`, "getUsage": `"sandbox_starts":1`, "getThread": `"measured_at"`, "listThreads": `"measured_at"`}

// TestExamples sends the examples of the API's reference to a server, in order. Each answer must be as shown, but for
// ids, hashes, times and numbers. Later requests name the id of an earlier answer.
func TestExamples(t *testing.T) {
	t.Parallel()
	const file = "../../docs/api/examples.json"
	text, err := os.ReadFile(file)
	must(t, err)
	var examples []apiExample
	must(t, json.Unmarshal(text, &examples))
	if len(examples) < 40 {
		t.Fatalf("%d examples", len(examples))
	}
	s := start(t, options{extensions: mcpServers(t, sharedFolder(t))})
	s.connect("connects")
	methods := operationMethods(t, s)
	known := map[string]string{} // what an example's answer says, to what this server said
	for i := range examples {
		e := &examples[i]
		rename := func(text string) string {
			for said, now := range known {
				text = strings.ReplaceAll(text, said, now)
			}
			return text
		}
		var body any
		if e.Body != nil {
			body = json.RawMessage(rename(string(e.Body)))
		}
		a := s.do(methods[e.Operation], rename(e.Path), body)
		if shows := late[e.Operation]; shows != "" {
			eventually(t, e.Operation+" does not show "+shows, func() bool {
				a = s.do(methods[e.Operation], rename(e.Path), body)
				return bytes.Contains(a.body, []byte(shows))
			})
		}
		got := a.body
		if !json.Valid(got) && len(got) > 0 {
			got, err = json.Marshal(string(got))
			must(t, err)
		}
		learn(known, e.Answer, got)
		switch {
		case *update:
			e.Path, e.Body = rename(e.Path), json.RawMessage(rename(string(e.Body)))
			e.Status, e.Answer = a.status, got
		case e.Status != a.status || likeness(e.Answer) != likeness(got):
			t.Errorf("%s %s: %d %s\nthe reference has %d %s", e.Operation, e.Path, a.status, a.body, e.Status, e.Answer)
		}
	}
	if *update {
		var out bytes.Buffer
		enc := json.NewEncoder(&out)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", " ")
		must(t, enc.Encode(examples))
		must(t, os.WriteFile(file, out.Bytes(), 0o644))
	}
}

func operationMethods(t *testing.T, s *server) map[string]string {
	t.Helper()
	var doc struct {
		Paths map[string]map[string]struct{ OperationID string }
	}
	s.do("GET", "/openapi.json", nil).into(t, &doc)
	methods := map[string]string{"error": "GET"}
	for _, verbs := range doc.Paths {
		for verb, op := range verbs {
			methods[op.OperationID] = strings.ToUpper(verb)
		}
	}
	return methods
}

// learn notes ids that are in the same place of both answers.
func learn(known map[string]string, shown, got json.RawMessage) {
	var a, b any
	if json.Unmarshal(shown, &a) != nil || json.Unmarshal(got, &b) != nil {
		return
	}
	x, _ := a.(map[string]any)
	y, _ := b.(map[string]any)
	for _, name := range []string{"exec_id", "context_id"} {
		said, _ := x[name].(string)
		now, _ := y[name].(string)
		if said != "" && now != "" {
			known[said] = now
		}
	}
}

var changing = regexp.MustCompile(`"[0-9a-f]+(-[0-9a-f]+){3}"|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{12,}|[0-9]+`)

// likeness is an answer without what differs from run to run.
func likeness(raw json.RawMessage) string {
	var v any
	if len(raw) == 0 || json.Unmarshal(raw, &v) != nil {
		return string(raw)
	}
	var b strings.Builder
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for _, name := range slices.Sorted(maps.Keys(v)) {
				b.WriteString(name + ":{")
				walk(v[name])
				b.WriteString("}")
			}
		case []any:
			for _, x := range v {
				b.WriteString("- ")
				walk(x)
			}
		case float64:
			b.WriteString("#")
		case string:
			b.WriteString(changing.ReplaceAllString(v, "#"))
		default:
			fmt.Fprint(&b, v)
		}
	}
	walk(v)
	return b.String()
}
