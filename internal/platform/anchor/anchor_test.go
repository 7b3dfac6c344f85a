package anchor

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// address is an address that only this test has.
func address(t *testing.T) string { return "@" + t.TempDir() }

// held returns both ends of an anchor.
func held(t *testing.T) (*Anchor, *Accepted) {
	t.Helper()
	at := address(t)
	ln, err := Listen(at)
	if err != nil {
		t.Fatal(err)
	}
	type result struct {
		h   *Accepted
		err error
	}
	accepted := make(chan result, 1)
	go func() {
		h, err := ln.Accept(func() error { return nil })
		accepted <- result{h, err}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), ConnectTime)
	defer cancel()
	a, err := Connect(ctx, at)
	if err != nil {
		t.Fatal(err)
	}
	got := <-accepted
	if got.err != nil {
		t.Fatal(got.err)
	}
	t.Cleanup(func() { _ = a.Close(); got.h.Close() })
	return a, got.h
}

// TestDial: a connection leads to the other end with its name, both ways, and outlives the anchor.
func TestDial(t *testing.T) {
	a, h := held(t)
	own, err := a.Dial(t.Context(), "/run/skerry/control.sock")
	if err != nil {
		t.Fatal(err)
	}
	name, conn, err := h.Next()
	if err != nil || name != "control.sock" {
		t.Fatalf("%q, %v", name, err)
	}
	h.Close()
	<-a.Done()
	if _, err := io.WriteString(own, "there"); err != nil {
		t.Fatal(err)
	}
	if err := own.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(conn); err != nil || string(text) != "there" {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := io.WriteString(conn, "back"); err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(own); err != nil || string(text) != "back" {
		t.Errorf("%q, %v", text, err)
	}
	_ = own.Close()
	if _, err := a.Dial(t.Context(), "/run/skerry/control.sock"); err == nil {
		t.Error("a connection was made through an anchor that broke")
	}
}

// TestOnce: after PID 1 no process connects, and a process that takes the address is not asked, whatever PID 1 connects to.
func TestOnce(t *testing.T) {
	at := address(t)
	ln, err := Listen(at)
	if err != nil {
		t.Fatal(err)
	}
	remembered := make(chan struct{})
	go func() {
		h, err := ln.Accept(func() error { close(remembered); return nil })
		if err != nil {
			return
		}
		defer h.Close()
		for {
			_, conn, err := h.Next()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, "the sidecar")
			_ = conn.Close()
		}
	}()
	a, err := Connect(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close() //nolint:errcheck // test
	select {
	case <-remembered:
	default:
		t.Error("PID 1 goes on before the sidecar remembers it")
	}
	if conn, err := net.Dial(network, at); err == nil {
		_ = conn.Close()
		t.Error("a second one came in")
	}
	squatter, err := Listen(at)
	if err != nil {
		t.Fatal(err)
	}
	defer squatter.Close() //nolint:errcheck // test
	conn, err := a.Dial(t.Context(), "bridge.sock")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // test
	if text, err := io.ReadAll(conn); err != nil || string(text) != "the sidecar" {
		t.Errorf("%q, %v", text, err)
	}
}

// TestForgetful: an anchor without memory is held by no process.
func TestForgetful(t *testing.T) {
	at := address(t)
	ln, err := Listen(at)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := ln.Accept(func() error { return errors.New("the disk is full") })
		ended <- err
	}()
	if _, err := Connect(t.Context(), at); err == nil {
		t.Error("PID 1 goes on without a sidecar that remembers it")
	}
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "the disk is full") {
		t.Errorf("%v", err)
	}
}

// TestHoldWaits: for a sidecar that comes later, and for none for ever.
func TestHoldWaits(t *testing.T) {
	at := address(t)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := Connect(ctx, at); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without a sidecar: %v", err)
	}
	silent, err := net.Listen(network, at)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close() //nolint:errcheck // test
	ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := Connect(ctx, at); err == nil {
		t.Error("one that says nothing is a sidecar")
	}
}

// TestNoConnection: what is handed over is looked at.
func TestNoConnection(t *testing.T) {
	a, h := held(t)
	file, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close() //nolint:errcheck // test
	fd := int(file.Fd())
	for name, oob := range map[string][]byte{
		"nothing.sock": nil, "file.sock": unix.UnixRights(fd), "two.sock": unix.UnixRights(fd, fd), "many.sock": unix.UnixRights(fd, fd, fd, fd),
	} {
		if _, _, err := a.conn.WriteMsgUnix([]byte(name), oob, nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := a.Dial(t.Context(), strings.Repeat("x", maxName+1)); err == nil {
		t.Error("a long name was taken")
	}
	own, err := a.Dial(t.Context(), "last.sock")
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close() //nolint:errcheck // test
	name, conn, err := h.Next()
	if err != nil || name != "last.sock" {
		t.Fatalf("%q, %v", name, err)
	}
	_ = conn.Close()
}
