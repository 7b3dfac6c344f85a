package bridge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/call"
)

// withStatus is an error with a status of its own, where the kind's is too coarse.
type withStatus struct {
	error
	status int
}

func (w withStatus) Unwrap() error { return w.error }

func (ep *Endpoint) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /call", ep.serveCall)
	mux.HandleFunc("POST /{$}", ep.serveCall)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, []byte(`{"status":"ok"}`))
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if path := r.URL.Path; path == "/" || path == "/call" || path == "/healthz" {
			writeError(w, "", withStatus{sandbox.Errorf(sandbox.Invalid, "this path has no method %.20q", r.Method), http.StatusMethodNotAllowed})
			return
		}
		writeError(w, "", sandbox.Errorf(sandbox.NotFound, "no such path; tools are called by POST /call"))
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if p := recover(); p != nil {
				ep.bridge.log.Error("a panic in the bridge", "panic", p, "stack", string(debug.Stack()))
				writeError(w, "", sandbox.Errorf(sandbox.Internal, "internal error"))
			}
		}()
		mux.ServeHTTP(w, r)
	})
}

func (ep *Endpoint) serveCall(w http.ResponseWriter, r *http.Request) {
	e, why := ep.bridge.lookup(tokenOf(r), ep.thread)
	if e == nil {
		ep.recordRefusal(r.Context(), why)
		writeError(w, "", sandbox.Errorf(sandbox.Unauthorized, "the token in SKERRY_EXEC_TOKEN is not that of a running exec"))
		return
	}
	if err := e.admit(); err != nil {
		writeError(w, "", err)
		return
	}
	defer e.release()
	body, release, err := ep.read(w, r)
	if err != nil {
		writeError(w, "", err)
		return
	}
	defer release()
	ref, input, err := parseCall(body)
	if err != nil {
		writeError(w, call.NameOf(ref), err)
		return
	}
	spoke := ep.sayInterim(w, r)
	body, err = ep.bridge.call(r.Context(), e, ref, input)
	spoke()
	if err != nil {
		writeError(w, call.NameOf(ref), err)
		return
	}
	writeJSON(w, http.StatusOK, body)
}

// interimEvery is how often a caller that asks for it hears that its call goes on.
const interimEvery = time.Minute

// sayInterim answers 102 (Processing) from time to time when the caller asked for that: its client may stop
// waiting without an answer while a person decides. Other callers do not expect it. stop returns when
// nothing more is sent.
func (ep *Endpoint) sayInterim(w http.ResponseWriter, r *http.Request) (stop func()) {
	if r.Header.Get("Skerry-Interim") != "102" || !r.ProtoAtLeast(1, 1) {
		return func() {}
	}
	var wg sync.WaitGroup
	done := make(chan struct{})
	wg.Go(func() {
		tick := time.NewTicker(ep.interim)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerWait))
				w.WriteHeader(http.StatusProcessing)
			}
		}
	})
	return func() {
		close(done)
		wg.Wait()
	}
}

func tokenOf(r *http.Request) string {
	if scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(token)
	}
	return r.Header.Get("X-Skerry-Exec-Token")
}

// recordRefusal records a refused token, at most maxRefusals a second: code in a sandbox must not be
// able to fill the log. The next record says how many had none.
func (ep *Endpoint) recordRefusal(ctx context.Context, why string) {
	if !ep.refusals.Allow() {
		ep.unheard.Add(1)
		return
	}
	if n := ep.unheard.Swap(0); n > 0 {
		why = fmt.Sprintf("%s; %d more were refused before", why, n)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordWait)
	defer cancel()
	if err := ep.bridge.refusals.Refused(ctx, ep.thread, why); err != nil {
		ep.bridge.log.Error("a refused token is not recorded", "thread", ep.thread.String(), "error", err)
	}
}

// read returns the body of a request. The bodies of one sandbox together have a bound in memory; release
// frees the body's share.
func (ep *Endpoint) read(w http.ResponseWriter, r *http.Request) (body []byte, release func(), err error) {
	size := r.ContentLength
	if size > MaxBodyBytes {
		return nil, nil, errBodySize
	}
	if size < 0 {
		size = MaxBodyBytes
	}
	ctx, cancel := context.WithTimeout(r.Context(), requestWait)
	defer cancel()
	if err := ep.bodies.Acquire(ctx, size); err != nil {
		return nil, nil, sandbox.Errorf(sandbox.CapacityExceeded, "too many large tool calls of this sandbox at a time")
	}
	release = func() { ep.bodies.Release(size) }
	var buf bytes.Buffer
	if r.ContentLength > 0 {
		buf.Grow(int(r.ContentLength) + bytes.MinRead)
	}
	_, err = io.Copy(&buf, http.MaxBytesReader(w, r.Body, MaxBodyBytes))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		err = errBodySize
	case err != nil:
		err = sandbox.Wrap(sandbox.Invalid, err, "the body did not arrive whole")
	default:
		// From here on the call's own deadline counts.
		err = http.NewResponseController(w).SetReadDeadline(time.Time{})
	}
	if err != nil {
		release()
		return nil, nil, err
	}
	return buf.Bytes(), release, nil
}

