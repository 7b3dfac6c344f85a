package socketpair

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
)

// New makes two connected ends. A write of the server's end never waits: a client sends a pipeline whole before it reads the
// first answer, so a server that waited for room for its answers would read no further, and both would wait for each other.
// What has no room in the kernel is kept until the client reads, or one of them closes: as much as a pipeline has answers.
func New() (client, server net.Conn, err error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	var ends [2]net.Conn
	var errs [3]error
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "embedded-redis")
		ends[i], errs[i] = net.FileConn(f) // a duplicate
		_ = f.Close()
	}
	s := &serverEnd{Conn: ends[1]}
	if c, ok := ends[1].(syscall.Conn); ok {
		s.raw, errs[2] = c.SyscallConn()
	}
	if err := errors.Join(errs[:]...); err != nil {
		for _, c := range ends {
			if c != nil {
				_ = c.Close()
			}
		}
		return nil, nil, err
	}
	return ends[0], s, nil
}

// serverEnd is a connection that keeps what the client has not read yet.
type serverEnd struct {
	net.Conn
	raw syscall.RawConn

	mu       sync.Mutex
	kept     []byte
	flushing bool // a goroutine writes what is kept; it ends with the last byte, or with the connection
	err      error
}

func (s *serverEnd) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return 0, s.err
	}
	n := 0
	if !s.flushing {
		if n = s.try(p); n == len(p) {
			return n, nil
		}
		s.flushing = true
		go s.flush()
	}
	s.kept = append(s.kept, p[n:]...)
	return len(p), nil
}

// try writes what the kernel has room for. What fails is written again by flush, whose error the next Write returns.
func (s *serverEnd) try(p []byte) (n int) {
	_ = s.raw.Write(func(fd uintptr) bool {
		n, _ = syscall.Write(int(fd), p)
		return true // do not wait
	})
	return max(n, 0)
}

func (s *serverEnd) flush() {
	for {
		s.mu.Lock()
		p := s.kept
		s.kept, s.flushing = nil, len(p) > 0 && s.err == nil
		flushing := s.flushing
		s.mu.Unlock()
		if !flushing {
			return
		}
		if _, err := s.Conn.Write(p); err != nil {
			s.mu.Lock()
			s.err = err
			s.mu.Unlock()
		}
	}
}
