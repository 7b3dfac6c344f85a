package sidecar

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/sidecar/pki"
)

func (b *bed) ended(c *Conn, kind error) {
	b.t.Helper()
	select {
	case <-c.Done():
	case <-time.After(30 * time.Second):
		b.t.Fatal("the attachment goes on")
	}
	if !errors.Is(c.Err(), kind) {
		b.t.Fatalf("it ended by %v, want %v", c.Err(), kind)
	}
}

// TestTokens: only a server whose token is not lower than any before takes the sandbox over.
func TestTokens(t *testing.T) {
	b := newBed(t)
	dial := func(token int64) (*Conn, error) {
		o := b.options()
		o.Token = token
		c, err := Dial(context.Background(), o)
		if err == nil {
			t.Cleanup(func() { _ = c.Close() })
		}
		return c, err
	}
	first := b.dial(nil)
	b.push(first, sandbox.UserDataDir)
	second, err := dial(5)
	b.must(err)
	b.ended(first, sandbox.Conflict)
	if _, err := first.Pull(t.Context()); !errors.Is(err, sandbox.Conflict) {
		t.Errorf("a pull of who was displaced: %v", err)
	}
	if _, err := dial(4); !errors.Is(err, sandbox.Conflict) {
		t.Errorf("a lower token: %v", err)
	}
	b.pull(second, false)
	third, err := dial(5) // the same server again, say
	b.must(err)
	b.ended(second, sandbox.Conflict)
	b.must(third.Remount(t.Context(), 7, b.mounts(), 0))
	if err := third.Remount(t.Context(), 6, b.mounts(), 0); !errors.Is(err, sandbox.Conflict) {
		t.Errorf("a lower token: %v", err)
	}
	if _, err := dial(6); !errors.Is(err, sandbox.Conflict) {
		t.Errorf("a token below the raised one: %v", err)
	}
	// The highest outlives the sidecar.
	b.stop()
	b.start(b.addr)
	if _, err := dial(6); !errors.Is(err, sandbox.Conflict) {
		t.Errorf("a lower token after a new start: %v", err)
	}
	b.eventually("the connection comes back", third.Connected)
	b.pull(third, false)
}

// TestConnectionComesBack after the sidecar started again, for sockets and copies alike.
func TestConnectionComesBack(t *testing.T) {
	b := newBed(t)
	b.server("bridge.sock", echo)
	c := b.filled()
	for range 3 {
		b.stop()
		b.start(b.addr)
		conn := b.connect("bridge.sock")
		if _, err := conn.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		b.pull(c, false)
	}
}

// cable is a network between both ends that can be cut.
type cable struct {
	ln   net.Listener
	mu   sync.Mutex
	open []net.Conn
	dead bool // bytes go nowhere, without an error
	wg   sync.WaitGroup
}

func (b *bed) cable() *cable {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	b.must(err)
	n := &cable{ln: ln}
	n.wg.Go(func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", b.addr)
			if err != nil {
				_ = in.Close()
				continue
			}
			n.mu.Lock()
			n.open = append(n.open, in, out)
			n.mu.Unlock()
			n.wg.Go(func() { n.carry(in, out) })
			n.wg.Go(func() { n.carry(out, in) })
		}
	})
	b.t.Cleanup(func() {
		_ = ln.Close()
		n.cut()
		n.wg.Wait()
	})
	return n
}

func (n *cable) carry(to, from net.Conn) {
	defer to.Close()
	buf := make([]byte, 16<<10)
	for {
		k, err := from.Read(buf)
		if err != nil {
			return
		}
		n.mu.Lock()
		dead := n.dead
		n.mu.Unlock()
		if dead {
			continue
		}
		if _, err := to.Write(buf[:k]); err != nil {
			return
		}
	}
}

// cut ends all connections.
func (n *cable) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.open {
		_ = c.Close()
	}
	n.open = nil
}

func (n *cable) kill(dead bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dead = dead
}

