package sidecar

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/platform/anchor"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// server listens on a socket of the server's folder, and returns each connection to serve.
func (b *bed) server(name string, serve func(*net.UnixConn)) {
	b.t.Helper()
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: b.path("server/sock/" + name)})
	if err != nil {
		b.t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := ln.AcceptUnix()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer conn.Close()
				_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
				serve(conn)
			})
		}
	})
	b.t.Cleanup(func() {
		_ = ln.Close()
		wg.Wait()
	})
}

// connect is what a process of the sandbox does.
func (b *bed) connect(name string) *net.UnixConn {
	b.t.Helper()
	b.t.Chdir(b.path("pod/run")) // the path of a test may be longer than an address
	conn, err := net.Dial("unix", name)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	return conn.(*net.UnixConn)
}

func echo(c *net.UnixConn) { _, _ = io.Copy(c, c) }

// TestHeard: the sandbox is heard when it makes its first connection only.
func TestHeard(t *testing.T) {
	b := newBed(t)
	o, heard := b.options(), make(chan struct{}, 10)
	o.Heard = func() { heard <- struct{}{} }
	c, err := Dial(t.Context(), o)
	b.must(err)
	defer c.Close() //nolint:errcheck // test
	b.push(c, sandbox.UserDataDir)
	if len(heard) > 0 {
		t.Fatal("heard before anybody spoke")
	}
	b.server("control.sock", func(c *net.UnixConn) { _, _ = io.WriteString(c, "control") })
	for range 3 {
		if got, err := io.ReadAll(b.connect("control.sock")); err != nil || string(got) != "control" {
			t.Errorf("%q, %v", got, err)
		}
	}
	if len(heard) != 1 {
		t.Errorf("heard %d times", len(heard))
	}
}

// TestSockets: each leads to the one of its name, with all bytes, both ways at once.
func TestSockets(t *testing.T) {
	b := newBed(t)
	c := b.dial(nil)
	b.server("bridge.sock", echo)
	b.server("control.sock", func(c *net.UnixConn) { _, _ = io.WriteString(c, "control") })
	if got, err := io.ReadAll(b.connect("control.sock")); err != nil || string(got) != "control" {
		t.Errorf("%q, %v", got, err)
	}
	var wg sync.WaitGroup
	for range 8 {
		conn := b.connect("bridge.sock")
		wg.Go(func() {
			data := make([]byte, 3<<20)
			_, _ = rand.Read(data)
			wg.Go(func() {
				_, _ = conn.Write(data)
				_ = conn.CloseWrite() // the answer comes nevertheless
			})
			got, err := io.ReadAll(conn)
			if err != nil || sha256.Sum256(got) != sha256.Sum256(data) {
				t.Errorf("%d bytes came back, %v", len(got), err)
			}
		})
	}
	wg.Wait()
	// No server listens there: it is closed at once.
	if got, err := io.ReadAll(b.connect("egress.sock")); err != nil || len(got) > 0 {
		t.Errorf("%q, %v", got, err)
	}
	_ = c
}

// TestHalfCloseAndClose are told apart on both ends.
func TestHalfCloseAndClose(t *testing.T) {
	b := newBed(t)
	b.dial(nil)
	ended := make(chan error, 1)
	b.server("bridge.sock", func(c *net.UnixConn) {
		if _, err := io.ReadAll(c); err != nil { // the half that ended
			ended <- err
			return
		}
		var err error
		for err == nil { // until the other half has, too
			_, err = c.Write(make([]byte, 64<<10))
		}
		ended <- err
	})
	conn := b.connect("bridge.sock")
	_ = conn.CloseWrite()
	if _, err := io.ReadFull(conn, make([]byte, 1<<20)); err != nil {
		t.Fatalf("behind a closed half: %v", err)
	}
	_ = conn.Close()
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		t.Fatal("the server's end writes on to what is closed")
	}
	// The other way round: the server closes while the sandbox still sends.
	b.server("stdio.sock", func(c *net.UnixConn) { _, _ = io.ReadFull(c, make([]byte, 10)) })
	conn = b.connect("stdio.sock")
	var err error
	for err == nil {
		_, err = conn.Write(make([]byte, 64<<10))
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the sandbox's end writes on to what is closed")
	}
}

