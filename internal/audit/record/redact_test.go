package record

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestCut(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in   string
		max  int
		want string
	}{
		{"abc", 3, "abc"}, {"abcd", 3, "abc"}, {"aé", 2, "a"}, {"aé", 3, "aé"}, {"😀😀", 7, "😀"}, {"", 3, ""},
		{"a\xff", 9, "a\uFFFD"}, {"\xff\xff\xff", 3, "\uFFFD"},
	} {
		if got := cut(c.in, c.max); got != c.want {
			t.Errorf("cut(%q, %d) = %q, want %q", c.in, c.max, got, c.want)
		}
	}
}

func TestArgs(t *testing.T) {
	t.Parallel()
	args, hash := Args(map[string]any{
		"API_Key": "s1", "nested": []any{map[string]any{"password": map[string]any{"a": "s2"}, "n": 12345678901234567}},
		"Authorization": "Bearer s3", "x-cookie": "s4", "credentials": []string{"s5"}, "path": "/a", "auth_token": nil,
	})
	want := `{"API_Key":"***","Authorization":"***","auth_token":null,"credentials":"***",` +
		`"nested":[{"n":12345678901234567,"password":"***"}],"path":"/a","x-cookie":"***"}`
	if string(args) != want {
		t.Errorf("got  %s\nwant %s", args, want)
	}
	if len(hash) != 64 {
		t.Errorf("hash %q", hash)
	}
	_, raw := Args(json.RawMessage(`{"a": 1}`))
	_, compact := Args(json.RawMessage(`{"a":1}`))
	if raw == compact {
		t.Error("the hash is not of the bytes as they came")
	}
	for _, v := range []any{strings.Repeat("x", 1<<20), strings.Repeat("\x00<", 100_000), json.RawMessage(`{"a":`), json.RawMessage(`{} {}`),
		map[string]any{"token": strings.Repeat("s", 9000)}, make(chan int), nil, json.RawMessage(nil)} {
		args, _ := Args(v)
		if len(args) > maxArgs || args != nil && !json.Valid(args) {
			t.Errorf("%d bytes of arguments: %.100s", len(args), args)
		}
		if strings.Contains(string(args), "sss") {
			t.Errorf("a secret: %.100s", args)
		}
	}
}

// TestTelling: what is found without the expression is what the expression finds.
func TestTelling(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "k", "ke", "key", "KEY", "kEy", "api_key", "keen", "Authorization", "authorizatio", "COOKIES", "passWord", "pas", "tok", "tokEn",
		"CREDENTIAL", "c", "crcookie", "a\xffkey", "\u212aey", "pa\u017fs", "ſecret", "é", "k\u00e9y", "{[@`argv", strings.Repeat("x", 100) + "secre", strings.Repeat("c", 100) + "ookie",
	} {
		if got, want := telling([]byte(text)), secretName.MatchString(text); got != want {
			t.Errorf("%q: %v, the expression says %v", text, got, want)
		}
	}
}

// FuzzTelling: likewise, for any text.
func FuzzTelling(f *testing.F) {
	f.Add([]byte(`{"Argv":["true"],"api_Key":"x"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if got, want := telling(text), secretName.Match(text); got != want {
			t.Errorf("%q: %v, the expression says %v", text, got, want)
		}
	})
}

// BenchmarkArgs is what the arguments of a small exec cost.
func BenchmarkArgs(b *testing.B) {
	args := map[string]any{"argv": []string{"true"}, "cwd": "/mnt/user-data/workspace", "timeout_s": 60, "background": false, "max_output_bytes": 1048576}
	b.ReportAllocs()
	for b.Loop() {
		text, _ := Args(args)
		needsRedaction(text)
	}
}
