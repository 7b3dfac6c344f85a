// Package anchor is how PID 1 of a sandbox reaches its sidecar where the two see no socket of each other: under gVisor each
// container of a pod has its volumes for itself. What they share is the pod's network, with names of sockets that are no
// files; and there any process may take a name that is free.
//
// So a name is used once, before any code of the sandbox runs. PID 1 connects, and keeps that connection,
// the anchor, for the life of the sandbox. Each further connection is a pair of sockets, of which PID 1
// passes one through the anchor. No name is looked up again, so a process that takes the name later is
// never asked. When the anchor breaks, the sidecar has ended, and PID 1 ends with it. A sidecar that is
// started again must not listen another time, as code of the sandbox could connect first: see
// Listener.Accept.
package anchor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Argument is the first argument of a PID 1 that connects to an anchor.
const Argument = "anchored"

// Address is where the sidecar listens: a name without a file, in the network of the pod.
const Address = "@skerry-anchor"

// ConnectTime is how long PID 1 waits for its sidecar.
const ConnectTime = 30 * time.Second

const (
	network = "unixpacket" // each message is whole, with its descriptor
	// ready is the sidecar's only message: from now on it remembers that it was held.
	ready = "ready"
	// maxName bounds the name of a socket.
	maxName = 64
	// sendTime bounds the hand-over of one connection, which waits only while the sidecar has no time.
	sendTime = 5 * time.Second
	// retryPause is how soon PID 1 asks again for a sidecar that does not listen yet.
	retryPause = 20 * time.Millisecond
)

// Anchor is PID 1's end. It is safe for concurrent use.
type Anchor struct {
	conn *net.UnixConn
	done chan struct{}
}

// Connect connects to the sidecar that listens at address, and waits for one until ctx ends. No code of the sandbox may
// run before it returns.
func Connect(ctx context.Context, address string) (*Anchor, error) {
	for {
		a, err := connect(ctx, address)
		if err == nil || !errors.Is(err, unix.ECONNREFUSED) {
			return a, err
		}
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
			return nil, fmt.Errorf("anchor: %w: %w", context.Cause(ctx), err)
		}
	}
}

func connect(ctx context.Context, address string) (*Anchor, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, fmt.Errorf("anchor: %w", err)
	}
	a := &Anchor{conn: conn.(*net.UnixConn), done: make(chan struct{})}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	buf := make([]byte, len(ready)+1)
	n, err := conn.Read(buf)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err == nil && string(buf[:n]) != ready {
		err = fmt.Errorf("%q is no answer of a sidecar", buf[:n])
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("anchor: %w", err), conn.Close())
	}
	go a.watch()
	return a, nil
}

// watch ends with the connection: the sidecar sends nothing more.
func (a *Anchor) watch() {
	_, _ = a.conn.Read(make([]byte, 1))
	close(a.done)
}

// Done is closed when the sidecar has ended, or Close was called.
func (a *Anchor) Done() <-chan struct{} { return a.done }

// Close lets go. Connections that were made stay.
func (a *Anchor) Close() error {
	err := a.conn.Close()
	<-a.done
	return err
}

// Dial connects to a socket's path at the sidecar. The first use of the connection shows whether a process
// listens there.
func (a *Anchor) Dial(ctx context.Context, socket string) (*net.UnixConn, error) {
	name := path.Base(socket)
	if len(name) > maxName {
		return nil, fmt.Errorf("anchor: the name %.80q is too long", name)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	theirs := os.NewFile(uintptr(pair[1]), name)
	defer theirs.Close() //nolint:errcheck // it is theirs
	own, err := connOf(pair[0])
	if err != nil {
		return nil, err
	}
	// The message is one system call: there is nothing half sent that a deadline could leave behind.
	err = a.conn.SetWriteDeadline(time.Now().Add(sendTime))
	if err == nil {
		_, _, err = a.conn.WriteMsgUnix([]byte(name), unix.UnixRights(int(theirs.Fd())), nil)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("anchor: %w", err), own.Close())
	}
	return own, nil
}

// connOf takes a descriptor over. What is no connection of unix sockets is closed.
func connOf(fd int) (*net.UnixConn, error) {
	f := os.NewFile(uintptr(fd), "")
	defer f.Close() //nolint:errcheck // the connection has one of its own
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	if c, ok := conn.(*net.UnixConn); ok {
		return c, nil
	}
	return nil, errors.Join(errors.New("anchor: what was handed over is no unix socket"), conn.Close())
}

// Listener is where the sidecar waits for PID 1.
type Listener struct{ ln *net.UnixListener }

// Listen takes the address.
func Listen(address string) (*Listener, error) {
	ln, err := net.ListenUnix(network, &net.UnixAddr{Net: network, Name: address})
	if err != nil {
		return nil, err
	}
	return &Listener{ln: ln}, nil
}

// Close releases the address.
func (l *Listener) Close() error { return l.ln.Close() }

// Accept accepts the first connection, and releases the address. It calls remember before it answers;
// remember must make sure that no process listens for this sandbox again.
func (l *Listener) Accept(remember func() error) (*Accepted, error) {
	conn, err := l.ln.AcceptUnix()
	if e := l.ln.Close(); err == nil && e != nil {
		err = errors.Join(e, conn.Close())
	}
	if err != nil {
		return nil, err
	}
	if err := remember(); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	if err := conn.SetWriteDeadline(time.Now().Add(sendTime)); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	if _, err := io.WriteString(conn, ready); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return &Accepted{conn: conn}, nil
}

// Accepted is the sidecar's end.
type Accepted struct {
	conn *net.UnixConn
	once sync.Once
}

// Close breaks the anchor: the sandbox ends.
func (h *Accepted) Close() { h.once.Do(func() { _ = h.conn.Close() }) }

// Next returns the next connection, and the name of the socket that it is for. What is no connection is skipped. An error: the
// anchor has ended.
func (h *Accepted) Next() (name string, conn *net.UnixConn, err error) {
	buf, oob := make([]byte, maxName+1), make([]byte, unix.CmsgSpace(4))
	for {
		n, oobn, _, _, err := h.conn.ReadMsgUnix(buf, oob)
		if err != nil {
			return "", nil, err
		}
		fds, err := descriptors(oob[:oobn])
		if err != nil || len(fds) != 1 || n > maxName {
			for _, fd := range fds {
				_ = unix.Close(fd)
			}
			continue
		}
		if conn, err = connOf(fds[0]); err != nil {
			continue
		}
		return string(buf[:n]), conn, nil
	}
}

func descriptors(oob []byte) ([]int, error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	var fds []int
	for i := range messages {
		some, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			return fds, err
		}
		fds = append(fds, some...)
	}
	return fds, nil
}
