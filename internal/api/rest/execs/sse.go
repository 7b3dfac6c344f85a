package execs

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/skerry-sandbox/skerry/internal/api/rest/eventstream"
	"github.com/skerry-sandbox/skerry/internal/api/rest/exchange"
	"github.com/skerry-sandbox/skerry/internal/api/rest/problem"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// lookBack is how many events before the wanted one are read again when a stream is resumed: a
// character that was split between two of them belongs to the later one.
const lookBack = 64

// execStream writes the events of an exec as server-sent events. Its methods may be called by the
// goroutines that follow the exec and keep the stream alive.
type execStream struct {
	x      *exchange.Exchange
	w      http.ResponseWriter
	exec   string
	after  uint64 // events up to this number were sent in a former stream
	shape  func(*sandbox.Result) any
	beat   time.Duration // of the heartbeat
	gone   context.CancelFunc
	mu     sync.Mutex
	begun  bool
	ended  bool
	out    bytes.Buffer
	enc    *json.Encoder
	stdout textStream
	stderr textStream
}

// stream follows an exec to its end. shape makes of the result what the last event shows.
func (s execRoutes) stream(ctx context.Context, w http.ResponseWriter, thread, exec string, after uint64, shape func(*sandbox.Result) any) {
	ctx, because := context.WithCancelCause(ctx)
	cancel := func() { because(nil) }
	defer cancel()
	x := exchange.Of(ctx)
	defer s.access.Watch(x.Request, x.Caller, func() { because(errRevoked) })()
	e := &execStream{x: x, w: w, exec: exec, after: after, shape: shape, beat: s.heartbeat, gone: cancel}
	e.enc = json.NewEncoder(&e.out)
	e.enc.SetEscapeHTML(false)
	var wg sync.WaitGroup
	wg.Go(func() { e.keepAlive(ctx) })
	from := after - min(after, lookBack)
	err := s.execs.Events(ctx, x.Caller, thread, exec, from, e.emit)
	if err != nil && errors.Is(context.Cause(ctx), errRevoked) {
		err = errRevoked
	}
	cancel()
	wg.Wait()
	e.end(ctx, err)
}

// errRevoked ends the stream of a client whose credential is not good any more. The exec goes on.
var errRevoked = sandbox.Errorf(sandbox.Unauthorized, "the key is not valid any more")

func (e *execStream) keepAlive(ctx context.Context) {
	tick := time.NewTicker(e.beat)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			e.mu.Lock()
			e.out.WriteString(": \n\n")
			err := e.send()
			e.mu.Unlock()
			if err != nil {
				e.gone()
				return
			}
		}
	}
}

// emit writes one event.
func (e *execStream) emit(ev sandbox.Event) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch ev.Type {
	case sandbox.EventStdout:
		e.output(ev, &e.stdout)
	case sandbox.EventStderr:
		e.output(ev, &e.stderr)
	case sandbox.EventExit:
		e.leftOver(ev.N-1, sandbox.EventStdout, &e.stdout)
		e.leftOver(ev.N-1, sandbox.EventStderr, &e.stderr)
		if ev.N > e.after && ev.Result != nil {
			e.write(ev.N, ev.Type, e.shape(ev.Result))
		}
		e.ended = true
	case sandbox.EventApprovalRequired, sandbox.EventApprovalDecided:
		if ev.N > e.after && ev.Approval != nil {
			e.write(ev.N, ev.Type, ev.Approval)
		}
	default:
		if ev.N > e.after {
			e.write(ev.N, ev.Type, startedData{ExecID: e.exec, At: ev.Time.UTC()})
		}
	}
	if ev.N <= e.after && !e.ended {
		e.out.Reset()
		return nil
	}
	return e.send()
}

// startedData is what the started event carries.
type startedData struct {
	ExecID string    `json:"exec_id"`
	At     time.Time `json:"at"`
}

// outputData is what stdout and stderr events carry.
type outputData struct {
	Data     string `json:"data"`
	Encoding string `json:"encoding,omitempty"`
}

func (e *execStream) output(ev sandbox.Event, t *textStream) {
	d := t.next(ev.Data)
	if ev.N > e.after {
		e.write(ev.N, ev.Type, d)
	}
}

// leftOver writes what was held back of a character that never got whole.
func (e *execStream) leftOver(n uint64, typ sandbox.EventType, t *textStream) {
	if len(t.held) > 0 && n >= e.after {
		e.write(n, typ, outputData{Data: base64.StdEncoding.EncodeToString(t.held), Encoding: "base64"})
	}
	t.held = nil
}

func (e *execStream) write(n uint64, typ sandbox.EventType, data any) {
	e.out.WriteString("id: ")
	e.out.Write(strconv.AppendUint(e.out.AvailableBuffer(), n, 10))
	e.out.WriteString("\nevent: ")
	e.out.WriteString(string(typ))
	e.out.WriteString("\ndata: ")
	if err := e.enc.Encode(data); err != nil { // ends with a line end
		e.out.WriteString("{}\n")
	}
	e.out.WriteByte('\n')
}

// send puts what was written on the wire. The caller holds mu.
func (e *execStream) send() error {
	defer e.out.Reset()
	return eventstream.Write(e.w, e.x, &e.begun, e.out.Bytes())
}

// end answers with a problem, or an event "error" when events are out already.
func (e *execStream) end(ctx context.Context, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if errors.Is(err, exchange.ErrGone) || e.x.Request.Context().Err() != nil {
		return
	}
	if err == nil && !e.ended && !e.begun {
		// An exec that had ended before the event that the client has already.
		_ = e.send()
		return
	}
	if err == nil {
		return
	}
	p := exchange.Problem(ctx, err)
	if !e.begun {
		problem.Write(e.w, p)
		return
	}
	e.out.WriteString("event: " + eventstream.EventError + "\ndata: ")
	if e.enc.Encode(p) == nil {
		e.out.WriteByte('\n')
		_ = e.send()
	}
}

// textStream makes text of the pieces of an output stream. It holds back the end of a piece that may begin a
// character until the next piece. So a cut in the middle of a character never turns text into base64.
type textStream struct{ held []byte }

func (t *textStream) next(piece []byte) outputData {
	data := piece
	if len(t.held) > 0 {
		data = append(t.held, piece...)
		t.held = nil
	}
	whole := data[:len(data)-partial(data)]
	if utf8.Valid(whole) {
		if len(whole) < len(data) {
			t.held = bytes.Clone(data[len(whole):])
		}
		return outputData{Data: string(whole)}
	}
	return outputData{Data: base64.StdEncoding.EncodeToString(data), Encoding: "base64"}
}

// partial is how many bytes at the end of data are the beginning of a character that is not whole.
func partial(data []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(data); n++ {
		tail := data[len(data)-n:]
		if utf8.RuneStart(tail[0]) {
			if utf8.FullRune(tail) {
				return 0
			}
			return n
		}
	}
	return 0
}
