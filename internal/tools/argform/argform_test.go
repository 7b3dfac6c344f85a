package argform

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func ask(t *testing.T, schema, preset, input string) (got, shown string, err error) {
	t.Helper()
	lines := NewLines(strings.NewReader(input))
	defer lines.Close()
	var out bytes.Buffer
	raw, err := Ask(context.Background(), json.RawMessage(schema), json.RawMessage(preset), lines, &out)
	return string(raw), out.String(), err
}

// TestAsk: what is answered becomes the arguments, whatever the type.
func TestAsk(t *testing.T) {
	for name, c := range map[string]struct{ schema, preset, input, want string }{
		"scalars":           {`{"properties":{"a":{"type":"string"},"b":{"type":"integer"},"c":{"type":"number"},"d":{"type":"boolean"}},"required":["a","b","c","d"]}`, "", "x y\n7\n1.5\nno\n", `{"a":"x y","b":7,"c":1.5,"d":false}`},
		"a text of digits":  {`{"properties":{"a":{"type":"string"}},"required":["a"]}`, "", "123\n", `{"a":"123"}`},
		"a quoted text":     {`{"properties":{"a":{"type":"string"}},"required":["a"]}`, "", `"two\nlines"` + "\n", `{"a":"two\nlines"}`},
		"an empty text":     {`{"properties":{"a":{"type":"string"}},"required":["a"]}`, "", "\n\"\"\n", `{"a":""}`},
		"required first":    {`{"properties":{"late":{"type":"string"},"a":{"type":"string"}},"required":["a"]}`, "", "1\n2\n", `{"a":"1","late":"2"}`},
		"defaults":          {`{"properties":{"a":{"type":"integer","default":5},"b":{"type":"string"}}}`, "", "\n\n", `{"a":5}`},
		"left out at end":   {`{"properties":{"a":{"type":"integer"},"b":{"type":"object","properties":{"x":{}}},"c":{"type":"array"}},"required":["a"]}`, "", "3", `{"a":3}`},
		"enum by text":      {`{"properties":{"a":{"enum":["red","green"]}},"required":["a"]}`, "", "green\n", `{"a":"green"}`},
		"enum by number":    {`{"properties":{"a":{"enum":["red","green"]}},"required":["a"]}`, "", "7\n1\n", `{"a":"red"}`},
		"enum of numbers":   {`{"properties":{"a":{"enum":[2,1]}},"required":["a"]}`, "", "1\n", `{"a":1}`},
		"asked again":       {`{"properties":{"a":{"type":"integer","minimum":1,"maximum":9}},"required":["a"]}`, "", "\nx\n1.5\n0\n10\n9\n", `{"a":9}`},
		"bounds of a text":  {`{"properties":{"a":{"type":"string","minLength":2,"maxLength":3,"pattern":"^a"}},"required":["a"]}`, "", "a\naaaa\nbb\nab\n", `{"a":"ab"}`},
		"list by items":     {`{"properties":{"a":{"type":"array","items":{"type":"string"}}},"required":["a"]}`, "", "x\n2\n\n", `{"a":["x","2"]}`},
		"list as JSON":      {`{"properties":{"a":{"type":"array","items":{"type":"integer"}}},"required":["a"]}`, "", "[1, 2]\n", `{"a":[1,2]}`},
		"list too short":    {`{"properties":{"a":{"type":"array","minItems":2}},"required":["a"]}`, "", "1\n\n2\n\n", `{"a":[1,2]}`},
		"object by fields":  {`{"properties":{"a":{"type":"object","properties":{"x":{"type":"string"},"y":{"type":"integer"}},"required":["x"]}},"required":["a"]}`, "", "\nv\n4\n", `{"a":{"x":"v","y":4}}`},
		"object as JSON":    {`{"properties":{"a":{"type":"object","properties":{"x":{}}}},"required":["a"]}`, "", `{"x": [1]}` + "\n", `{"a":{"x":[1]}}`},
		"object left out":   {`{"properties":{"a":{"type":"object","properties":{"x":{}}},"b":{"type":"string"}}}`, "", "\nz\n", `{"b":"z"}`},
		"list of objects":   {`{"properties":{"a":{"type":"array","items":{"type":"object","properties":{"x":{"type":"string"}},"required":["x"]}}},"required":["a"]}`, "", "y\none\ny\ntwo\n\n", `{"a":[{"x":"one"},{"x":"two"}]}`},
		"reference":         {`{"$defs":{"c":{"enum":["p","q"]}},"properties":{"a":{"$ref":"#/$defs/c"}},"required":["a"]}`, "", "2\n", `{"a":"q"}`},
		"nullable":          {`{"properties":{"a":{"anyOf":[{"type":"integer"},{"type":"null"}]}},"required":["a"]}`, "", "x\nnull\n", `{"a":null}`},
		"two types":         {`{"properties":{"a":{"type":["string","integer"]}},"required":["a"]}`, "", "5\n", `{"a":5}`},
		"anything":          {`{"properties":{"a":{},"b":true},"required":["a","b"]}`, "", "{\"x\":1}\nfree text\n", `{"a":{"x":1},"b":"free text"}`},
		"constant":          {`{"properties":{"a":{"const":"only"},"b":{"type":"string"}},"required":["a","b"]}`, "", "x\n", `{"a":"only","b":"x"}`},
		"preset":            {`{"properties":{"a":{"type":"string"},"b":{"type":"string"}},"required":["a","b"]}`, `{"b":"given"}`, "x\n", `{"b":"given","a":"x"}`},
		"no fields":         {`{"type":"object"}`, "", "", `{}`},
		"recursive":         {`{"$defs":{"n":{"type":"object","properties":{"next":{"$ref":"#/$defs/n"}},"required":["next"]}},"properties":{"a":{"$ref":"#/$defs/n"}},"required":["a"]}`, "", "y\n{}\n", `{"a":{"next":{}}}`},
		"a reference to it": {`{"$defs":{"n":{"$ref":"#/$defs/n"}},"properties":{"a":{"$ref":"#/$defs/n"}},"required":["a"]}`, "", "7\n", `{"a":7}`},
	} {
		got, shown, err := ask(t, c.schema, c.preset, c.input)
		if err != nil || got != c.want {
			t.Errorf("%s: %s, %v, want %s\n%s", name, got, err, c.want, shown)
		}
	}
}

