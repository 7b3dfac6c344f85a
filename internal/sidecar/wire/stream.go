package wire

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Protocol is the version of all of this. Both sides must have the same.
const Protocol = 1

const (
	// MaxMessage bounds one message; most kinds have a lower limit.
	MaxMessage = 1 << 20
	// MaxData is how much of a file is in one message.
	MaxData = 128 << 10
	// MaxBatch is how many entries or numbers are.
	MaxBatch = 512
	// messageTime is the longest wait for one message. That the other side is alive at all is known from the connection
	// within seconds.
	messageTime = time.Minute
	// workTime is the longest wait for one before which the other side reads or writes whole trees.
	workTime = 15 * time.Minute
)

// Stream sends and receives messages. One may send while another receives.
type Stream struct {
	conn net.Conn
	r    *bufio.Reader
	ctx  context.Context
	stop func() bool
}

// NewStream makes messages of a connection's bytes. When ctx ends, so does every wait.
func NewStream(ctx context.Context, conn net.Conn) *Stream {
	s := &Stream{conn: conn, r: bufio.NewReaderSize(conn, 32<<10), ctx: ctx}
	s.stop = context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	return s
}

// Close ends the stream.
func (s *Stream) Close() {
	s.stop()
	_ = s.conn.Close()
}

// Release returns the connection after the last message that was received: what was read ahead comes first.
// It fails when the context has ended.
func (s *Stream) Release() (net.Conn, *bufio.Reader, error) {
	if !s.stop() {
		return nil, nil, s.ctx.Err()
	}
	return s.conn, s.r, s.conn.SetDeadline(time.Time{})
}

func (s *Stream) deadline(wait time.Duration) time.Time {
	t := time.Now().Add(wait)
	if d, ok := s.ctx.Deadline(); ok && d.Before(t) {
		return d
	}
	return t
}

// cause says why a wait ended.
func (s *Stream) cause(err error) error {
	if e := s.ctx.Err(); e != nil {
		return e
	}
	var timeout net.Error // yamux has an error of its own for it
	if errors.As(err, &timeout) && timeout.Timeout() {
		if d, ok := s.ctx.Deadline(); ok && !time.Now().Before(d) {
			return context.DeadlineExceeded
		}
		return fmt.Errorf("no message in time: %w", err)
	}
	return err
}

// Send sends one message.
func (s *Stream) Send(m proto.Message) error {
	size := proto.Size(m)
	if size > MaxMessage {
		return fmt.Errorf("a message of %d bytes, more than %d", size, MaxMessage)
	}
	out, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(binary.BigEndian.AppendUint32(make([]byte, 0, size+4), uint32(size)), m)
	if err != nil {
		return err
	}
	if err := s.ctx.Err(); err != nil {
		return err
	}
	if err := s.conn.SetWriteDeadline(s.deadline(messageTime)); err != nil {
		return err
	}
	if s.ctx.Err() != nil { // the deadline of its end was overwritten
		return s.ctx.Err()
	}
	if _, err := s.conn.Write(out); err != nil {
		return s.cause(err)
	}
	return nil
}

// Receive receives one message. io.EOF: the other side has ended the stream.
func (s *Stream) Receive(m proto.Message) error { return s.receive(m, s.deadline(messageTime)) }

// Await is Receive for what comes only when the other side has read or written whole trees.
func (s *Stream) Await(m proto.Message) error { return s.receive(m, s.deadline(workTime)) }

func (s *Stream) receive(m proto.Message, deadline time.Time) error {
	if err := s.conn.SetReadDeadline(deadline); err != nil {
		return s.cause(err)
	}
	if err := s.ctx.Err(); err != nil {
		return err
	}
	err := receive(s.r, m)
	if err != nil && !errors.Is(err, io.EOF) {
		return s.cause(err)
	}
	return err
}

func receive(r io.Reader, m proto.Message) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(head[:])
	if most := limits().Of(m.ProtoReflect().Descriptor()).Bytes; int64(n) > int64(most) {
		return fmt.Errorf("a message of %d bytes, more than %d", n, most)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return fmt.Errorf("a message that ends in the middle: %w", io.ErrUnexpectedEOF)
	}
	return limits().Unmarshal(body, m)
}

// Fail puts an error into a message: its kind, and the text that is for callers.
func Fail(err error) *Failure {
	if err == nil {
		return nil
	}
	text := "the sidecar failed"
	var e *sandbox.Error
	if errors.As(err, &e) {
		text = e.Detail
	} else if kind := sandbox.KindOf(err); kind != sandbox.Internal {
		text = string(kind)
	}
	return &Failure{Kind: string(sandbox.KindOf(err)), Text: text[:min(len(text), 1000)]}
}

// Err returns the error of a failure, nil for none. Of a kind that a sandbox may not cause it makes Unavailable.
func (f *Failure) Err() error {
	if f == nil {
		return nil
	}
	kind := sandbox.Unavailable
	switch k := sandbox.Kind(f.GetKind()); k {
	case sandbox.Conflict, sandbox.Invalid, sandbox.QuotaExceeded, sandbox.NotFound, sandbox.NotSupported, sandbox.Timeout:
		kind = k
	}
	text := f.GetText()
	return sandbox.Errorf(kind, "the sandbox's sidecar: %s", text[:min(len(text), 1000)])
}
