package skerry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/coder/websocket"
)

// Terminal is a connection to the terminal of an exec. It is an io.ReadWriteCloser: Read returns what the terminal shows, and io.EOF when
// its program has ended. One goroutine may read while others write. To close it never ends the exec.
type Terminal struct {
	ctx  context.Context //nolint:containedctx // of the connection
	conn *websocket.Conn
	rest []byte
	next uint64
	exit *TerminalExit
}

// TerminalExit is the end of a terminal's program; ExecResult has the whole.
type TerminalExit struct {
	ExecID         string `json:"exec_id"`
	Status         string `json:"status"`
	ExitCode       *int   `json:"exit_code"`
	DurationMillis int64  `json:"duration_ms"`
}

// Terminal joins the terminal of an exec that Start began with a PTY. after is the number of the last event that the caller has: 0 for
// all that is kept. It lasts until ctx ends, or Close.
func (t *Thread) Terminal(ctx context.Context, execID string, after uint64) (*Terminal, error) {
	q := url.Values{"exec": {execID}}
	if after > 0 {
		q.Set("after", strconv.FormatUint(after, 10))
	}
	header := http.Header{"User-Agent": {t.c.o.UserAgent}}
	if t.c.o.Key != "" {
		header.Set("Authorization", "Bearer "+t.c.o.Key)
	}
	if t.c.o.OnBehalfOf != "" {
		header.Set(headerOnBehalfOf, t.c.o.OnBehalfOf)
	}
	dial, cancel := context.WithTimeout(ctx, t.c.o.Timeout)
	defer cancel()
	o := &websocket.DialOptions{HTTPClient: t.c.o.HTTP, HTTPHeader: header}
	conn, res, err := websocket.Dial(dial, t.c.server+t.path("pty")+"?"+q.Encode(), o) //nolint:bodyclose // the package keeps what it needs of it
	if err != nil {
		if res != nil && res.StatusCode >= http.StatusBadRequest {
			return nil, ErrorFrom(res)
		}
		return nil, err
	}
	conn.SetReadLimit(maxShownFrame)
	return &Terminal{ctx: ctx, conn: conn, next: 1}, nil
}

// Read returns what the terminal shows.
func (t *Terminal) Read(p []byte) (int, error) {
	for len(t.rest) == 0 {
		if t.exit != nil {
			return 0, io.EOF
		}
		kind, data, err := t.conn.Read(t.ctx)
		if err != nil {
			return 0, &LostError{Err: fmt.Errorf("the terminal was cut off before event %d: %w", t.next, err)}
		}
		if kind == websocket.MessageBinary {
			t.next++
			t.rest = data
			continue
		}
		said := struct {
			Next *uint64       `json:"next"`
			Exit *TerminalExit `json:"exit"`
		}{}
		if err := json.Unmarshal(data, &said); err != nil {
			return 0, err
		}
		if said.Next != nil {
			t.next = *said.Next
		}
		t.exit = said.Exit
	}
	n := copy(p, t.rest)
	t.rest = t.rest[n:]
	return n, nil
}

// Write types.
func (t *Terminal) Write(p []byte) (int, error) {
	for at := 0; at < len(p); at += sentFrame {
		if err := t.conn.Write(t.ctx, websocket.MessageBinary, p[at:min(at+sentFrame, len(p))]); err != nil {
			return at, err
		}
	}
	return len(p), nil
}

// Resize says how large the terminal is now, 1 to 1000 each.
func (t *Terminal) Resize(cols, rows uint16) error {
	data, err := json.Marshal(map[string]PTYSize{"resize": {Cols: cols, Rows: rows}})
	if err != nil {
		return err
	}
	return t.conn.Write(t.ctx, websocket.MessageText, data)
}

// Next is the number of the next event: one who was cut off joins again with after = Next()-1. It is for the goroutine that reads.
func (t *Terminal) Next() uint64 { return t.next }

// Exit is how the program ended, nil until Read returned io.EOF.
func (t *Terminal) Exit() *TerminalExit { return t.exit }

// Close lets go of the terminal.
func (t *Terminal) Close() error {
	err := t.conn.Close(websocket.StatusNormalClosure, "")
	var closed websocket.CloseError
	if errors.As(err, &closed) || err != nil && strings.Contains(err.Error(), "already") {
		return nil
	}
	return err
}
