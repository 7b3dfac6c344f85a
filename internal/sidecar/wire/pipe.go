package wire

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// The bytes of a socket go in parts: two bytes of length, and the part. A part of length 0 says that there are no more
// in this direction, while the other goes on; the end of the stream, that the socket is closed altogether. Streams of yamux alone
// cannot tell the two apart.
const (
	maxPart = 32 << 10
	// hangUpEvery is how often a socket that stopped sending is asked whether its process still reads.
	hangUpEvery = 250 * time.Millisecond
)

// Pipe passes bytes between a stream and a socket until both directions have ended, or one of the two is closed. r is what
// reads from the stream. Then it closes both.
func Pipe(stream net.Conn, r *bufio.Reader, socket *net.UnixConn) {
	p := &pipe{stream: stream, socket: socket, ended: make(chan struct{})}
	defer p.end()
	var wg sync.WaitGroup
	wg.Go(p.out)
	p.in(r)
	wg.Wait()
}

type pipe struct {
	stream net.Conn
	socket *net.UnixConn
	once   sync.Once
	ended  chan struct{}

	mu   sync.Mutex
	half int // directions that have ended well
}

func (p *pipe) end() {
	p.once.Do(func() {
		close(p.ended)
		_ = p.stream.Close()
		_ = p.socket.Close()
	})
}

// oneEnded says that one direction ended well. With the second one all is closed.
func (p *pipe) oneEnded() {
	p.mu.Lock()
	p.half++
	both := p.half == 2
	p.mu.Unlock()
	if both {
		p.end()
	}
}

// out carries what the socket's process sends.
func (p *pipe) out() {
	buf := make([]byte, 2+maxPart)
	for {
		n, err := p.socket.Read(buf[2:])
		if n > 0 {
			binary.BigEndian.PutUint16(buf, uint16(n))
			if _, err := p.stream.Write(buf[:2+n]); err != nil {
				p.end()
				return
			}
		}
		if err == nil {
			continue
		}
		if !errors.Is(err, io.EOF) {
			p.end()
			return
		}
		break
	}
	if _, err := p.stream.Write([]byte{0, 0}); err != nil {
		p.end()
		return
	}
	p.oneEnded()
	p.watch()
}

// watch ends all when the process has closed its socket, and not only its sending half.
func (p *pipe) watch() {
	tick := time.NewTicker(hangUpEvery)
	defer tick.Stop()
	for !p.hungUp() {
		select {
		case <-p.ended:
			return
		case <-tick.C:
		}
	}
	p.end()
}

func (p *pipe) hungUp() bool {
	raw, err := p.socket.SyscallConn()
	if err != nil {
		return true
	}
	up := true
	err = raw.Control(func(fd uintptr) {
		fds := []unix.PollFd{{Fd: int32(fd)}}
		n, err := unix.Poll(fds, 0)
		up = err == nil && n > 0 && fds[0].Revents&(unix.POLLHUP|unix.POLLERR|unix.POLLNVAL) != 0
	})
	return err != nil || up
}

// in carries what comes from the stream.
func (p *pipe) in(r *bufio.Reader) {
	err := parts(r, p.socket, func() error {
		p.oneEnded()
		return p.socket.CloseWrite()
	})
	_ = err // the socket's process, or the other side, has closed: there is no reader to tell
	p.end()
}

// parts writes the parts that come from r, and calls half at the end of this direction, once. It returns at the stream's end.
func parts(r *bufio.Reader, w io.Writer, half func() error) error {
	buf := make([]byte, maxPart)
	for ended := false; ; {
		if _, err := io.ReadFull(r, buf[:2]); err != nil {
			return err
		}
		n := int(binary.BigEndian.Uint16(buf))
		switch {
		case ended:
			return errors.New("a part behind the end")
		case n > maxPart:
			return fmt.Errorf("a part of %d bytes, more than %d", n, maxPart)
		case n == 0:
			ended = true
			if err := half(); err != nil {
				return err
			}
			continue
		}
		if _, err := io.ReadFull(r, buf[:n]); err != nil {
			return err
		}
		if _, err := w.Write(buf[:n]); err != nil {
			return err
		}
	}
}
