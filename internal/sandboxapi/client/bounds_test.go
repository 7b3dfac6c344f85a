package client

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	sandboxv1 "github.com/skerry-sandbox/skerry/internal/sandboxapi/v1"
)

// TestEveryAnswerHasLimits: a message of the contract without a row could not be read at all.
func TestEveryAnswerHasLimits(t *testing.T) {
	t.Parallel()
	if len(procedures) < 20 {
		t.Fatalf("%d procedures", len(procedures))
	}
	for path, a := range procedures {
		if a.bytes == 0 {
			t.Errorf("%s: its answer has no limits", path)
		}
		if a.bytes > maxMessage {
			t.Errorf("%s: an answer of %d bytes, which Connect refuses", path, a.bytes)
		}
	}
}

// raw answers every call with the same bytes.
type raw struct {
	status int
	kind   string // Content-Type
	body   []byte
}

func (r raw) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", r.kind)
	w.WriteHeader(r.status)
	_, _ = w.Write(r.body) // the client may have gone
}

// enveloped is a message of a stream.
func enveloped(flags byte, body []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(body))), body...)
}

// hostileAnswers have much more memory than bytes, when they are read as Connect reads them.
func hostileAnswers() map[string]raw {
	const json, one, many = "application/json", "application/proto", "application/connect+proto"
	details := []byte(`{"code":"internal","details":[{}` + strings.Repeat(",{}", 300_000) + `]}`)
	metadata := []byte(`{"metadata":{"a":[""` + strings.Repeat(`,""`, 300_000) + `]}}`)
	return map[string]raw{
		"half a million execs":        {200, one, bytes.Repeat([]byte{0x1a, 0}, 500_000)},
		"half a million languages":    {200, one, bytes.Repeat([]byte{0x22, 0}, 500_000)},
		"unknown fields":              {200, one, bytes.Repeat([]byte{0xfa, 0x7f, 0}, 1_000_000)},
		"details of an error":         {500, json, details},
		"half a million results":      {200, many, enveloped(0, append([]byte{0x2a, 0xc0, 0x84, 0x3d}, bytes.Repeat([]byte{0x52, 0}, 500_000)...))},
		"details at a stream's end":   {200, many, enveloped(2, append(append([]byte(`{"error":`), details...), '}'))},
		"metadata at a stream's end":  {200, many, enveloped(2, metadata)},
		"a message of four gigabytes": {200, many, append([]byte{0, 255, 255, 255, 255}, make([]byte, 2<<20)...)},
	}
}

// TestHostileAnswersCostNoMemory: what breaks the contract is refused before it is decoded.
func TestHostileAnswersCostNoMemory(t *testing.T) {
	for name, answer := range hostileAnswers() {
		c, _ := serve(t, answer)
		if _, err := c.link.Conn(t.Context()); err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		var err error
		if strings.Contains(answer.kind, "connect+") {
			_, err = c.Run(t.Context(), &sandboxv1.RunRequest{ExecId: "x", ContextId: "c"}, ignore)
		} else {
			_, err = c.Status(t.Context())
		}
		runtime.ReadMemStats(&after)
		if !errors.Is(err, ErrContract) {
			t.Errorf("%s: %v", name, err)
		}
		// Both sides read and write the bytes: those of a message grow in a buffer.
		if n, most := after.TotalAlloc-before.TotalAlloc, uint64(8*len(answer.body)+2<<20); n > most {
			t.Errorf("%s: %d bytes of memory for %d, want less than %d", name, n, len(answer.body), most)
		}
	}
}

// TestErrorsBelowTheLimit come through as they are.
func TestErrorsBelowTheLimit(t *testing.T) {
	t.Parallel()
	h := &hostile{err: connect.NewError(connect.CodeNotFound, errors.New(strings.Repeat("x", 10_000)))}
	c, _ := h.serve(t)
	if err := c.Kill(t.Context(), "x"); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("kill: %v", err)
	}
	if _, err := c.Attach(t.Context(), "x", 0, ignore); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("attach: %v", err)
	}
}

