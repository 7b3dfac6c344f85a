// Package console serves the web console, which is compiled in, at /ui. scripts/console.sh builds it from console/ into dist;
// a binary built without it has a page that says so.
//
// index.html is the answer for each path of the console's own, so that a link leads to its page. Vite puts a digest into the
// names of all other files, so clients keep these for good.
package console

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/hex"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"
)

// Prefix is below what the console is.
const Prefix = "/ui"

//go:embed all:dist
var built embed.FS

// nonceMark is what the build leaves in index.html for the nonce of a response (vite's html.cspNonce).
const nonceMark = "SKERRY_CSP_NONCE"

// missing is the page of a binary that was built without the console.
const missing = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Skerry</title>
<h1>This binary has no web console</h1>
<p>It was built without it. With Node 20.19 or newer and npm, run <code>make build</code> in the source tree, and start the new
<code>bin/skerry</code>. The API works as it is: <a href="/docs">/docs</a>.</p>
</html>
`

// Handler serves the console.
type Handler struct {
	files map[string]*file // by their paths below Prefix
	index []byte           // nil: the console is not in this binary
}

// file is a file of the console.
type file struct {
	body      []byte
	packed    map[string][]byte // by content coding
	mediaType string
	etag      string
	forever   bool // its name has a digest of it
}

// New returns the handler of the console that is compiled in.
func New() (*Handler, error) { return newHandler(built) }

func newHandler(tree fs.FS) (*Handler, error) {
	h := &Handler{files: map[string]*file{}}
	root, err := fs.Sub(tree, "dist")
	if err != nil {
		return nil, err
	}
	packed := map[string]string{".gz": "gzip", ".br": "br"}
	err = fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasPrefix(path.Base(name), ".") {
			return err
		}
		body, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		coding := packed[path.Ext(name)]
		f := h.file(strings.TrimSuffix(name, path.Ext(name)))
		if coding == "" {
			f = h.file(name)
			f.fill(name, body)
			return nil
		}
		f.packed[coding] = body
		return nil
	})
	if err != nil {
		return nil, err
	}
	if f := h.files["index.html"]; f != nil {
		h.index = f.body
		delete(h.files, "index.html")
	}
	return h, nil
}

// file returns the entry of a path, which it makes.
func (h *Handler) file(name string) *file {
	if h.files[name] == nil {
		h.files[name] = &file{packed: map[string][]byte{}}
	}
	return h.files[name]
}

func (f *file) fill(name string, body []byte) {
	sum := sha256.Sum256(body)
	f.body, f.etag, f.forever = body, `"`+hex.EncodeToString(sum[:12])+`"`, strings.HasPrefix(name, "assets/")
	f.mediaType = mediaType(name)
}

// mediaType does not ask the host's own table, so that each server says the same.
func mediaType(name string) string {
	switch path.Ext(name) {
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	case ".woff2":
		return "font/woff2"
	case ".txt":
		return "text/plain; charset=utf-8"
	}
	if t := mime.TypeByExtension(path.Ext(name)); t != "" {
		return t
	}
	return "application/octet-stream"
}

// ServeHTTP answers a request for a path at or below Prefix.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "the console takes GET and HEAD", http.StatusMethodNotAllowed)
		return
	}
	name, below := strings.CutPrefix(r.URL.Path, Prefix+"/")
	if !below { // relative names in the page would lead out of the console
		http.Redirect(w, r, Prefix+"/", http.StatusMovedPermanently)
		return
	}
	if f := h.files[name]; f != nil && f.body != nil {
		f.serve(w, r)
		return
	}
	if strings.HasPrefix(name, "assets/") { // of an older console: a page in its place would be taken for a script
		protect(w, "")
		w.Header().Set("Cache-Control", "no-cache")
		http.Error(w, "no such file: load the page again", http.StatusNotFound)
		return
	}
	h.page(w, r)
}

// page answers with index.html, whose nonce is good for this response alone.
func (h *Handler) page(w http.ResponseWriter, r *http.Request) {
	raw := make([]byte, 16)
	_, _ = rand.Read(raw) // it never fails
	nonce := base64.RawURLEncoding.EncodeToString(raw)
	protect(w, nonce)
	w.Header().Set("Cache-Control", "no-cache")
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	body := []byte(missing)
	if h.index != nil {
		body = bytes.ReplaceAll(h.index, []byte(nonceMark), []byte(nonce))
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	if r.Method == http.MethodGet {
		_, _ = w.Write(body)
	}
}

// protect sets what browsers are told not to do. Scripts come from files alone; elements of style, which libraries make, need
// the nonce. Images are of the console or made from bytes that a script has (blob:).
func protect(w http.ResponseWriter, nonce string) {
	style := "'self'"
	if nonce != "" {
		style += " 'nonce-" + nonce + "'"
	}
	head := w.Header()
	head.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src "+style+
		"; img-src 'self' blob:; font-src 'self'; connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("Referrer-Policy", "no-referrer")
	head.Set("Cross-Origin-Opener-Policy", "same-origin")
	head.Set("Cross-Origin-Resource-Policy", "same-origin")
	head.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
}

func (f *file) serve(w http.ResponseWriter, r *http.Request) {
	protect(w, "")
	head := w.Header()
	head.Set("Content-Type", f.mediaType)
	head.Set("Cache-Control", "no-cache")
	if f.forever {
		head.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	body, etag := f.body, f.etag
	if len(f.packed) > 0 {
		head.Add("Vary", "Accept-Encoding")
	}
	for _, coding := range []string{"br", "gzip"} {
		if packed := f.packed[coding]; packed != nil && accepts(r.Header.Values("Accept-Encoding"), coding) {
			head.Set("Content-Encoding", coding)
			body, etag = packed, strings.TrimSuffix(f.etag, `"`)+"-"+coding+`"`
			break
		}
	}
	head.Set("ETag", etag)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
}

// accepts reports whether a client takes a content coding.
func accepts(headers []string, coding string) bool {
	for _, h := range headers {
		for part := range strings.SplitSeq(h, ",") {
			name, params, _ := strings.Cut(part, ";")
			if !strings.EqualFold(strings.TrimSpace(name), coding) {
				continue
			}
			value, weighed := strings.CutPrefix(strings.ReplaceAll(strings.TrimSpace(params), " ", ""), "q=")
			weight, err := strconv.ParseFloat(value, 64)
			return !weighed || err == nil && weight > 0
		}
	}
	return false
}
