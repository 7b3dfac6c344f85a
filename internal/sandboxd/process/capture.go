package process

import (
	"errors"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/sandboxd/spill"
)

// drainTime is how long an exec whose tree is gone waits for the end of its output: something
// outside the tree may have got hold of the pipe.
const drainTime = 250 * time.Millisecond

// capture reads one output stream of an exec. The first half of max bytes become events as they
// come; what follows goes into a ring of the other half. When all fits into max the ring becomes
// events too, at the end; else it is the tail, and a file has the whole. Only the goroutine of read
// touches a capture.
//
// With live everything becomes events as it comes, for a terminal that falls silent is of no use; the
// log lets go of old ones.
type capture struct {
	log    *eventLog
	live   bool
	stderr bool
	half   int
	max    uint64
	spill  *spill.File // nil: none wanted

	head  int
	total uint64
	ring  ring
}

func newCapture(log *eventLog, stderr bool, limit int64, s *spill.File) *capture {
	half := int(limit / 2)
	return &capture{log: log, stderr: stderr, half: half, max: uint64(limit), ring: ring{limit: int(limit) - half}, spill: s}
}

func (c *capture) write(p []byte) {
	before := c.total
	c.total += uint64(len(p))
	if c.total > c.max && c.spill != nil {
		if before <= c.max {
			c.openSpill()
		}
		c.spill.Write(p)
	}
	if c.live {
		c.log.output(c.stderr, p)
	}
	if n := min(c.half-c.head, len(p)); n > 0 {
		if !c.live {
			c.log.output(c.stderr, p[:n])
		}
		c.head += n
		p = p[n:]
	}
	c.ring.write(p)
}

// openSpill writes what came so far: the head, which the events hold, and the ring, which lost
// nothing yet; the events of a terminal hold both.
func (c *capture) openSpill() {
	c.spill.Open()
	_ = c.log.stream(c.stderr, func(p []byte) error { c.spill.Write(p); return nil })
	if c.live {
		return
	}
	a, b := c.ring.parts()
	c.spill.Write(a)
	c.spill.Write(b)
}

// finish sums up, after the last write and before the exit event.
func (c *capture) finish() Stream {
	s := Stream{Total: c.total}
	a, b := c.ring.parts()
	if c.total <= c.max {
		if c.live {
			return s
		}
		c.log.output(c.stderr, a)
		c.log.output(c.stderr, b)
		return s
	}
	s.Tail = append(append(make([]byte, 0, len(a)+len(b)), a...), b...)
	if c.spill != nil {
		s.SpillPath, s.SpillCut = c.spill.Close()
	}
	return s
}

var readBuffers = sync.Pool{New: func() any { b := make([]byte, MaxChunk); return &b }}

// read takes all of a pipe whose read end does not block. ended cuts pauses short.
func (c *capture) read(pipe *os.File, ended <-chan struct{}) {
	raw, err := pipe.SyscallConn()
	if err != nil {
		return
	}
	for chunks := 0; ; chunks++ {
		var n int
		// The buffer is taken only when there is something to read: hundreds of execs may wait.
		err := raw.Read(func(fd uintptr) bool {
			var again bool
			n, again = c.readOnce(int(fd))
			return !again
		})
		if errors.Is(err, os.ErrDeadlineExceeded) {
			c.drain(pipe)
			return
		}
		if err != nil || n <= 0 {
			return
		}
		if d := c.pause(chunks, n); d > 0 {
			select {
			case <-time.After(d):
			case <-ended:
			}
		}
	}
}

func (c *capture) readOnce(fd int) (n int, again bool) {
	buf := readBuffers.Get().(*[]byte)
	defer readBuffers.Put(buf)
	for {
		n, err := unix.Read(fd, *buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if n > 0 {
			c.write((*buf)[:n])
		}
		return n, errors.Is(err, unix.EAGAIN)
	}
}

// drain takes what the pipe holds now, and no more than a pipe can hold.
func (c *capture) drain(pipe *os.File) {
	raw, err := pipe.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		for taken := 0; taken < 1<<20; {
			n, again := c.readOnce(int(fd))
			if again || n <= 0 {
				return
			}
			taken += n
		}
	})
}

// liveRate is how fast a terminal is read at most, in bytes a second: followers have to keep
// up, and no person reads faster.
const liveRate = 16 << 20

// A stream of more than floodAfter bytes is read at floodRate bytes a second at most: no person reads so
// much. The writes to the file of its whole come between the server's own writes, for which each neighbour's
// exec waits.
const (
	floodAfter = 16 << 20
	floodRate  = 32 << 20
)

// pause is how long to wait after a read of n bytes.
func (c *capture) pause(chunks, n int) time.Duration {
	if !c.live {
		if d := time.Duration(n) * time.Second / floodRate; c.total > floodAfter && d > pace(chunks, n) {
			return d
		}
		return pace(chunks, n)
	}
	return max(time.Duration(n)*time.Second/liveRate, min(pace(chunks, n), 2*time.Millisecond))
}

// pace slows down the reading of an exec that prints many small pieces, so that the pipe gathers
// them: the events of an hour of single bytes stay below 60,000.
func pace(chunks, n int) time.Duration {
	if n >= 4<<10 {
		return 0
	}
	switch {
	case chunks < 256:
		return 0
	case chunks < 4<<10:
		return 2 * time.Millisecond
	case chunks < 16<<10:
		return 20 * time.Millisecond
	case chunks < 48<<10:
		return 100 * time.Millisecond
	}
	return time.Second
}

// ring keeps the last limit bytes written to it. It grows as needed.
type ring struct {
	limit int
	buf   []byte
	start int // of the oldest byte, once buf is full
}

func (r *ring) write(p []byte) {
	if len(p) > r.limit {
		p = p[len(p)-r.limit:]
	}
	if n := min(r.limit-len(r.buf), len(p)); n > 0 {
		r.buf = append(r.buf, p[:n]...)
		p = p[n:]
	}
	for len(p) > 0 {
		n := copy(r.buf[r.start:], p)
		r.start = (r.start + n) % r.limit
		p = p[n:]
	}
}

// parts returns the content, oldest first, in two pieces.
func (r *ring) parts() (a, b []byte) { return r.buf[r.start:], r.buf[:r.start] }
