package wire

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// said is a connection on which the other side said something once, and nothing else.
type said struct {
	*bytes.Reader
	net.Conn
}

func (s said) Read(p []byte) (int, error)       { return s.Reader.Read(p) }
func (said) Write(p []byte) (int, error)        { return len(p), nil }
func (said) Close() error                       { return nil }
func (said) SetDeadline(time.Time) error        { return nil }
func (said) SetReadDeadline(time.Time) error    { return nil }
func (said) SetWriteDeadline(t time.Time) error { return nil }

func hear(text []byte) *Stream {
	return NewStream(context.Background(), said{Reader: bytes.NewReader(text)})
}

// text is what a stream says that sends these messages.
func text(t testing.TB, all ...proto.Message) []byte {
	var out []byte
	for _, m := range all {
		raw, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		out = append(binary.BigEndian.AppendUint32(out, uint32(len(raw))), raw...)
	}
	return out
}

// FuzzReceive: whatever comes is a message or an error, and costs no more than it has bytes.
func FuzzReceive(f *testing.F) {
	f.Add(text(f, &Hello{Protocol: 1, Attachment: strings.Repeat("a", 26), Token: 7}))
	f.Add(text(f, &Welcome{Mounts: []*Mount{{Target: "/mnt/skills"}}, Failure: &Failure{Kind: "conflict"}}))
	f.Add(text(f, &Request{Do: &Request_Push{Push: &Push{Target: "/mnt/skills", Path: []byte("a"), Parents: []*Entry{{Path: []byte("b"), Kind: 2}}}}}))
	f.Add(text(f, &Request{Do: &Request_Pull{Pull: &Pull{Targets: []string{"/mnt/user-data"}, Since: []byte("x")}}}))
	f.Add(text(f, &Socket{Name: "bridge.sock"}))
	f.Add([]byte{255, 255, 255, 255, 0})
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, m := range []proto.Message{&Hello{}, &Welcome{}, &Request{}, &Socket{}, &Outcome{}} {
			if err := hear(raw).Receive(m); err != nil {
				continue
			}
			if n := binary.BigEndian.Uint32(raw); int(n) > len(raw)-4 || n > MaxMessage {
				t.Errorf("%d bytes were read of %d", n, len(raw))
			}
			switch m := m.(type) {
			case *Hello:
				if CheckHello(m) == nil && (m.GetToken() < 0 || m.GetAttachment() == "") {
					t.Errorf("%v passes", m)
				}
			case *Outcome:
				if err := m.GetFailure().Err(); err != nil && (sandbox.KindOf(err) == sandbox.Internal || len(err.Error()) > 2000) {
					t.Errorf("a failure of the other side is %v", err)
				}
			}
		}
	})
}

// FuzzEntries: entries that pass lie in the tree, and are such as a tree has.
func FuzzEntries(f *testing.F) {
	f.Add(text(f, &Entries{Full: true, Last: true, Entries: []*Entry{
		{Path: []byte("a"), Kind: 2, Mode: 0o755}, {Path: []byte("a/b"), Kind: 1, Mode: 0o644, Size: 3, Digest: make([]byte, 32)},
		{Path: []byte("c"), Kind: 3, Link: []byte("a/b")}, {Path: []byte("d")},
	}}))
	f.Add(text(f, &Entries{Entries: []*Entry{{Path: []byte("../x"), Kind: 1}}}, &Entries{Last: true}))
	f.Add(text(f, &Outcome{Failure: &Failure{Kind: "quota_exceeded", Text: "x"}}))
	f.Fuzz(func(t *testing.T, raw []byte) {
		n := 0
		_, _ = ReceiveEntries(hear(raw), func(m *Entry) error {
			if n++; n > len(raw) {
				t.Fatal("more entries than bytes")
			}
			e, gone, err := m.Tree()
			if err != nil {
				return err
			}
			if !filepath.IsLocal(e.Path) || filepath.Clean(e.Path) != e.Path || e.Mode > 0o777 || e.Size < 0 || !gone && e.Check() != nil {
				t.Errorf("%+v passes", e)
			}
			if back := FromTree(int(m.GetMount()), e.Path, &e); !gone {
				if again, _, err := back.Tree(); err != nil || again != e {
					t.Errorf("%+v comes back as %+v, %v", e, again, err)
				}
			}
			return nil
		})
	})
}

