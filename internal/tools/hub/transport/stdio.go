package transport

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skerry-sandbox/skerry/internal/platform/jsonedit"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/excerpt"
)

// Stdio connects the SDK to a process: one JSON-RPC message a line on its standard input and output. It
// differs from the SDK's own in how it treats a server that misbehaves. A line that is no message is
// skipped, because many servers print a banner. A message that is too long fails its call alone. The end of
// the connection takes all of the server's processes with it.
type Stdio struct {
	start   func(ctx context.Context) (*Process, error)
	traffic *Traffic
	log     *slog.Logger
}

// NewStdio returns a transport to the process that start starts.
func NewStdio(t *Traffic, log *slog.Logger, start func(ctx context.Context) (*Process, error)) *Stdio {
	return &Stdio{start: start, traffic: t, log: log}
}

// Connect implements mcp.Transport.
func (t *Stdio) Connect(ctx context.Context) (mcp.Connection, error) {
	p, err := t.start(ctx)
	if err != nil {
		return nil, err
	}
	s := &stdioConn{p: p, in: newFrames(&p.line, t.traffic.limit), traffic: t.traffic, log: t.log, writing: make(chan struct{}, 1)}
	s.writing <- struct{}{}
	return s, nil
}

type stdioConn struct {
	p       *Process
	in      *frames // read by one goroutine, the SDK's
	traffic *Traffic
	log     *slog.Logger

	writing chan struct{} // holds a token while nothing is written
	batch   []jsonrpc.Message
}

// SessionID implements mcp.Connection.
func (*stdioConn) SessionID() string { return "" }

// Read implements mcp.Connection. Close ends it.
func (s *stdioConn) Read(context.Context) (jsonrpc.Message, error) {
	for {
		if len(s.batch) > 0 {
			msg := s.batch[0]
			s.batch = s.batch[1:]
			return msg, nil
		}
		line, err := s.in.next()
		var large tooLarge
		if errors.As(err, &large) && large.id != nil {
			line, err = s.traffic.skipped(large.id), nil
		} else if errors.As(err, &large) {
			continue // no caller can be told
		}
		if err != nil {
			if errors.Is(err, os.ErrClosed) || errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) {
				err = io.EOF
			}
			return nil, err
		}
		s.batch = s.decode(line)
	}
}

// decode returns the messages of a line: one, those of a batch, or none.
func (s *stdioConn) decode(line []byte) []jsonrpc.Message {
	parts := []json.RawMessage{line}
	if line[0] == '[' && (jsonedit.Values(line) > maxValues || json.Unmarshal(line, &parts) != nil) {
		parts = nil
	}
	var list []jsonrpc.Message
	for _, part := range parts {
		msg, err := jsonrpc.DecodeMessage(part)
		if err != nil {
			s.log.Debug("MCP server: a line on standard output is not a message", "text", excerpt.Of(string(part), maxLogLine))
			continue
		}
		s.traffic.observe(msg, nil)
		list = append(list, msg)
	}
	return list
}

// Write implements mcp.Connection. A server that does not read makes it wait until ctx ends.
func (s *stdioConn) Write(ctx context.Context, msg jsonrpc.Message) error {
	text, err := jsonrpc.EncodeMessage(msg)
	if err != nil {
		return err
	}
	if req, ok := msg.(*jsonrpc.Request); ok && req.IsCall() {
		if c := CaptureOf(ctx); c != nil {
			s.traffic.await(req, c)
		}
	}
	select {
	case <-s.writing:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { s.writing <- struct{}{} }()
	return s.write(ctx, append(text, '\n'))
}

func (s *stdioConn) write(ctx context.Context, line []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	expired := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(expired)
		_ = s.p.stdin.SetWriteDeadline(time.Unix(1, 0))
	})
	n, err := s.p.stdin.Write(line)
	if !stop() {
		<-expired
		_ = s.p.stdin.SetWriteDeadline(time.Time{})
	}
	switch {
	case err == nil:
		return nil
	case n > 0:
		// Half a line: what follows would be read as the rest of it.
		s.p.kill()
		return fmt.Errorf("write cut off after %d bytes: %w", n, err)
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return fmt.Errorf("%w: %w", ErrNotSent, err)
}

// ErrNotSent says that the server has not got anything of a message.
var ErrNotSent = errors.New("not sent")

// Close implements mcp.Connection: it ends the process and what it started.
func (s *stdioConn) Close() error { return s.p.Close() }
