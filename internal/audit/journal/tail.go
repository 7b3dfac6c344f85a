package journal

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// tail is the segment that is written. The Journal's mutex guards it.
type tail struct {
	f       *os.File
	size    int64     // where the next record goes
	room    int64     // up to where the file is filled with zeros, when that is beyond size
	filled  *os.File  // it has zeros that are not durable
	rotated time.Time // when a new segment could not be begun the last time
}

// left is how much room is left behind the last record.
func (t *tail) left() int64 { return t.room - t.size }

// takeBack removes the first n bytes of a record that was not written as a whole. Without them the log goes on.
func (t *tail) takeBack(n int64) error {
	if t.left() <= 0 {
		return t.f.Truncate(t.size)
	}
	_, err := t.f.WriteAt(make([]byte, min(n, t.left())), t.size)
	if err == nil && t.size+n > t.room {
		err = t.f.Truncate(t.room)
	}
	return err
}

// fill writes some of the zeros that are wanted behind the last record. more: there is not yet enough of them.
func (t *tail) fill(ahead int64) (more bool, err error) {
	from := max(t.room, t.size)
	want := t.size + ahead - from
	if want <= 0 {
		return false, nil
	}
	n, err := t.f.WriteAt(noBytes[:min(want, roomPiece)], from)
	t.room = from + int64(n)
	t.filled = t.f
	return true, err
}

// undurable returns the file when some of its zeros wait to be made durable, once.
func (t *tail) undurable() *os.File {
	f := t.filled
	t.filled = nil
	return f
}

// fdatasync makes what is in a file durable. Unlike File.Sync it leaves out the times, which no reader needs.
func (o *Options) fdatasync(f *os.File) error {
	if o.FailSync != nil {
		if err := o.FailSync(); err != nil {
			return err
		}
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := conn.Control(func(fd uintptr) {
		for {
			if failed = unix.Fdatasync(int(fd)); !errors.Is(failed, unix.EINTR) { //nolint:gosec // a descriptor
				return
			}
		}
	}); err != nil {
		return err
	}
	return failed
}
