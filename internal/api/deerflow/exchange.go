package deerflow

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/skerry-sandbox/skerry/internal/api/auth"
	"github.com/skerry-sandbox/skerry/internal/platform/jsonedit"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

const (
	// maxBody bounds a request: a file of 50 MiB, DeerFlow's limit of an upload, in base64, and a little.
	maxBody = 72 << 20
	// maxValues bounds what a body is decoded to. DeerFlow sends a few fields and the variables of a command.
	maxValues = 10_000
	// maxAnswer bounds what is kept of an answer of the API.
	maxAnswer = 64 << 20
	// bodyTime is how long the body of a request may take, and an answer.
	bodyTime = 2 * time.Minute
)

// exchange is one request of DeerFlow.
type exchange struct {
	*adapter
	w      http.ResponseWriter
	r      *http.Request
	cred   auth.Credential // the key that it came with
	thread string          // of a sandbox's address
}

// request is one of the public API.
type request struct {
	method, path string
	query        map[string]string
	body         any    // is sent as JSON; []byte as it is
	onBehalfOf   string // user
}

// answer is what the API says to a request.
type answer struct {
	w      http.ResponseWriter // DeerFlow's, for the deadlines of its connection
	header http.Header
	status int
	body   bytes.Buffer
	over   bool // there was more than maxAnswer
}

func (a *adapter) begin(w http.ResponseWriter, r *http.Request) *exchange {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	return &exchange{adapter: a, w: w, r: r, cred: auth.Credential{Source: host}}
}

// api makes a request of the API from DeerFlow's: it comes from the same address to the same host, with the same id.
func (x *exchange) api(q request) (*http.Request, error) {
	var body []byte
	kind := "application/json"
	switch b := q.body.(type) {
	case nil:
	case []byte:
		body, kind = b, "application/octet-stream"
	default:
		var err error
		if body, err = json.Marshal(b); err != nil {
			return nil, sandbox.Wrap(sandbox.Internal, err, "the request cannot be written")
		}
	}
	values := url.Values{}
	for k, v := range q.query {
		values.Set(k, v)
	}
	u := url.URL{Path: q.path, RawQuery: values.Encode()}
	r, err := http.NewRequestWithContext(x.r.Context(), q.method, u.String(), bytes.NewReader(body))
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Internal, err, "the request cannot be made")
	}
	r.Host, r.RemoteAddr, r.TLS, r.RequestURI = x.r.Host, x.r.RemoteAddr, x.r.TLS, u.String()
	for _, name := range []string{"Origin", "User-Agent", "X-Request-Id", "Traceparent", "Tracestate"} {
		if v, ok := x.r.Header[name]; ok {
			r.Header[name] = v
		}
	}
	r.Header.Set("Authorization", "Bearer "+x.cred.Secret)
	if q.onBehalfOf != "" {
		r.Header.Set("On-Behalf-Of", q.onBehalfOf)
	}
	if q.body != nil {
		r.Header.Set("Content-Type", kind)
	}
	return r, nil
}

// call sends a request to the API and waits for its answer.
func (x *exchange) call(q request) (*answer, error) {
	r, err := x.api(q)
	if err != nil {
		return nil, err
	}
	got := &answer{w: x.w, header: http.Header{}}
	x.API.ServeHTTP(got, r)
	if id := got.header.Get("X-Request-Id"); id != "" {
		x.w.Header().Set("X-Request-Id", id)
	}
	if got.over {
		return nil, sandbox.Errorf(sandbox.QuotaExceeded, "the answer has more than %d bytes", maxAnswer)
	}
	return got, nil
}

// refusal is an answer of the API that is no success.
type refusal struct {
	status     int
	retryAfter string
	Code       string `json:"code"`
	Detail     string `json:"detail"`
}

func (e *refusal) Error() string { return e.Detail }

// must makes an error of an answer that is no success.
func (x *exchange) must(got *answer, err error) error {
	if err != nil {
		return err
	}
	if got.status < 300 {
		return nil
	}
	e := &refusal{}
	if json.Unmarshal(got.body.Bytes(), e) != nil || e.Code == "" {
		e.Code, e.Detail = string(sandbox.Internal), "the server's answer was "+strconv.Itoa(got.status)
	}
	e.status, e.retryAfter = got.status, got.header.Get("Retry-After")
	return e
}