var errBodySize = withStatus{
	sandbox.Errorf(sandbox.Invalid, "the body is larger than %d bytes", MaxBodyBytes), http.StatusRequestEntityTooLarge,
}

// parseCall reads {"tool","input"}, {"tool","arguments"} or {"server","tool","arguments"}. An error is
// Invalid and names the field.
func parseCall(body []byte) (ref sandbox.ToolRef, input []byte, err error) {
	if !utf8.Valid(body) {
		return ref, nil, sandbox.Errorf(sandbox.Invalid, "the body is not UTF-8")
	}
	var asked struct {
		Tool      string          `json:"tool"`
		Server    string          `json:"server"`
		Input     json.RawMessage `json:"input"`
		Arguments json.RawMessage `json:"arguments"`
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(&asked); err != nil {
		return ref, nil, sandbox.Errorf(sandbox.Invalid, "%s", cut(decodeFault(err), maxMessage))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return ref, nil, sandbox.Errorf(sandbox.Invalid, "the body holds more than one JSON value")
	}
	switch {
	case asked.Tool == "":
		return ref, nil, sandbox.Errorf(sandbox.Invalid, "tool: the name of a tool is required")
	case len(asked.Tool) > maxNameBytes:
		return ref, nil, sandbox.Errorf(sandbox.Invalid, "tool: longer than %d bytes", maxNameBytes)
	case len(asked.Server) > maxNameBytes:
		return ref, nil, sandbox.Errorf(sandbox.Invalid, "server: longer than %d bytes", maxNameBytes)
	case asked.Server != "":
		ref = sandbox.ToolRef{Server: asked.Server, Name: asked.Tool}
	default:
		ref = sandbox.ToolRef{Printed: asked.Tool}
	}
	field := "input"
	if input = asked.Input; input == nil {
		field, input = "arguments", asked.Arguments
	} else if asked.Arguments != nil {
		return ref, nil, sandbox.Errorf(sandbox.Invalid, "arguments: given together with input")
	}
	switch {
	case input == nil, string(input) == "null":
		input = []byte("{}")
	case input[0] != '{':
		return ref, nil, sandbox.Errorf(sandbox.Invalid, "%s: must be an object", field)
	}
	return ref, input, nil
}

func decodeFault(err error) string {
	var wrong *json.UnmarshalTypeError
	switch {
	case errors.As(err, &wrong) && wrong.Field != "":
		return wrong.Field + ": must not be a JSON " + wrong.Value
	case errors.As(err, &wrong):
		return "the body must be a JSON object"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the body is not JSON: it ends too early"
	}
	if field, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return "unknown field " + field
	}
	return "the body is not JSON: " + err.Error()
}

// writeError answers {"error":{"code","message","tool"}}.
func writeError(w http.ResponseWriter, tool string, err error) {
	kind := sandbox.KindOf(err)
	status := sandbox.HTTPStatus(err)
	var special withStatus
	if errors.As(err, &special) {
		status = special.status
	}
	message := "internal error"
	var shown *sandbox.Error
	if errors.As(err, &shown) && kind != sandbox.Internal {
		message = shown.Detail
		if shown.Limit != nil && shown.Limit.Wait > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(shown.Limit.RetryAfter()))
		}
	}
	var body struct {
		Error struct {
			Code    sandbox.Kind `json:"code"`
			Message string       `json:"message"`
			Tool    string       `json:"tool"`
		} `json:"error"`
	}
	body.Error.Code, body.Error.Message, body.Error.Tool = kind, cut(message, maxMessage), tool
	text, err := json.Marshal(body)
	if err != nil {
		text = []byte(`{"error":{"code":"internal","message":"internal error","tool":""}}`)
	}
	writeJSON(w, status, text)
}

// writeJSON answers with a body. Its length is given: small clients need no other framing.
func writeJSON(w http.ResponseWriter, status int, body []byte) {
	// An error means that the connection is gone, and then so is the reader.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerWait))
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}