// TestLargestExit: the tails of both streams and all results of the largest exec arrive.
func TestLargestExit(t *testing.T) {
	t.Parallel()
	const half = sandbox.MaxOutputBytes / 2
	tails := exit(1, func(x *sandboxv1.Exit) {
		x.Stdout = &sandboxv1.Stream{Total: 1 << 40, Tail: make([]byte, half)}
		x.Stderr = &sandboxv1.Stream{Total: 1 << 40, Tail: make([]byte, half)}
	})
	results := exit(1, func(x *sandboxv1.Exit) {
		for range sandbox.MaxResults {
			x.Results = append(x.Results, make([]byte, sandbox.MaxResultBytes/sandbox.MaxResults))
		}
		x.Stdout, x.Stderr = &sandboxv1.Stream{}, &sandboxv1.Stream{}
	})
	for name, req := range map[string]*sandboxv1.RunRequest{
		"tails": {ExecId: "x", MaxOutputBytes: sandbox.MaxOutputBytes}, "results": {ExecId: "x", ContextId: "c"},
	} {
		h := &hostile{events: []*sandboxv1.Event{tails}}
		if name == "results" {
			h.events = []*sandboxv1.Event{results}
		}
		c, _ := h.serve(t)
		if _, err := c.Run(t.Context(), req, ignore); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestManySmallEvents: output in pieces of a byte takes a hundred times its length, so the pieces are counted.
func TestManySmallEvents(t *testing.T) {
	t.Parallel()
	f := follower{emit: ignore, limit: sandbox.MaxOutputBytes, began: time.Now(), live: nil}
	var err error
	n := uint64(0)
	for err == nil && n < sandbox.MaxOutputBytes {
		n++
		err = f.take(t.Context(), output(n, 1))
	}
	if !errors.Is(err, ErrContract) || n < 100_000 || n > 250_000 {
		t.Errorf("%v after %d events", err, n)
	}
	// An honest sandboxd sends full pieces as fast as it can, and small ones in an hour.
	f = follower{emit: ignore, limit: sandbox.MaxOutputBytes, began: time.Now()}
	for n := uint64(1); n <= sandbox.MaxOutputBytes/1024; n++ {
		if err := f.take(t.Context(), output(n, 1024)); err != nil {
			t.Fatal(err)
		}
	}
	f = follower{emit: ignore, limit: sandbox.DefaultOutputBytes, began: time.Now().Add(-time.Hour)}
	for n := uint64(1); n <= 120_000; n++ {
		if err := f.take(t.Context(), output(n, 1)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestEmptyPartsOfAFile have no end, so there are none.
func TestEmptyPartsOfAFile(t *testing.T) {
	t.Parallel()
	h := &hostile{chunks: [][]byte{{1}, {}}}
	c, _ := h.serve(t)
	var b bytes.Buffer
	if _, err := c.ReadFile(t.Context(), "/x", 0, 0, &b); !errors.Is(err, ErrContract) {
		t.Errorf("%v", err)
	}
}

// FuzzAnswers: whatever bytes come as an answer, the client returns what passes its checks, or an error.
func FuzzAnswers(f *testing.F) {
	for _, a := range hostileAnswers() {
		f.Add(a.body[:min(len(a.body), 4<<10)], uint16(a.status), a.kind)
	}
	for _, m := range []proto.Message{
		&sandboxv1.StatusResponse{Version: "1", Execs: []*sandboxv1.ExecStatus{{ExecId: "x", Running: true}}, Languages: []string{"python"}},
		&sandboxv1.ListDirResponse{Items: []*sandboxv1.FileInfo{{Path: "/a"}}},
		exit(1, func(x *sandboxv1.Exit) { x.Results = [][]byte{[]byte("{}")} }),
	} {
		text, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, uint16(200), "application/proto")
		f.Add(enveloped(0, text), uint16(200), "application/connect+proto")
	}
	f.Fuzz(func(t *testing.T, body []byte, status uint16, kind string) {
		api := newAPI(answering{raw{int(status)%400 + 200, kind, body}})
		if res, err := api.Status(t.Context(), connect.NewRequest(&sandboxv1.StatusRequest{})); err == nil {
			n := len(res.Msg.GetExecs()) + len(res.Msg.GetLanguages()) + len(res.Msg.GetRoots()) + len(res.Msg.GetContexts()) + len(res.Msg.GetInterpreters())
			if n > maxExecs+4*maxStrings {
				t.Errorf("a status of %d parts", n)
			}
		}
		s, err := api.Run(t.Context(), connect.NewRequest(&sandboxv1.RunRequest{ExecId: "x"}))
		if err != nil {
			return
		}
		defer s.Close()
		for s.Receive() {
			if n := len(s.Msg().GetExit().GetResults()); n > sandbox.MaxResults+2 {
				t.Errorf("an exit with %d results", n)
			}
		}
	})
}

// answering is a connection on which each call has the same answer.
type answering struct{ raw }

func (a answering) Do(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		_, _ = io.Copy(io.Discard, req.Body) // it is in memory
	}
	return &http.Response{
		StatusCode: a.status, Status: strconv.Itoa(a.status), Header: http.Header{"Content-Type": {a.kind}}, Trailer: http.Header{},
		Body: io.NopCloser(bytes.NewReader(a.body)), Request: req, Proto: "HTTP/2.0", ProtoMajor: 2,
	}, nil
}
