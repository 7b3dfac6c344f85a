package process

import (
	"errors"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// tap reads one output stream of a Session all the time: into the capture of the exec that runs, and
// away while none does.
type tap struct {
	pipe *os.File
	raw  syscall.RawConn

	mu     sync.Mutex // held while a piece is read and put where it belongs
	sink   *capture
	chunks int
}

func newTap(pipe *os.File) *tap {
	raw, err := pipe.SyscallConn()
	if err != nil {
		raw = nil // never for a pipe; run ends at once then
	}
	return &tap{pipe: pipe, raw: raw}
}

// run reads until the stream ends, or expire was called. It closes the pipe.
func (t *tap) run(gone <-chan struct{}) {
	defer t.pipe.Close()
	if t.raw == nil {
		return
	}
	for {
		var n, chunks int
		err := t.raw.Read(func(fd uintptr) bool {
			t.mu.Lock()
			defer t.mu.Unlock()
			var again bool
			if n, again = t.once(int(fd)); n > 0 {
				t.chunks++
			}
			chunks = t.chunks
			return !again
		})
		if err != nil || n <= 0 {
			return
		}
		if d := pace(chunks, n); d > 0 {
			select {
			case <-time.After(d):
			case <-gone:
			}
		}
	}
}

// once reads what there is, up to one chunk. Called with mu held.
func (t *tap) once(fd int) (n int, again bool) {
	if t.sink != nil {
		return t.sink.readOnce(fd)
	}
	buf := readBuffers.Get().(*[]byte)
	defer readBuffers.Put(buf)
	for {
		n, err := unix.Read(fd, *buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		return n, errors.Is(err, unix.EAGAIN)
	}
}

// begin makes c take what comes from now on. What lies in the pipe came before, and is dropped.
func (t *tap) begin(c *capture) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.empty()
	t.sink, t.chunks = c, 0
}

// finish takes what the pipe holds now for the capture that began, and sums it up.
func (t *tap) finish() Stream {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.empty()
	c := t.sink
	t.sink, t.chunks = nil, 0
	return c.finish()
}

// empty reads what the pipe holds, and no more than a pipe can hold: a process may go on writing.
// Called with mu held.
func (t *tap) empty() {
	if t.raw == nil {
		return
	}
	_ = t.raw.Control(func(fd uintptr) { // an error: the stream has ended, and was read to its end
		for taken := 0; taken < 1<<20; {
			n, again := t.once(int(fd))
			if again || n <= 0 {
				return
			}
			taken += n
		}
	})
}

// expire ends run soon: something outside the tree may have got hold of the pipe.
func (t *tap) expire() { _ = t.pipe.SetReadDeadline(time.Now().Add(drainTime)) }