// into calls the API and reads its answer.
func (x *exchange) into(q request, out any) error {
	got, err := x.call(q)
	if err := x.must(got, err); err != nil {
		return err
	}
	if err := json.Unmarshal(got.body.Bytes(), out); err != nil {
		return sandbox.Wrap(sandbox.Internal, err, "the answer cannot be read")
	}
	return nil
}

// finish answers a request whose handler failed.
func (x *exchange) finish(err error) {
	if err == nil {
		return
	}
	var e *refusal
	var many *auth.TooMany
	switch status := sandbox.HTTPStatus(err); {
	case errors.As(err, &e):
		if e.retryAfter != "" {
			x.w.Header().Set("Retry-After", e.retryAfter)
		}
		fail(x.w, e.status, e.Code, e.Detail)
	case errors.As(err, &many):
		x.w.Header().Set("Retry-After", strconv.Itoa(many.Seconds()))
		fail(x.w, http.StatusTooManyRequests, string(sandbox.QuotaExceeded), many.Error())
	case status == http.StatusInternalServerError:
		fail(x.w, http.StatusInternalServerError, string(sandbox.Internal), "the server failed; its log says why")
	default:
		detail := err.Error()
		var own *sandbox.Error
		if errors.As(err, &own) {
			detail = own.Detail
		}
		fail(x.w, status, string(sandbox.KindOf(err)), detail)
	}
}

// fail answers with an error, as the provisioner (detail) and the all-in-one sandbox (success, message) do.
func fail(w http.ResponseWriter, status int, code, detail string) {
	write(w, status, map[string]any{"success": false, "message": detail, "data": nil, "detail": detail, "code": code})
}

func write(w http.ResponseWriter, status int, v any) {
	// The deadline of the request before, on the same connection, may have passed.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(bodyTime)) // fails where there is no connection
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client is gone when this fails
}

// ok answers as the all-in-one sandbox does.
func (x *exchange) ok(data any) error {
	write(x.w, http.StatusOK, map[string]any{"success": true, "message": "done", "data": data})
	return nil
}

// body reads the JSON of a request. An unknown field is refused: another version of DeerFlow may need it.
func (x *exchange) body(out any) error {
	if kind, _, err := mime.ParseMediaType(x.r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return sandbox.Errorf(sandbox.Invalid, "Content-Type: the body has to be application/json")
	}
	rc := http.NewResponseController(x.w)
	_ = rc.SetReadDeadline(time.Now().Add(bodyTime)) // fails where there is no connection
	raw, err := io.ReadAll(http.MaxBytesReader(x.w, x.r.Body, maxBody))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return sandbox.Errorf(sandbox.QuotaExceeded, "the body has more than %d bytes", maxBody)
	case err != nil:
		return &refusal{status: http.StatusRequestTimeout, Code: string(sandbox.Timeout), Detail: fmt.Sprintf("the body did not arrive whole within %s", bodyTime)}
	}
	_ = rc.SetReadDeadline(time.Time{})
	return decode(raw, out)
}

// decode reads one JSON object.
func decode(raw []byte, out any) error {
	if jsonedit.Values(raw) > maxValues {
		return sandbox.Errorf(sandbox.Invalid, "the body has more than %d values", maxValues)
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(out); err != nil {
		return sandbox.Errorf(sandbox.Invalid, "the body: %s", brief(err.Error()))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return sandbox.Errorf(sandbox.Invalid, "the body: one JSON object, and nothing after it")
	}
	return nil
}

// notSupported refuses fields that are known and not served, when they are set.
func notSupported(set map[string]bool) error {
	for name, is := range set {
		if is {
			return sandbox.Errorf(sandbox.NotSupported, "%s is not supported: DeerFlow does not send it", name)
		}
	}
	return nil
}

// brief cuts a text that may have come with the request.
func brief(text string) string {
	if len(text) > 300 {
		text = text[:300] + "…"
	}
	return strings.ToValidUTF8(text, "?")
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

func (a *answer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	if a.body.Len()+len(p) > maxAnswer {
		a.over = true
		return 0, fmt.Errorf("an answer of more than %d bytes", maxAnswer)
	}
	return a.body.Write(p)
}

// Flush does nothing: DeerFlow gets the answer whole.
func (*answer) Flush() {}

// SetReadDeadline does nothing: the body of DeerFlow's request was read, and what is read of the connection now only says that it is there.
func (*answer) SetReadDeadline(time.Time) error { return nil }

// Unwrap leads to the connection, whose write deadline the API moves.
func (a *answer) Unwrap() http.ResponseWriter { return a.w }
