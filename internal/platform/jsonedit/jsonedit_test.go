package jsonedit

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

func TestSetAndRemoveKeepTheRest(t *testing.T) {
	const text = "{ \"a\" : 1.50,\n \"b\": {\"x\": [1, 2 ], \"y\": null},\"c\":\"}\" }"
	out, err := Set([]byte(text), []string{"b"}, "x", []byte(`true`))
	if want := strings.Replace(text, "[1, 2 ]", "true", 1); err != nil || string(out) != want {
		t.Errorf("%s, %v", out, err)
	}
	out, err = Set([]byte(text), []string{"b", "y", "z"}, "k", []byte(`1`))
	if err != nil || !strings.HasPrefix(string(out), text[:strings.Index(text, "null")]) || !json.Valid(out) {
		t.Errorf("%s, %v", out, err)
	}
	out, found, err := Remove([]byte(text), []string{"b"}, "y")
	if want := strings.Replace(text, `, "y": null`, "", 1); err != nil || !found || string(out) != want {
		t.Errorf("%s, %v, %v", out, found, err)
	}
	for key, want := range map[string]string{
		"a": "{ \"b\": {\"x\": [1, 2 ], \"y\": null},\"c\":\"}\" }",
		"b": "{ \"a\" : 1.50,\"c\":\"}\" }",
		"c": "{ \"a\" : 1.50,\n \"b\": {\"x\": [1, 2 ], \"y\": null} }",
	} {
		if out, found, err := Remove([]byte(text), nil, key); err != nil || !found || string(out) != want {
			t.Errorf("without %s: %s, %v, %v", key, out, found, err)
		}
	}
	if _, found, err := Remove([]byte(text), []string{"none"}, "y"); found || err != nil {
		t.Errorf("%v, %v", found, err)
	}
	out, err = Set([]byte("{\"a\": 1\n}\n"), []string{"n"}, "k", []byte(`[1]`))
	if want := "{\"a\": 1,\n  \"n\": {\n    \"k\": [\n      1\n    ]\n  }\n}\n"; err != nil || string(out) != want {
		t.Errorf("%s, %v", out, err)
	}
	for _, bad := range []string{`[]`, `{"a":1,"a":2}`, `{"a":`, `{} x`, `{} // x`, `{"a":1,}`, strings.Repeat(`{"k":`, 20_000) + "1" + strings.Repeat("}", 20_000)} {
		if out, err := Set([]byte(bad), nil, "k", []byte("1")); err == nil {
			t.Errorf("%s became %s", bad, out)
		}
	}
}

// TestSetNotUTF8: what no parser of JSON would read again is not written.
func TestSetNotUTF8(t *testing.T) {
	t.Parallel()
	for key, value := range map[string]string{"a": "{\"\xc5\":1}", "\xc5": "1"} {
		if got, err := Set([]byte("{}"), nil, key, []byte(value)); err == nil {
			t.Errorf("%q: %q", key, got)
		}
	}
}

func FuzzSet(f *testing.F) {
	f.Add([]byte(`{"a":{"b":1}}`), "a", "b")
	f.Add([]byte("{ }"), "", `"`)
	f.Add([]byte("{\"\x9e\":{}}"), "\xd0", "0") // both were read as the same name
	f.Fuzz(func(t *testing.T, text []byte, step, key string) {
		out, err := Set(text, []string{step}, key, []byte(`"v"`))
		if err != nil {
			return
		}
		o, err := Members(out, "")
		if err != nil {
			t.Fatalf("%q became %q: %v", text, out, err)
		}
		m, ok := o.Find(canonical(step))
		inner, err := m.Members(out, "")
		v, there := inner.Find(canonical(key))
		if !ok || err != nil || !there || !bytes.Equal(v.Value(out), []byte(`"v"`)) {
			t.Fatalf("%q became %q: %v", text, out, err)
		}
	})
}

// canonical is a string as it comes out of JSON.
func canonical(s string) string {
	raw, _ := json.Marshal(s)
	_ = json.Unmarshal(raw, &s)
	return s
}
