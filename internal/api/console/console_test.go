package console

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
)

func packed(t *testing.T, body string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(body)); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	return b.String()
}

const script = "console.log(1)"

func consoleOf(t *testing.T, files map[string]string) *Handler {
	t.Helper()
	tree := fstest.MapFS{"dist/.gitkeep": {}, "secret": {Data: []byte("outside")}}
	for name, body := range files {
		tree["dist/"+name] = &fstest.MapFile{Data: []byte(body)}
	}
	h, err := newHandler(tree)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func whole(t *testing.T) *Handler {
	t.Helper()
	return consoleOf(t, map[string]string{
		"index.html": `<meta property="csp-nonce" nonce="SKERRY_CSP_NONCE"><script nonce="SKERRY_CSP_NONCE" src="/ui/assets/a-1.js">`,
		".inputs":    "digest", ".manifest.json": "{}", "icon.svg": "<svg/>",
		"assets/a-1.js": script, "assets/a-1.js.gz": packed(t, script), "assets/a-1.js.br": "as brotli", "assets/b-2.css": "a{}",
	})
}

func get(h http.Handler, path string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, "http://localhost"+path, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	return rec
}

// TestPages: each path of the console's own is index.html, with a nonce that is of this response alone, and a policy without
// anything unsafe.
func TestPages(t *testing.T) {
	t.Parallel()
	h := whole(t)
	seen := map[string]bool{}
	for _, path := range []string{"/ui/", "/ui/threads", "/ui/threads/a%2Fb/files?path=/x", "/ui/index.html", "/ui/.inputs", "/ui/.manifest.json"} {
		rec := get(h, path)
		head := rec.Header()
		if rec.Code != http.StatusOK || head.Get("Cache-Control") != "no-cache" || head.Get("Content-Type") != "text/html; charset=utf-8" {
			t.Errorf("%s: %d %v", path, rec.Code, head)
		}
		policy := head.Get("Content-Security-Policy")
		nonce := regexp.MustCompile(`style-src 'self' 'nonce-([\w-]{22})'`).FindStringSubmatch(policy)
		if nonce == nil || seen[nonce[1]] || strings.Count(rec.Body.String(), nonce[1]) != 2 || strings.Contains(rec.Body.String(), nonceMark) {
			t.Fatalf("%s: policy %q, body %s", path, policy, rec.Body)
		}
		seen[nonce[1]] = true
		for _, want := range []string{"default-src 'none'", "script-src 'self';", "connect-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'"} {
			if !strings.Contains(policy, want) {
				t.Errorf("%s: the policy lacks %s: %s", path, want, policy)
			}
		}
		if strings.Contains(policy, "unsafe") || strings.Contains(policy, "http") || strings.Contains(policy, "*") {
			t.Errorf("%s: the policy lets too much through: %s", path, policy)
		}
	}
}

// TestHeaders: every answer tells browsers not to guess types, send addresses on, or share the window.
func TestHeaders(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/ui/", "/ui/assets/a-1.js", "/ui/assets/gone.js", "/ui/icon.svg"} {
		head := get(whole(t), path).Header()
		for name, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
			"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
		} {
			if head.Get(name) != want {
				t.Errorf("%s: %s is %q, want %q", path, name, head.Get(name), want)
			}
		}
		if !strings.Contains(head.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%s: %s", path, head.Get("Content-Security-Policy"))
		}
	}
}

// TestFiles: files whose names have a digest are kept for good, packed as the client takes them, and 404 when they are not there.
func TestFiles(t *testing.T) {
	t.Parallel()
	h := whole(t)
	for _, c := range []struct{ accept, coding, body string }{
		{"", "", script},
		{"gzip", "gzip", packed(t, script)},
		{"gzip, deflate, br, zstd", "br", "as brotli"},
		{"br;q=0, gzip;q=0.5", "gzip", packed(t, script)},
		{"gzip; q=0", "", script},
		{"identity", "", script},
	} {
		rec := get(h, "/ui/assets/a-1.js", "Accept-Encoding", c.accept)
		body, _ := io.ReadAll(rec.Result().Body)
		head := rec.Header()
		if rec.Code != http.StatusOK || head.Get("Content-Encoding") != c.coding || string(body) != c.body {
			t.Errorf("%q: %d %v %q", c.accept, rec.Code, head, body)
		}
		if head.Get("Cache-Control") != "public, max-age=31536000, immutable" || head.Get("Vary") != "Accept-Encoding" || head.Get("Content-Type") != "text/javascript; charset=utf-8" {
			t.Errorf("%q: %v", c.accept, head)
		}
		if again := get(h, "/ui/assets/a-1.js", "Accept-Encoding", c.accept, "If-None-Match", head.Get("ETag")); again.Code != http.StatusNotModified {
			t.Errorf("%q again: %d", c.accept, again.Code)
		}
	}
	if rec := get(h, "/ui/icon.svg"); rec.Code != http.StatusOK || rec.Header().Get("Cache-Control") != "no-cache" || rec.Header().Get("Content-Type") != "image/svg+xml" {
		t.Errorf("icon: %d %v", rec.Code, rec.Header())
	}
	if rec := get(h, "/ui/assets/gone-3.js"); rec.Code != http.StatusNotFound || strings.Contains(rec.Body.String(), "<script") {
		t.Errorf("a file of an older console: %d %s", rec.Code, rec.Body)
	}
}

// TestNothingElse: no path leads out of the console's files, and no method changes anything.
func TestNothingElse(t *testing.T) {
	t.Parallel()
	h := whole(t)
	for _, path := range []string{"/ui/../secret", "/ui/%2e%2e/secret", "/ui/assets/../../secret", "/ui/assets/%2e%2e%2f%2e%2e%2fsecret", "/ui//secret", "/ui/..%5csecret"} {
		if rec := get(h, path); strings.Contains(rec.Body.String(), "outside") {
			t.Errorf("%s: %s", path, rec.Body)
		}
	}
	if rec := get(h, "/ui"); rec.Code != http.StatusMovedPermanently || rec.Header().Get("Location") != "/ui/" {
		t.Errorf("/ui: %d %v", rec.Code, rec.Header())
	}
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequest(http.MethodPost, "http://localhost/ui/", nil))
	if rec.Code != http.StatusMethodNotAllowed || rec.Header().Get("Allow") != "GET, HEAD" {
		t.Errorf("POST: %d %v", rec.Code, rec.Header())
	}
	rec = httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequest(http.MethodHead, "http://localhost/ui/threads", nil))
	if rec.Code != http.StatusOK || rec.Body.Len() != 0 || rec.Header().Get("Content-Length") == "" {
		t.Errorf("HEAD: %d %v", rec.Code, rec.Header())
	}
}

// TestWithoutConsole: a binary that was built without the console says so on each of its pages, and how to build it.
func TestWithoutConsole(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/ui/", "/ui/threads/x"} {
		rec := get(consoleOf(t, nil), path)
		if rec.Code != http.StatusOK || !strings.Contains(rec.Body.String(), "no web console") || !strings.Contains(rec.Body.String(), "make build") || strings.Contains(rec.Body.String(), "<script") {
			t.Errorf("%s: %d %s", path, rec.Code, rec.Body)
		}
	}
	if _, err := New(); err != nil {
		t.Error(err)
	}
}
