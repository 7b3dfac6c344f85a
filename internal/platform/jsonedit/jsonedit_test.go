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
	if _, found, err := Remove([]byte(text), []string{"none"}, "y"); found || err != nil {
		t.Errorf("%v, %v", found, err)
	}
	for _, bad := range []string{`[]`, `{"a":1,"a":2}`, `{"a":`, `{} x`} {
		if out, err := Set([]byte(bad), nil, "k", []byte("1")); err == nil {
			t.Errorf("%s became %s", bad, out)
		}
	}
}

func FuzzSet(f *testing.F) {
	f.Add([]byte(`{"a":{"b":1}}`), "a", "b")
	f.Add([]byte("{ }"), "", `"`)
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
