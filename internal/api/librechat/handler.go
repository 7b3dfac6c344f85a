// Package librechat answers the requests that LibreChat sends to its code interpreter (github.com/ClickHouse/code-interpreter),
// so that a server stands in for it: LIBRECHAT_CODE_BASEURL ends in /librechat/v1.
//
// A session is a thread. LibreChat names the files of a session, and of others, with each piece of code: the code runs in the
// thread that has most of them, and files of other threads are copied there first. A file's id is a digest of its path, so no
// record is kept of either.
//
// Each request becomes requests of the public API: see package inprocess.
package librechat

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/skerry-sandbox/skerry/internal/api/held"
	"github.com/skerry-sandbox/skerry/internal/api/inprocess"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// prefix is below what the routes are.
const prefix = "/librechat/v1"

// idLength is how long the ids of sessions and files are: LibreChat takes no others.
const idLength = 21

var validID = regexp.MustCompile(`^[A-Za-z0-9_-]{21}$`)

// requestTime is how long a request may take to arrive.
const requestTime = 10 * time.Minute

// Options of New.
type Options struct {
	// API is the handler of the public API.
	API http.Handler
	// Template is that of the threads; "" is the server's own default.
	Template string
	// Held bounds the bodies that are in memory, with what the other adapters hold.
	Held *held.Bytes
}

type adapter struct {
	Options
	mux *http.ServeMux
}

// New returns a handler that answers LibreChat below /librechat, and all else by o.API.
func New(o Options) (http.Handler, error) {
	if o.API == nil || o.Held == nil {
		return nil, errors.New("librechat: a part is missing")
	}
	a := &adapter{Options: o, mux: http.NewServeMux()}
	a.mux.HandleFunc(prefix+"/", unknown)
	a.mux.HandleFunc("GET "+prefix+"/health", func(w http.ResponseWriter, _ *http.Request) {
		inprocess.Write(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	a.route("POST /exec", a.exec)
	a.route("POST /exec/programmatic", a.program)
	a.route("POST /upload", a.upload)
	a.route("POST /upload/batch", a.uploadBatch)
	a.route("GET /download/{session}/{file}", a.download)
	a.route("GET /files/{session}", a.list)
	a.route("GET /sessions/{session}/objects/{file}", a.object)
	a.route("DELETE /files/{session}/{file}", a.remove)
	return inprocess.Below(prefix, a.mux, a.API), nil
}

// call is one request of LibreChat.
type call struct {
	inprocess.Caller
	secret string
	held   *held.Request
}

// route adds one. What its handler returns as an error is answered in the words of LibreChat's own service.
func (a *adapter) route(pattern string, handle func(c *call) error) {
	method, path, _ := strings.Cut(pattern, " ")
	a.mux.HandleFunc(method+" "+prefix+path, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(requestTime)) // fails where there is no connection
		c := &call{Caller: inprocess.Caller{API: a.API, W: w, R: r}, secret: credential(r)}
		// By the credential: a key, or a token of a user.
		c.held = a.Held.Of("librechat\x00" + c.secret)
		defer c.held.End()
		// A key comes before a body. The requests without one go to the API as they come.
		if method == http.MethodPost {
			if err := c.Admit(c.secret); err != nil {
				fail(w, err)
				return
			}
		}
		if err := handle(c); err != nil {
			fail(w, err)
		}
	})
}

// credential is the key, or the token, that a request came with. LibreChat sends a token in Authorization; before it had
// tokens it sent a key in X-API-Key.
func credential(r *http.Request) string {
	if scheme, secret, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(secret)
	}
	return r.Header.Get("X-API-Key")
}

// with adds the credential of the call to a request, and counts what is kept of the answer.
func (c *call) with(q inprocess.Request) inprocess.Request {
	q.Secret, q.Kept = c.secret, c.held.Answer(c.R.Context())
	return q
}

func (c *call) do(q inprocess.Request) ([]byte, error) {
	got, err := c.Call(c.with(q))
	if err != nil {
		return nil, err
	}
	return got.Body(), nil
}

func (c *call) into(q inprocess.Request, out any) error { return c.Into(c.with(q), out) }

// session is the one that the path names.
func (c *call) session() (string, error) {
	id := c.R.PathValue("session")
	if !validID.MatchString(id) {
		return "", sandbox.Errorf(sandbox.NotFound, "there is no session %.64q", id)
	}
	return id, nil
}

// newSession returns the id of a session that there is not yet.
func newSession() string { return rand.Text()[:idLength] }

// keyPrefix begins a key. One key may be that of all users of LibreChat.
const keyPrefix = "sk_"

// sessionOf returns the session of a conversation. Threads begin with a letter. Users see the ids of conversations, and may ask
// LibreChat for a file of any session: only with the key can the session be computed. A token is one user's, whose threads
// nobody else has, and the next one differs.
func sessionOf(conversation, secret string) string {
	if !strings.HasPrefix(secret, keyPrefix) {
		secret = ""
	}
	mac := hmac.New(sha256.New, []byte(secret))
	_, _ = mac.Write([]byte("librechat conversation\x00" + conversation)) // never fails
	return "c" + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))[1:idLength]
}

// fileID returns the id of a file at a path relative to the workspace.
func fileID(path string) string {
	sum := sha256.Sum256([]byte("file\x00" + path))
	return base64.RawURLEncoding.EncodeToString(sum[:])[:idLength]
}

// fail answers with an error.
func fail(w http.ResponseWriter, err error) {
	status, code, detail := inprocess.Reason(w, err)
	inprocess.Write(w, status, map[string]string{"error": detail, "code": code})
}

// unknown answers what is not served: loudly, so that another version of LibreChat is noticed.
func unknown(w http.ResponseWriter, r *http.Request) {
	what := r.Method + " " + strings.ToValidUTF8(r.URL.Path[:min(len(r.URL.Path), 200)], "?")
	fail(w, sandbox.Errorf(sandbox.NotSupported, "%s is not supported: docs/librechat.md lists what is", what))
}
