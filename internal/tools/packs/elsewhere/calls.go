package elsewhere

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store"
	"github.com/skerry-sandbox/skerry/internal/tools/packs/manifest"
)

// Path begins the paths at which servers ask each other about packs.
const Path = "/peer/packs/"

const (
	pathCall     = Path + "call"
	pathManifest = Path + "manifest"
	pathLook     = Path + "look"
)

// Limits of what servers send each other.
const (
	maxHead     = 16 << 10 // bytes of the first line of a call
	maxInput    = 4 << 20
	maxLine     = 64 << 10 // bytes of a line of an answer
	maxResult   = 16 << 20
	maxManifest = 64 << 20
	maxDetail   = 4 << 10
	// waitingProgress are the messages of progress that wait for a server which reads slowly. More are dropped.
	waitingProgress = 64
	// longestCall bounds a call without a deadline.
	longestCall = time.Hour
	// afterDeadline is how long the server that has a pack waits beyond a caller's deadline: the caller ends the call.
	afterDeadline = time.Second
)

// head is the first line of a call. The arguments follow.
type head struct {
	Stream    sandbox.PackStream `json:"stream"`
	Tool      string             `json:"tool"`
	Thread    sandbox.Thread     `json:"thread"`
	TimeoutMS int64              `json:"timeout_ms,omitempty"`
}

// line is a line of the answer to a call: progress, or the end. Bytes of the result follow the last line.
type line struct {
	Progress *sandbox.ToolProgress `json:"progress,omitempty"`
	Bytes    int                   `json:"bytes,omitempty"`
	Error    *failure              `json:"error,omitempty"`
}

// failure is an error of a call.
type failure struct {
	Kind       sandbox.Kind `json:"kind"`
	Detail     string       `json:"detail"`
	NotStarted bool         `json:"not_started,omitempty"`
}

func failureOf(err error) *failure {
	f := &failure{Kind: sandbox.KindOf(err), Detail: sandbox.DetailOf(err), NotStarted: sandbox.IsNotStarted(err)}
	if f.Kind == "" || f.Detail == "" {
		f.Kind, f.Detail = sandbox.Unavailable, "the call was given up"
	}
	if len(f.Detail) > maxDetail {
		f.Detail = f.Detail[:maxDetail]
	}
	return f
}

func (f *failure) err() error {
	return &sandbox.Error{Kind: f.Kind, Detail: f.Detail, NotStarted: f.NotStarted}
}

// call makes a call at the server that has the stream.
func (p *Packs) call(ctx context.Context, s store.PackStream, call sandbox.PackCall) (json.RawMessage, error) {
	h := head{Stream: s.PackStream, Tool: call.Tool, Thread: call.Thread}
	if until, ok := ctx.Deadline(); ok {
		h.TimeoutMS = max(time.Until(until).Milliseconds(), 1)
	}
	first, err := json.Marshal(h)
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Internal, err, "the call cannot be written")
	}
	body := io.MultiReader(bytes.NewReader(first), bytes.NewReader([]byte("\n")), bytes.NewReader(call.Input))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address(s.Replica, pathCall, nil), body)
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Internal, err, "the call cannot be written")
	}
	req.ContentLength = int64(len(first) + 1 + len(call.Input))
	res, err := p.servers.Transport().RoundTrip(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if op := new(net.OpError); errors.As(err, &op) && op.Op == "dial" {
			return nil, sandbox.NotStarted(sandbox.Wrap(sandbox.Unavailable, err, "the pack %q is unavailable: the server that has it does not answer", s.ID))
		}
		return nil, lost(s, err)
	}
	defer res.Body.Close() //nolint:errcheck // all of it was read, or it is of no use
	if res.StatusCode != http.StatusOK {
		return nil, sandbox.NotStarted(sandbox.Errorf(sandbox.Unavailable, "the pack %q is unavailable: the server that has it refuses the call", s.ID))
	}
	raw, err := readAnswer(bufio.NewReaderSize(res.Body, maxLine), call.Progress)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, errBroken):
		return nil, lost(s, err)
	}
	return raw, err
}

// lost is the error of a call whose server went while it ran.
func lost(s store.PackStream, err error) error {
	return sandbox.Wrap(sandbox.Unavailable, err, "the server that has the pack %q went while the call ran, and the call may have had its effect", s.ID)
}

// errBroken says that an answer has no end.
var errBroken = errors.New("the answer of the other server is broken")

// readAnswer reads the answer to a call.
func readAnswer(r *bufio.Reader, progress func(sandbox.ToolProgress)) (json.RawMessage, error) {
	for {
		text, err := r.ReadSlice('\n')
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errBroken, err)
		}
		var l line
		switch err := json.Unmarshal(text, &l); {
		case err != nil:
			return nil, fmt.Errorf("%w: %w", errBroken, err)
		case l.Progress != nil:
			progress(*l.Progress)
			continue
		case l.Error != nil:
			return nil, l.Error.err()
		case l.Bytes < 0 || l.Bytes > maxResult:
			return nil, fmt.Errorf("%w: a result of %d bytes", errBroken, l.Bytes)
		}
		raw := make([]byte, l.Bytes)
		if _, err := io.ReadFull(r, raw); err != nil {
			return nil, fmt.Errorf("%w: %w", errBroken, err)
		}
		return raw, nil
	}
}

