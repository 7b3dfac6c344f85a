// Package inprocess makes requests of the public API from requests of another protocol, and has the API's handler answer them in
// this process. So they are authenticated, limited, recorded, judged by the policy and passed on to other servers as
// all requests are.
package inprocess

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// MaxAnswer bounds what is kept of an answer of the API.
const MaxAnswer = 64 << 20

// Request is one of the public API.
type Request struct {
	Method, Path string
	Query        map[string]string
	Body         any    // is sent as JSON; []byte and io.Reader as they are
	Secret       string // of the caller's key, or a token; "": the API says whether it wants one
	OnBehalfOf   string // user
	// Room is asked, unless nil, before a success is kept: for its Content-Length, or MaxAnswer when the API does not say.
	Room func(bytes int64) error
	// Kept is asked, unless nil, before more of a success is kept: for all of it until then, or for its longest event until then.
	Kept func(bytes int64) error
}

// Refusal is an answer of the API that is no success.
type Refusal struct {
	Status     int    `json:"-"`
	RetryAfter string `json:"-"`
	Code       string `json:"code"`
	Detail     string `json:"detail"`
}

func (e *Refusal) Error() string { return e.Detail }

// Caller is a request of the other protocol, whose answer goes to W. W is nil when the connection is a WebSocket by now.
type Caller struct {
	API http.Handler
	W   http.ResponseWriter
	R   *http.Request
}

// Make makes a request of the API from the caller's: it comes from the same address to the same host, with the same id.
func (c Caller) Make(q Request) (*http.Request, error) {
	var body io.Reader = http.NoBody
	kind := "application/octet-stream"
	switch b := q.Body.(type) {
	case nil:
	case []byte:
		body = bytes.NewReader(b)
	case io.Reader:
		body = b
	default:
		text, err := json.Marshal(b)
		if err != nil {
			return nil, sandbox.Wrap(sandbox.Internal, err, "the request cannot be written")
		}
		body, kind = bytes.NewReader(text), "application/json"
	}
	values := url.Values{}
	for k, v := range q.Query {
		values.Set(k, v)
	}
	u := url.URL{Path: q.Path, RawQuery: values.Encode()}
	r, err := http.NewRequestWithContext(c.R.Context(), q.Method, u.String(), body)
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Internal, err, "the request cannot be made")
	}
	if _, streamed := q.Body.(io.Reader); streamed {
		r.ContentLength = -1 // as of a body in chunks
	}
	r.Host, r.RemoteAddr, r.TLS, r.RequestURI = c.R.Host, c.R.RemoteAddr, c.R.TLS, u.String()
	for _, name := range []string{"Origin", "User-Agent", "X-Request-Id", "Traceparent", "Tracestate"} {
		if v, ok := c.R.Header[name]; ok {
			r.Header[name] = v
		}
	}
	if q.Secret != "" {
		r.Header.Set("Authorization", "Bearer "+q.Secret)
	}
	if q.OnBehalfOf != "" {
		r.Header.Set("On-Behalf-Of", q.OnBehalfOf)
	}
	if q.Body != nil {
		r.Header.Set("Content-Type", kind)
	}
	return r, nil
}

// Call sends a request to the API and waits for its answer. A *Refusal is an answer that is no success.
func (c Caller) Call(q Request) (*Answer, error) {
	r, err := c.Make(q)
	if err != nil {
		return nil, err
	}
	got := &Answer{w: c.W, header: http.Header{}, room: q.Room, kept: q.Kept}
	c.API.ServeHTTP(got, r)
	return got, c.told(got)
}

// Admit has the API take a credential, before anything of a request is read or answered.
func (c Caller) Admit(secret string) error {
	_, err := c.Call(Request{Method: http.MethodGet, Path: "/api/threads", Query: map[string]string{"limit": "1"}, Secret: secret})
	return err
}

// told is the error that an answer is, and says in the caller's answer which request it belongs to.
func (c Caller) told(got *Answer) error {
	if id := got.header.Get("X-Request-Id"); id != "" && c.W != nil {
		c.W.Header().Set("X-Request-Id", id)
	}
	if got.refused != nil {
		return got.refused
	}
	if got.over {
		return sandbox.Errorf(sandbox.QuotaExceeded, "the answer has more than %d bytes", MaxAnswer)
	}
	if got.status < 300 {
		return nil
	}
	return refusal(got.status, got.header, got.body.Bytes())
}

// Into calls the API and reads its answer.
func (c Caller) Into(q Request, out any) error {
	got, err := c.Call(q)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(got.body.Bytes(), out); err != nil {
		return sandbox.Wrap(sandbox.Internal, err, "the answer cannot be read")
	}
	return nil
}

// Answer is what the API says to a request.
type Answer struct {
	w      http.ResponseWriter // the caller's, for the deadlines of its connection
	header http.Header
	status int
	body   bytes.Buffer
	over   bool // there was more than MaxAnswer

	room    func(bytes int64) error // asked once, then nil
	kept    func(bytes int64) error // asked for each part
	refused error                   // what they said
}

// Body is all of it.
func (a *Answer) Body() []byte { return a.body.Bytes() }

// Header implements http.ResponseWriter.
func (a *Answer) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *Answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

// Write implements http.ResponseWriter.
func (a *Answer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	if err := a.begin(); err != nil {
		return 0, err
	}
	if a.body.Len()+len(p) > MaxAnswer {
		a.over = true
		return 0, fmt.Errorf("an answer of more than %d bytes", MaxAnswer)
	}
	if a.kept != nil && a.status < 300 {
		if a.refused = a.kept(int64(a.body.Len() + len(p))); a.refused != nil {
			return 0, a.refused
		}
	}
	return a.body.Write(p)
}

// begin asks for room for a success, once.
func (a *Answer) begin() error {
	if a.room == nil || a.refused != nil || a.status >= 300 {
		return a.refused
	}
	room := a.room
	a.room = nil
	size, err := strconv.ParseInt(a.header.Get("Content-Length"), 10, 64)
	if err != nil || size < 0 {
		size = MaxAnswer
	}
	if size > MaxAnswer {
		a.over = true
		return fmt.Errorf("an answer of more than %d bytes", MaxAnswer)
	}
	if a.refused = room(size); a.refused == nil && err == nil {
		a.body.Grow(int(size)) // no more than was asked for
	}
	return a.refused
}

// Flush does nothing: the caller gets the answer whole.
func (*Answer) Flush() {}

// SetReadDeadline does nothing: the body of the caller's request is read by its own, and what is read of the connection now only
// says that it is there.
func (*Answer) SetReadDeadline(time.Time) error { return nil }

// Unwrap leads to the connection, whose write deadline the API moves.
func (a *Answer) Unwrap() http.ResponseWriter { return a.w }