// TestShown: who answers sees the type, what is allowed, the default and what was wrong.
func TestShown(t *testing.T) {
	_, shown, err := ask(t, `{"properties":{"n":{"type":"integer","minimum":1,"description":"How many\nof \u001b]0;owned\u0007them","default":3},"c":{"enum":["red","gr\u001b[31meen"]}},"required":["n"]}`, "", "0\n\n2\n")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"n (integer, required) at least 1\n", "How many of them\n", "default: 3\n", "give at least 1\n", "c (one of these, optional)\n", "1) red\n", "2) green\n"} {
		if !strings.Contains(shown, want) {
			t.Errorf("%q is not in:\n%s", want, shown)
		}
	}
	if strings.ContainsAny(shown, "\x1b\x07") {
		t.Errorf("control characters: %q", shown)
	}
}

// TestEnds: an input that ends, wrong schemas and hostile ones end with an error that says why.
func TestEnds(t *testing.T) {
	_, _, err := ask(t, `{"properties":{"a":{"type":"object","properties":{"deep":{"type":"string"}},"required":["deep"]}},"required":["a"]}`, "", "y\n")
	if !errors.Is(err, ErrEnded) || !strings.Contains(err.Error(), "a.deep") {
		t.Errorf("ended: %v", err)
	}
	_, _, err = ask(t, `{"properties":{"l":{"type":"array"}},"required":["l"]}`, "", "")
	if err != nil { // an empty list is one
		t.Errorf("an empty list: %v", err)
	}
	for name, c := range map[string]struct{ schema, preset, input, want string }{
		"not JSON":      {`{`, "", "", "schema"},
		"a list":        {`[]`, "", "", "schema"},
		"preset":        {`{}`, `[]`, "", "given already"},
		"too large":     {`{"description":"` + strings.Repeat("x", maxSchema) + `"}`, "", "", "bytes"},
		"never right":   {`{"properties":{"a":{"type":"integer"}},"required":["a"]}`, "", strings.Repeat("x\n", 100), "no answer that fits"},
		"many fields":   {manyFields(), "", strings.Repeat("x\n", 1000), "fields"},
		"a long answer": {`{"properties":{"a":{"type":"string"}},"required":["a"]}`, "", strings.Repeat("x", maxLine+1), "longer"},
	} {
		if _, _, err := ask(t, c.schema, c.preset, c.input); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	began := time.Now()
	deep := strings.Repeat(`{"items":`, 9000) + "{}" + strings.Repeat("}", 9000)
	if _, _, err := ask(t, `{"properties":{"a":`+deep+`}}`, "", "1\n"); err != nil {
		t.Errorf("deep: %v", err)
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("a deep schema took %v", took)
	}
}

func manyFields() string {
	var b strings.Builder
	for i := range maxFields + 1 {
		b.WriteString(`,"f` + strings.Repeat("x", i%7) + string(rune('a'+i%26)) + strings.Repeat("y", i/26) + `":{"type":"string"}`)
	}
	return `{"properties":{` + b.String()[1:] + `}}`
}

// TestCancel: who waits for an answer that does not come can go away.
func TestCancel(t *testing.T) {
	r, w := io.Pipe()
	lines := NewLines(r)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_, err := Ask(ctx, json.RawMessage(`{"properties":{"a":{"type":"string"}},"required":["a"]}`), nil, lines, io.Discard)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	lines.Close()
	w.Close() // the reader's goroutine ends with the input
}

func TestPlain(t *testing.T) {
	for in, want := range map[string]string{
		"a\x1b[31mred\x1b[0m": "ared", "t\x1b]0;title\x07x": "tx", "t\x1b]8;;http://x\x1b\\link": "tlink", "c1\u009b31mx": "c1x",
		"keep\n\ttabs": "keep\n\ttabs", "bell\a\b\r": "bell", "bidi\u202eabc": "bidiabc", "bad\xff": "bad\uFFFD", "reset\x1bc!": "reset!",
		"dcs\x1bPq#0\x1b\\x": "dcsx", "half\x1b[": "half", "half\x1b": "half", "tags\U000E0041": "tags", "zero\u200bwidth": "zerowidth",
		"open\x1b]0;never ends\nnext": "open\nnext",
	} {
		if got := Plain(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	if got := Line("a\n b  c", 4); got != "a b…" {
		t.Errorf("%q", got)
	}
}

func FuzzAsk(f *testing.F) {
	f.Add(`{"properties":{"a":{"type":"array","items":{"$ref":"#"}}},"required":["a"]}`, "y\n[1]\n")
	f.Add(`{"properties":{"a":{"anyOf":[{"type":"null"},{"enum":[1]}]}}}`, "1\n")
	f.Fuzz(func(t *testing.T, schema, input string) {
		lines := NewLines(strings.NewReader(input))
		defer lines.Close()
		var out bytes.Buffer
		raw, err := Ask(context.Background(), json.RawMessage(schema), nil, lines, &out)
		if err == nil && !json.Valid(raw) {
			t.Errorf("%q", raw)
		}
		if strings.ContainsAny(out.String(), "\x1b\x07") {
			t.Errorf("control characters: %q", out.String())
		}
	})
}
