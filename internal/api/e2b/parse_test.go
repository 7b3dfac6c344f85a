package e2b

import (
	"encoding/hex"
	"net/http"
	"net/url"
	"path"
	"strings"
	"testing"

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
