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
	"strconv"
	"strings"
	"time"

	"github.com/skerry-sandbox/skerry/internal/api/auth"
	"github.com/skerry-sandbox/skerry/internal/api/held"
	"github.com/skerry-sandbox/skerry/internal/api/inprocess"
	"github.com/skerry-sandbox/skerry/internal/platform/jsonedit"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

const (
	// maxBody bounds a request to a sandbox: a file of 50 MiB, DeerFlow's limit of an upload, in base64, and a little.
	maxBody = 72 << 20
	// maxProvision bounds a request to the provisioner.
	maxProvision = 64 << 10
	// maxValues bounds what a body is decoded to. DeerFlow sends a few fields and the variables of a command.
	maxValues = 10_000
	// bodyTime is how long the body of a request may take, and an answer.
	bodyTime = 2 * time.Minute
)

// exchange is one request of DeerFlow.
type exchange struct {
	*adapter
	w      http.ResponseWriter
	r      *http.Request
	cred   auth.Credential // the key that it came with
	thread string          // of a sandbox's address; "": the request is one to the provisioner
	held   *held.Request   // what it keeps
}

func (a *adapter) begin(w http.ResponseWriter, r *http.Request) *exchange {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	return &exchange{adapter: a, w: w, r: r, cred: auth.Credential{Source: host}}
}

func (x *exchange) caller() inprocess.Caller { return inprocess.Caller{API: x.API, W: x.w, R: x.r} }

// with adds the key of the exchange to a request, and counts what is kept of the answer.
func (x *exchange) with(q inprocess.Request) inprocess.Request {
	q.Secret = x.cred.Secret
	if x.held != nil && q.Room == nil {
		q.Kept = x.held.Answer(x.r.Context())
	}
	return q
}

func (x *exchange) call(q inprocess.Request) (*inprocess.Answer, error) {
	return x.caller().Call(x.with(q))
}

// do is call for what answers with nothing of interest.
func (x *exchange) do(q inprocess.Request) error {
	_, err := x.call(q)
	return err
}

func (x *exchange) into(q inprocess.Request, out any) error { return x.caller().Into(x.with(q), out) }

// finish answers a request whose handler failed.
func (x *exchange) finish(err error) {
	if err == nil {
		return
	}
	var many *auth.TooMany
	if errors.As(err, &many) {
		x.w.Header().Set("Retry-After", strconv.Itoa(many.Seconds()))
		fail(x.w, http.StatusTooManyRequests, string(sandbox.QuotaExceeded), many.Error())
		return
	}
	status, code, detail := inprocess.Reason(x.w, err)
	fail(x.w, status, code, detail)
}

// fail answers with an error, as the provisioner (detail) and the all-in-one sandbox (success, message) do.
func fail(w http.ResponseWriter, status int, code, detail string) {
	inprocess.Write(w, status, map[string]any{"success": false, "message": detail, "data": nil, "detail": detail, "code": code})
}

// ok answers as the all-in-one sandbox does.
func (x *exchange) ok(data any) error {
	inprocess.Write(x.w, http.StatusOK, map[string]any{"success": true, "message": "done", "data": data})
	return nil
}

// body reads the JSON of a request. An unknown field is refused: another version of DeerFlow may need it.
func (x *exchange) body(out any) error {
	if kind, _, err := mime.ParseMediaType(x.r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return sandbox.Errorf(sandbox.Invalid, "Content-Type: the body has to be application/json")
	}
	most := int64(maxProvision)
	if x.thread != "" {
		most = maxBody
	}
	if err := x.held.TakeBody(x.r.Context(), x.r.ContentLength, most); err != nil {
		return err
	}
	rc := http.NewResponseController(x.w)
	_ = rc.SetReadDeadline(time.Now().Add(bodyTime)) // fails where there is no connection
	raw, err := io.ReadAll(http.MaxBytesReader(x.w, x.r.Body, most))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return sandbox.Errorf(sandbox.QuotaExceeded, "the body has more than %d bytes", most)
	case err != nil:
		return &inprocess.Refusal{Status: http.StatusRequestTimeout, Code: string(sandbox.Timeout), Detail: fmt.Sprintf("the body did not arrive whole within %s", bodyTime)}
	}
	_ = rc.SetReadDeadline(time.Time{})
	x.held.KeepBody(len(raw)) // less than it might have been
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