// FuzzWanted: numbers are in order, and of what there is.
func FuzzWanted(f *testing.F) {
	f.Add(text(f, &Wanted{Numbers: []uint32{0, 3}}, &Wanted{Numbers: []uint32{9}, Last: true}), 10)
	f.Add(text(f, &Wanted{Numbers: []uint32{1<<32 - 1}, Last: true}), 1)
	f.Fuzz(func(t *testing.T, raw []byte, limit int) {
		numbers, err := ReceiveWanted(hear(raw), limit)
		if err != nil {
			return
		}
		for i, n := range numbers {
			if n < 0 || n >= limit || i > 0 && n <= numbers[i-1] {
				t.Errorf("%v of %d", numbers, limit)
			}
		}
	})
}

// FuzzContent: no more is written than there may be.
func FuzzContent(f *testing.F) {
	f.Add(text(f, &Content{Data: []byte("abc")}, &Content{Last: true, Mode: 0o644}), int64(3))
	f.Add(text(f, &Content{Data: []byte("abc")}), int64(2))
	f.Fuzz(func(t *testing.T, raw []byte, limit int64) {
		limit &= 1<<20 - 1
		var out bytes.Buffer
		mode, _, _, err := ReceiveFile(hear(raw), &out, limit)
		if int64(out.Len()) > limit || err == nil && mode > 0o777 {
			t.Errorf("%d bytes of %d, mode %o", out.Len(), limit, mode)
		}
	})
}

// FuzzParts holds what reads a socket's bytes against what writes them.
func FuzzParts(f *testing.F) {
	f.Add([]byte{0, 3, 'a', 'b', 'c', 0, 0})
	f.Add([]byte{255, 255})
	f.Fuzz(func(t *testing.T, raw []byte) {
		var out bytes.Buffer
		ends := 0
		err := parts(bufio.NewReader(bytes.NewReader(raw)), &out, func() error { ends++; return nil })
		if err == nil || ends > 1 || out.Len() > len(raw) {
			t.Errorf("%v, %d ends, %d bytes of %d", err, ends, out.Len(), len(raw))
		}
	})
}

// TestWaitsEnd with the context, whichever side waits.
func TestWaitsEnd(t *testing.T) {
	for name, wait := range map[string]func(s *Stream) error{
		"receive": func(s *Stream) error { return s.Receive(&Socket{}) },
		"send":    func(s *Stream) error { return s.Send(&Socket{Name: "x"}) },
		"greet": func(s *Stream) error {
			_, _, err := Greet(s.ctx, s.conn, &Hello{})
			return err
		},
	} {
		one, two := net.Pipe()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if err := wait(NewStream(ctx, one)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
		_, _ = one.Close(), two.Close()
	}
}

// TestFailures keep their kind, and tell no more than they are meant to.
func TestFailures(t *testing.T) {
	for _, c := range []struct {
		err  error
		kind sandbox.Kind
		text string
	}{
		{sandbox.Errorf(sandbox.Conflict, "lower"), sandbox.Conflict, "lower"},
		{sandbox.Wrap(sandbox.QuotaExceeded, errors.New("open /volumes/x"), "no space"), sandbox.QuotaExceeded, "no space"},
		{errors.New("open /volumes/x: permission denied"), sandbox.Unavailable, "the sidecar failed"},
		{sandbox.Errorf(sandbox.Unauthorized, "log in again"), sandbox.Unavailable, "log in again"},
		{io.ErrUnexpectedEOF, sandbox.Unavailable, "the sidecar failed"},
	} {
		got := Fail(c.err).Err()
		if sandbox.KindOf(got) != c.kind || !strings.HasSuffix(got.Error(), c.text) || strings.Contains(got.Error(), "/volumes") {
			t.Errorf("%v became %s: %v", c.err, sandbox.KindOf(got), got)
		}
	}
	if Fail(nil).Err() != nil {
		t.Error("no error is one")
	}
}