// TestDeadNetworkIsNoticed: the connection ends without a packet.
func TestDeadNetworkIsNoticed(t *testing.T) {
	b := newBed(t)
	n := b.cable()
	c := b.dial(func(o *Options) { o.Addr = n.ln.Addr().String() })
	b.push(c, sandbox.UserDataDir)
	n.kill(true)
	b.eventually("it is noticed", func() bool { return !c.Connected() })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.Pull(ctx); !errors.Is(err, sandbox.Unavailable) {
		t.Errorf("a pull meanwhile: %v", err)
	}
	n.kill(false)
	n.cut()
	b.eventually("it comes back", c.Connected)
	b.pull(c, false)
}

// TestStrangers get nothing, and take nothing from who is attached.
func TestStrangers(t *testing.T) {
	b := newBed(t)
	c := b.filled()
	// Code in the sandbox shares the network: it can connect, and it may have stolen the certificate of a sandbox.
	stolen, err := b.auth.Sandbox("skerry-fedcba9876543210")
	b.must(err)
	pair, err := tls.X509KeyPair(stolen.Cert, stolen.Key)
	b.must(err)
	var idle []net.Conn
	for range 40 {
		raw, err := net.Dial("tcp", b.addr)
		b.must(err)
		defer raw.Close()
		idle = append(idle, raw)
	}
	conn := tls.Client(idle[39], &tls.Config{ServerName: pki.SandboxName(testID), InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}})
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	_ = conn.Handshake() // with TLS 1.3 the refusal comes behind it
	if got, err := io.ReadAll(conn); err == nil {
		t.Errorf("a stolen certificate: %q, %v", got, err)
	}
	_ = idle[0].SetReadDeadline(time.Now().Add(30 * time.Second))
	if _, err := io.ReadAll(idle[0]); err != nil {
		t.Errorf("the oldest of too many: %v", err)
	}
	b.pull(c, false)
	other := newBed(t)
	o := b.options()
	o.Authority = other.auth
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := Dial(ctx, o); !errors.Is(err, sandbox.Unavailable) {
		t.Errorf("a server of another installation: %v", err)
	}
	// Something else answers at the address, as when code in the sandbox took the port.
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	b.must(err)
	defer ln.Close()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("HTTP/1.1 200 OK\r\n\r\n"))
			_ = c.Close()
		}
	}()
	o = b.options()
	o.Addr = ln.Addr().String()
	ctx, cancel = context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := Dial(ctx, o); !errors.Is(err, sandbox.Unavailable) {
		t.Errorf("a squatter: %v", err)
	}
	if !c.Connected() {
		t.Error("the one that is attached was disturbed")
	}
}

// TestMountsMustFit those of the sidecar.
func TestMountsMustFit(t *testing.T) {
	b := newBed(t)
	for name, m := range map[string]sandbox.Mount{
		"none there": {Source: b.root, Target: "/mnt/other"},
		"writable":   {Source: b.root, Target: sandbox.SkillsDir},
		"read-only":  {Source: b.root, Target: sandbox.UserDataDir, ReadOnly: true},
		"relative":   {Source: b.root, Target: "mnt"},
		"no source":  {Target: sandbox.UserDataDir},
		"not clean":  {Source: b.root, Target: "/mnt/skills/", ReadOnly: true},
	} {
		o := b.options()
		o.Mounts = []sandbox.Mount{m}
		if c, err := Dial(t.Context(), o); !errors.Is(err, sandbox.Invalid) {
			t.Errorf("%s: %v", name, err)
			if err == nil {
				_ = c.Close()
			}
		}
	}
}

// TestRemount: from then on the copies are those of the other folders.
func TestRemount(t *testing.T) {
	b := newBed(t)
	c := b.filled()
	b.put("thread/workspace/.keep", "")
	mounts := b.mounts()
	mounts[0].Source = b.path("thread")
	uid := os.Getuid()
	if uid == 0 { // who may give files away does
		uid = 1_000_123
	}
	b.must(c.Remount(t.Context(), 3, mounts, uid))
	b.put("pod/files/workspace/a.txt", "a")
	b.pull(c, true)
	info, err := os.Lstat(b.path("thread/workspace/a.txt"))
	b.must(err)
	if got := int(info.Sys().(*syscall.Stat_t).Uid); got != uid {
		t.Errorf("what was pulled belongs to %d, want %d", got, uid)
	}
	b.same("thread/workspace", "pod/files/workspace")
	if got := b.list("server/files/workspace"); got != "" {
		t.Errorf("the folder of before has %s", got)
	}
}