// TestSocketWaitsForAServer: a connection that comes before a server is attached is passed on when one is.
func TestSocketWaitsForAServer(t *testing.T) {
	b := newBed(t)
	b.server("bridge.sock", echo)
	conn := b.connect("bridge.sock")
	if _, err := conn.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	b.dial(nil)
	got := make([]byte, 5)
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != "hello" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestNobodyIsAttached: a connection is closed after a while.
func TestNobodyIsAttached(t *testing.T) {
	b := newBed(t)
	conn := b.connect("bridge.sock")
	if got, err := io.ReadAll(conn); err != nil || len(got) > 0 {
		t.Errorf("%q, %v", got, err)
	}
}

// TestLongSocketPath: the server's data folder may lie deep.
func TestLongSocketPath(t *testing.T) {
	b := newBed(t)
	dir := filepath.Join(b.root, "server", string(bytes.Repeat([]byte("x"), 120)))
	b.must(os.Mkdir(dir, 0o755))
	t.Chdir(dir)
	ln, err := net.Listen("unix", "control.sock")
	b.must(err)
	defer ln.Close()
	go func() {
		if c, err := ln.Accept(); err == nil {
			_, _ = io.WriteString(c, "deep")
			_ = c.Close()
		}
	}()
	b.dial(func(o *Options) { o.Mounts = []sandbox.Mount{{Source: dir, Target: sandbox.RunDir, ReadOnly: true}} })
	if got, err := io.ReadAll(b.connect("control.sock")); err != nil || string(got) != "deep" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestManyConnections: those beyond the bound are closed, and those before it go on.
func TestManyConnections(t *testing.T) {
	b := newBed(t)
	b.dial(nil)
	b.server("bridge.sock", echo)
	first := b.connect("bridge.sock")
	ask := func(c net.Conn) error {
		if _, err := c.Write([]byte("x")); err != nil {
			return err
		}
		_, err := io.ReadFull(c, make([]byte, 1))
		return err
	}
	b.must(ask(first))
	refused := 0
	for range 160 {
		if ask(b.connect("bridge.sock")) != nil {
			refused++
		}
	}
	if refused < 20 || refused > 60 {
		t.Errorf("%d of 160 were refused, want about 33", refused)
	}
	b.must(ask(first))
}

// TestConnectionsEndWithTheAttachment, on both sides.
func TestConnectionsEndWithTheAttachment(t *testing.T) {
	b := newBed(t)
	c := b.dial(nil)
	gone := make(chan struct{})
	b.server("bridge.sock", func(c *net.UnixConn) {
		_, _ = io.WriteString(c, "x")
		_, _ = io.ReadAll(c)
		close(gone)
	})
	conn := b.connect("bridge.sock")
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	b.must(c.Close())
	if _, err := io.ReadAll(conn); err != nil {
		t.Error(err)
	}
	select {
	case <-gone:
	case <-time.After(30 * time.Second):
		t.Error("the server's end is open")
	}
	<-c.Done()
	if c.Err() != nil || c.Connected() {
		t.Errorf("after Close: %v", c.Err())
	}
	if err := c.Push(context.Background(), sandbox.SkillsDir); err == nil {
		t.Error("a push after Close")
	}
}

// TestAnchor: PID 1 that sees no socket of the sidecar reaches the server all the same, over breaks of the connection; it is
// told of the sidecar's end, and who comes to the next one is not let in.
func TestAnchor(t *testing.T) {
	b := newBed(t)
	b.stop()
	b.anchor = "@" + b.root
	b.start(b.addr)
	b.server("bridge.sock", echo)
	b.server("control.sock", func(c *net.UnixConn) { _, _ = io.WriteString(c, "control") })
	a, err := anchor.Connect(t.Context(), b.anchor)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close() //nolint:errcheck // test
	connect := func(name string) *net.UnixConn {
		t.Helper()
		conn, err := a.Dial(t.Context(), sandbox.RunDir+"/"+name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
		return conn
	}
	early := connect("control.sock") // it waits for a server
	c := b.dial(nil)
	for _, conn := range []*net.UnixConn{early, connect("control.sock")} {
		if got, err := io.ReadAll(conn); err != nil || string(got) != "control" {
			t.Errorf("%q, %v", got, err)
		}
	}
	conn := connect("bridge.sock")
	data := bytes.Repeat([]byte("data"), 1<<18)
	var wg sync.WaitGroup
	wg.Go(func() {
		_, _ = conn.Write(data)
		_ = conn.CloseWrite()
	})
	if got, err := io.ReadAll(conn); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes came back, %v", len(got), err)
	}
	wg.Wait()
	if got, err := io.ReadAll(connect("other.sock")); err != nil || len(got) > 0 {
		t.Errorf("a socket that there is not: %q, %v", got, err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	b.dial(nil)
	if got, err := io.ReadAll(connect("control.sock")); err != nil || string(got) != "control" {
		t.Errorf("after another attachment: %q, %v", got, err)
	}

	b.stop()
	select {
	case <-a.Done():
	case <-time.After(30 * time.Second):
		t.Fatal("PID 1 is not told that its sidecar has ended")
	}
	b.start(b.addr)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if a, err := anchor.Connect(ctx, b.anchor); err == nil {
		_ = a.Close()
		t.Error("the next sidecar takes whoever comes for PID 1")
	}
}