func address(server, path string, q url.Values) string {
	return (&url.URL{Scheme: "http", Host: server, Path: path, RawQuery: q.Encode()}).String()
}

// query names a stream in a URL.
func query(s sandbox.PackStream) url.Values {
	return url.Values{"tenant": {s.Tenant}, "id": {s.ID}, "owner": {s.Thread.Tenant}, "user": {s.Thread.User}, "thread": {s.Thread.ID}, "channel": {s.Channel}, "digest": {s.Digest}}
}

func streamOf(q url.Values) sandbox.PackStream {
	return sandbox.PackStream{
		Tenant: q.Get("tenant"), ID: q.Get("id"), Channel: q.Get("channel"), Digest: q.Get("digest"),
		Thread: sandbox.Thread{Owner: sandbox.Owner{Tenant: q.Get("owner"), User: q.Get("user")}, ID: q.Get("thread")},
	}
}

// errNotHere is the answer of a server that has no such stream any more.
var errNotHere = errors.New("it is not there any more")

// ask returns what a server answers.
func (p *Packs) ask(ctx context.Context, method, server, path string, q url.Values, limit int64) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, address(server, path, q), nil)
	if err != nil {
		return nil, err
	}
	res, err := p.servers.Transport().RoundTrip(req)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(res.Body, limit+1))
	if err = errors.Join(err, res.Body.Close()); err != nil {
		return nil, err
	}
	switch {
	case res.StatusCode == http.StatusNotFound:
		return nil, errNotHere
	case res.StatusCode >= http.StatusMultipleChoices:
		return nil, fmt.Errorf("the other server answers %s", res.Status)
	case int64(len(text)) > limit:
		return nil, fmt.Errorf("the answer has more than %d bytes", limit)
	}
	return text, nil
}

func (p *Packs) manifestOf(ctx context.Context, s store.PackStream) (*manifest.Manifest, error) {
	text, err := p.ask(ctx, http.MethodGet, s.Replica, pathManifest, query(s.PackStream), maxManifest)
	if err != nil {
		return nil, err
	}
	m, err := manifest.Read(text)
	if err == nil && (m.Digest != s.Digest || m.ID != s.ID) {
		return nil, errNotHere
	}
	return m, err
}

// nudge has another server look now, because of a pack. It would by itself a moment later.
func (p *Packs) nudge(ctx context.Context, server, pack string) {
	ctx, cancel := context.WithTimeout(ctx, nudgeTime)
	defer cancel()
	if _, err := p.ask(ctx, http.MethodPost, server, pathLook, nil, 0); err != nil {
		p.log.Warn("pack: another server was not told of it", "pack", pack, "server", server, "error", err)
	}
}

// Handler answers the other servers.
func (p *Packs) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+pathCall, p.serveCall)
	mux.HandleFunc("GET "+pathManifest, func(w http.ResponseWriter, r *http.Request) {
		m := p.own.Manifest(streamOf(r.URL.Query()))
		if m == nil {
			http.NotFound(w, r)
			return
		}
		writeJSON(w, m)
	})
	mux.HandleFunc("POST "+pathLook, func(w http.ResponseWriter, r *http.Request) {
		p.Look(r.Context())
		w.WriteHeader(http.StatusNoContent)
	})
	return mux
}

func writeJSON(w http.ResponseWriter, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		http.Error(w, "it cannot be written", http.StatusInternalServerError)
		return
	}
	_, _ = w.Write(text) // the other server sees that it is short
}

// serveCall makes a call of another server by a stream of this one.
func (p *Packs) serveCall(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxHead+1+maxInput))
	first, input, ok := bytes.Cut(body, []byte("\n"))
	var h head
	if err != nil || !ok || len(first) > maxHead || json.Unmarshal(first, &h) != nil {
		http.Error(w, "the call cannot be read", http.StatusBadRequest)
		return
	}
	timeout := longestCall
	if h.TimeoutMS > 0 {
		timeout = min(timeout, time.Duration(h.TimeoutMS)*time.Millisecond+afterDeadline)
	}
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	defer cancel()
	told := make(chan sandbox.ToolProgress, waitingProgress)
	type end struct {
		raw json.RawMessage
		err error
	}
	ended := make(chan end, 1)
	go func() {
		raw, err := p.own.Call(ctx, h.Stream, sandbox.PackCall{Tool: h.Tool, Input: input, Thread: h.Thread, Progress: func(t sandbox.ToolProgress) {
			select {
			case told <- t:
			default:
			}
		}})
		ended <- end{raw, err}
	}()
	out := json.NewEncoder(w)
	say := func(l line) {
		if out.Encode(l) == nil {
			_ = http.NewResponseController(w).Flush() // a lost connection ends ctx
		}
	}
	for {
		select {
		case t := <-told:
			say(line{Progress: &t})
		case e := <-ended:
			for len(told) > 0 {
				t := <-told
				say(line{Progress: &t})
			}
			if e.err != nil {
				say(line{Error: failureOf(e.err)})
				return
			}
			if out.Encode(line{Bytes: len(e.raw)}) == nil {
				_, _ = w.Write(e.raw) // the other server sees that it is short
			}
			return
		}
	}
}
