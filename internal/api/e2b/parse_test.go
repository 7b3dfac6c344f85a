package e2b

import (
	"encoding/hex"
	"net/http"
	"net/url"
	"path"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

func TestVirtual(t *testing.T) {
	for name, want := range map[string]string{
		"a.txt": "/mnt/user-data/workspace/a.txt", "./a/../b": "/mnt/user-data/workspace/b", "~": "/mnt/user-data/workspace", "~/x": "/mnt/user-data/workspace/x",
		"/home/user": "/mnt/user-data/workspace", "/home/user/x": "/mnt/user-data/workspace/x", "/home/username/x": "/home/username/x",
		"/mnt/user-data/outputs/x": "/mnt/user-data/outputs/x", "/tmp/x": "/tmp/x", "../../etc/passwd": "/etc/passwd", "": "", "a\x00b": "",
	} {
		got, err := virtual(name)
		if got != want || (err != nil) != (want == "") {
			t.Errorf("%q: %q %v, want %q", name, got, err, want)
		}
	}
}

func TestCredential(t *testing.T) {
	for key, want := range map[string]string{
		"sk_abc": "sk_abc", "e2b_0000": "", "e2b_": "", "e2b_xyz": "e2b_xyz", "": "",
		"e2b_" + hex.EncodeToString([]byte("sk_abc")): "sk_abc", "e2b_0a": "e2b_0a", "e2b_" + strings.Repeat("f", 40): "e2b_" + strings.Repeat("f", 40),
	} {
		if got := credential(key); got != want {
			t.Errorf("%q: %q, want %q", key, got, want)
		}
	}
	r := &http.Request{Header: http.Header{"Authorization": {"Basic dXNlcjo="}, "X-Access-Token": {"e2b_" + hex.EncodeToString([]byte("sk_1"))}}}
	prepareHeader(r)
	if r.Header.Get("X-Api-Key") != "sk_1" || r.Header.Get("Authorization") != "" || r.Header.Get(userHeader) != "user" || r.Header.Get("X-Access-Token") != "" {
		t.Error(r.Header)
	}
	prepareHeader(r) // another server passed it on
	if r.Header.Get("X-Api-Key") != "sk_1" {
		t.Error(r.Header)
	}
}

func TestThrown(t *testing.T) {
	for _, c := range [][4]string{
		{"python", "---\nNameError    Traceback (most recent call last)\nCell In[1], line 1\n----> 1 x\n\nNameError: name 'x' is not defined\n", "NameError", "name 'x' is not defined"},
		{"python", "  Cell In[1], line 1\n    x y\n      ^\nSyntaxError: invalid syntax\n", "SyntaxError", "invalid syntax"},
		{"python", "ValueError  Traceback (most recent call last)\nValueError: first\nsecond: third\n", "ValueError", "first\nsecond: third"},
		{"python", "note: x\nTraceback (most recent call last):\n  Cell In [2], line 1\n    1/0\nValueError: first\nsecond: third\n\n", "ValueError", "first\nsecond: third"},
		{"python", "warning: x\n  Cell In [2], line 1\nIndentationError: unexpected indent\n", "IndentationError", "unexpected indent"},
		{"python", "pkg.Bad  Traceback (most recent call last)\npkg.Bad\n", "pkg.Bad", ""},
		{"javascript", "Uncaught ReferenceError: x is not defined\n    at file:1:1\n", "ReferenceError", "x is not defined"},
		{"typescript", "TypeError: no\n    at y\n", "TypeError", "no"},
		{"javascript", "boom\n", "", ""},
		{"python", "", "", ""},
	} {
		name, value, ok := thrown(c[0], c[1])
		if name != c[2] || value != c[3] || ok != (c[2] != "") {
			t.Errorf("%q: %q %q %v", c[1], name, value, ok)
		}
	}
}

// FuzzVirtual: whatever a client names, what comes out is a clean absolute path, and naming that means the same.
func FuzzVirtual(f *testing.F) {
	f.Add("a/../../b")
	f.Add("/home/user/../x")
	f.Fuzz(func(t *testing.T, name string) {
		got, err := virtual(name)
		if err != nil {
			return
		}
		if !strings.HasPrefix(got, "/") || path.Clean(got) != got || strings.HasPrefix(got, homeDir+"/") {
			t.Errorf("%q: %q", name, got)
		}
		if again, err := virtual(got); err == nil && again != got {
			t.Errorf("%q: %q, then %q", name, got, again)
		}
	})
}

// FuzzCredential: a token decodes to the credential that it was made of, whatever that is of what a header can hold.
func FuzzCredential(f *testing.F) {
	f.Add("sk_0123")
	f.Fuzz(func(t *testing.T, key string) {
		r := &http.Request{Header: http.Header{"X-Api-Key": {key}}}
		_ = credential(key)
		for _, b := range []byte(key) {
			if b <= ' ' || b > '~' {
				return
			}
		}
		if got := credential(token(r, "e2bx")); got != key {
			t.Errorf("%q: %q", key, got)
		}
	})
}

// FuzzList: no query makes a filter beyond what was made here.
func FuzzList(f *testing.F) {
	f.Add("metadata=a%3Db&state=running&limit=3")
	f.Add("order=asc&startedAfter=2026-01-02T15:04:05Z&template=base&nextToken=eA")
	f.Fuzz(func(t *testing.T, query string) {
		v, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		q, err := parseList(v)
		if err != nil {
			return
		}
		if q.labels[labelMade] != "1" || q.limit < 1 || q.limit > maxList || sandbox.CheckLabels(q.labels) != nil {
			t.Errorf("%q: %+v", query, q)
		}
	})
}

// FuzzTexts: bytes in pieces are the same text as in one, and always text.
func FuzzTexts(f *testing.F) {
	f.Add([]byte("gr\xc3\xbcn \xf0\x9f\x98\x80"), 3)
	f.Fuzz(func(t *testing.T, data []byte, cut int) {
		if cut < 0 || cut > len(data) {
			return
		}
		var pieces texts
		got := pieces.add(data[:cut]) + pieces.add(data[cut:]) + pieces.rest()
		if !utf8.ValidString(got) || utf8.Valid(data) && got != string(data) {
			t.Errorf("%q at %d: %q", data, cut, got)
		}
	})
}

// FuzzThrown: what code prints is hostile, and an error is read from it or not.
func FuzzThrown(f *testing.F) {
	f.Add("python", "KeyError  Traceback (most recent call last)\nKeyError: 'x'")
	f.Fuzz(func(t *testing.T, lang, complaint string) {
		if name, _, ok := thrown(lang, complaint); ok && name == "" {
			t.Errorf("%q: an error without a name", complaint)
		}
	})
}
