package search

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

func anyTool(sandbox.Tool) bool { return true }

// full is a checked query at detail full.
func full(t testing.TB, query string, limit int) sandbox.ToolQuery {
	t.Helper()
	q, err := Checked(sandbox.ToolQuery{Query: query, Detail: sandbox.DetailFull, Limit: limit})
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// TestRecallOfFullAnswers: an answer that describes few tools names the others, so that it misses none of those that an
// answer with 15 descriptions has. The few are most of those that were asked for.
func TestRecallOfFullAnswers(t *testing.T) {
	tools := npmTools(t)
	for i := range tools {
		tools[i].Printed = tools[i].Server + ":" + tools[i].Name
	}
	var queries []judged
	readJSON(t, "testdata/queries.json", &queries)
	ix := New(tools)
	described, recall, first := 0, 0.0, 0.0
	for _, q := range queries {
		hits, _ := ix.Find(q.Query, sandbox.MaxToolsFound, nil)
		var all, few []string
		for _, h := range hits {
			all = append(all, tools[h.Tool].Printed)
		}
		res := ix.Answer(full(t, q.Query, 0), nil)
		for _, f := range res.Tools {
			few = append(few, f.Name)
		}
		if got := slices.Concat(few, res.Also); !slices.Equal(got, all) {
			t.Errorf("%q: %q, want %q", q.Query, got, all)
		}
		described += len(few)
		if len(few) > fewTools || res.Showing != len(few) || len(few) == 0 && len(all) > 0 {
			t.Errorf("%q: %d described", q.Query, len(few))
		}
		missed := true
		for _, want := range q.Tools {
			if slices.Contains(few, want) {
				recall += 1 / float64(len(q.Tools)) / float64(len(queries))
				missed = false
			}
		}
		if !missed {
			first += 1 / float64(len(queries))
		}
	}
	t.Logf("%d queries: %.2f tools described each, recall %.3f, one that answers in %.3f", len(queries), float64(described)/float64(len(queries)), recall, first)
	if recall < 0.65 {
		t.Errorf("the recall of what is described is %.3f, below 0.65", recall)
	}
}

// TestFew: without a limit few tools are described, those near the best; with a limit as many as it says.
func TestFew(t *testing.T) {
	tools := []sandbox.Tool{
		{Server: "a", Name: "send_mail", Printed: "a__send_mail", Description: "Send a mail.", Input: json.RawMessage(`{"type":"object"}`), Output: json.RawMessage(`{"type":"array"}`)},
		{Server: "a", Name: "read_log", Printed: "a__read_log", Description: "Reads a log, and says who may send it."},
	}
	for _, name := range []string{"send_letter", "send_card", "send_memo", "send_note"} {
		tools = append(tools, sandbox.Tool{Server: "a", Name: name, Printed: "a__" + name, Description: "Send it."})
	}
	ix := New(tools)
	near := ix.Answer(full(t, "send a mail", 0), anyTool)
	if len(near.Tools) != 1 || near.Tools[0].ShortName != "send_mail" || len(near.Also) != 5 || near.MatchCount != 6 || near.Showing != 1 || near.Tools[0].Output != nil || len(near.Tools[0].Why) != 2 {
		t.Errorf("%+v", near)
	}
	alike := New(slices.Concat(tools[2:], []sandbox.Tool{{Server: "a", Name: "send_item", Printed: "a__send_item", Description: "Send it."}}))
	if same := alike.Answer(full(t, "send", 0), anyTool); len(same.Tools) != 4 || len(same.Also) != 1 {
		t.Errorf("%+v", same)
	}
	if some := ix.Answer(full(t, "send", 5), anyTool); len(some.Tools) != 5 || some.Also != nil || some.MatchCount != 6 {
		t.Errorf("%+v", some)
	}
	q := full(t, "send a mail", 1)
	q.OutputSchema = true
	if one := ix.Answer(q, anyTool); len(one.Tools) != 1 || string(one.Tools[0].Output) != `{"type":"array"}` {
		t.Errorf("%+v", one)
	}
	if all := List(tools, full(t, "", 0), func(t sandbox.Tool) bool { return t.Name != "read_log" }); len(all.Tools) != 4 || all.MatchCount != 5 || len(all.Also) != 1 {
		t.Errorf("%+v", all)
	}
	q.Detail, q.Limit = sandbox.DetailDesc, 2
	if lines := ix.Answer(q, anyTool); len(lines.Tools) != 2 || lines.Tools[0].Parameters != nil || lines.Also != nil || lines.Tools[0].Why != nil {
		t.Errorf("%+v", lines)
	}
}

// TestHugeDefinitions: the best is described whatever its size, and others as long as all of them are within the bound.
func TestHugeDefinitions(t *testing.T) {
	huge := json.RawMessage(`{"type":"object","x":"` + strings.Repeat("x", fewBytes/2) + `"}`)
	var tools []sandbox.Tool
	for _, name := range []string{"send_a", "send_b", "send_c", "send_d"} {
		tools = append(tools, sandbox.Tool{Server: "a", Name: name, Printed: "a__" + name, Input: huge})
	}
	if res := New(tools).Answer(full(t, "send", 0), anyTool); len(res.Tools) != 1 || len(res.Also) != 3 {
		t.Errorf("%d described, also %q", len(res.Tools), res.Also)
	}
}

func TestCut(t *testing.T) {
	long := strings.Repeat("word ", 100)
	if s := cut(long, 200); utf8.RuneCountInString(s) > 200 || !strings.HasSuffix(s, "word…") {
		t.Errorf("%q", s)
	}
	if s := cut(strings.Repeat("ä", 300), 200); utf8.RuneCountInString(s) != 200 {
		t.Errorf("%d", utf8.RuneCountInString(s))
	}
	for text, want := range map[string]string{
		"short":                             "short",
		"One two three. Four five. Six.":    "One two three. …",
		"One two three 1.5 four five. Six.": "One two three 1.5…",
		"One two three\nfour five. Sixxxxx": "One two three …",
		strings.Repeat("é", 20):             strings.Repeat("é", 20),
	} {
		if got := cut(text, 20); got != want || utf8.RuneCountInString(got) > 20 {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// TestCutSchema: texts for people become short, and nothing else changes: not a parameter that is called description, and
// no value.
func TestCutSchema(t *testing.T) {
	long := strings.Repeat("word ", 60)
	short := cut(long, maxParameter)
	for schema, want := range map[string]string{
		`{"$schema":"http://x","type":"object"}`:                                                                               `{"type":"object"}`,
		`{"type":"object","$schema":"http://x"}`:                                                                               `{"type":"object"}`,
		`{"b":1,"properties":{"description":{"type":"string","description":"LONG"},"$schema":{}},"a":1}`:                       `{"b":1,"properties":{"description":{"type":"string","description":"SHORT"},"$schema":{}},"a":1}`,
		`{"anyOf":[{"description":"LONG"}],"items":{"description":"LONG"},"$defs":{"x":{"not":{"description":"LONG"}}}}`:       `{"anyOf":[{"description":"SHORT"}],"items":{"description":"SHORT"},"$defs":{"x":{"not":{"description":"SHORT"}}}}`,
		`{"default":{"description":"LONG"},"enum":["LONG"],"const":"LONG","examples":[{"description":"LONG"}],"title":"LONG"}`: ``,
		`{"description":"\u00e9 \/ short"}`:                                                                                    ``,
		`true`:                                                                                                                 ``,
		`{`:                                                                                                                    ``,
		``:                                                                                                                     ``,
	} {
		in := strings.ReplaceAll(schema, "LONG", long)
		out := strings.ReplaceAll(strings.ReplaceAll(want, "SHORT", short), "LONG", long)
		if want == "" {
			out = in
		}
		if got := string(cutSchema(json.RawMessage(in))); got != out {
			t.Errorf("%s: %s, want %s", in, got, out)
		}
	}
	// What is deeper than people write is left alone.
	deep := json.RawMessage(strings.Repeat(`{"not":`, 9000) + `{"description":"` + long + `"}` + strings.Repeat("}", 9000))
	if got := cutSchema(deep); string(got) != string(deep) {
		t.Error("a deep schema is changed")
	}
}

// TestCutSchemasOfRealTools: they are still the same schemas.
func TestCutSchemasOfRealTools(t *testing.T) {
	before, after := 0, 0
	for _, tool := range npmTools(t) {
		got := cutSchema(tool.Input)
		var was, is map[string]any
		if json.Unmarshal(tool.Input, &was) != nil || json.Unmarshal(got, &is) != nil {
			t.Fatalf("%s: %s", tool.Name, got)
		}
		delete(was, "$schema")
		if left, kept := withoutTexts(was), withoutTexts(is); left != kept {
			t.Errorf("%s: %s, want %s", tool.Name, kept, left)
		}
		before, after = before+len(tool.Input), after+len(got)
	}
	t.Logf("%d bytes of schemas become %d", before, after)
}

// withoutTexts is a schema with every text that is called description left empty.
func withoutTexts(v any) string {
	var empty func(v any)
	empty = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for name, part := range v {
				if _, text := part.(string); name == "description" && text {
					v[name] = ""
				}
				empty(part)
			}
		case []any:
			for _, part := range v {
				empty(part)
			}
		}
	}
	empty(v)
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func BenchmarkAnswer(b *testing.B) {
	ix := New(many(b, 500))
	q := full(b, usual, 0)
	b.ReportAllocs()
	for b.Loop() {
		ix.Answer(q, anyTool)
	}
}
