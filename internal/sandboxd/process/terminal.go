package process

import (
	"fmt"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// Size is that of a terminal, in characters.
type Size struct{ Cols, Rows uint16 }

// MaxSide is the most columns, and the most rows, of a terminal.
const MaxSide = 1000

func (s Size) check() error {
	if s.Cols < 1 || s.Cols > MaxSide || s.Rows < 1 || s.Rows > MaxSide {
		return fmt.Errorf("a terminal of %d columns and %d rows: want 1 to %d of each", s.Cols, s.Rows, MaxSide)
	}
	return nil
}

func (s Size) winsize() *unix.Winsize { return &unix.Winsize{Col: s.Cols, Row: s.Rows} }

// openTerminal makes a terminal in the place of pipes. theirs stay open until the tree is gone: a
// terminal that no process has open would end our reading, and a command may close it and open it again.
func openTerminal(size Size) (p *pipes, err error) {
	p = &pipes{theirs: [3]int{-1, -1, -1}}
	defer func() {
		if err != nil {
			p.closeTheirs()
			p.closeOurs()
			p = nil
		}
	}()
	// Never ours: PID 1 leads a session, and a terminal that it opens would become its own.
	const flags = unix.O_RDWR | unix.O_NOCTTY | unix.O_CLOEXEC
	master, err := unix.Open("/dev/ptmx", flags|unix.O_NONBLOCK, 0)
	if err != nil {
		return p, fmt.Errorf("/dev/ptmx: %w", err)
	}
	p.stdin = os.NewFile(uintptr(master), "terminal")
	// A second descriptor, so that each has its own deadlines and its own end.
	second, err := unix.FcntlInt(uintptr(master), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return p, fmt.Errorf("terminal: %w", err)
	}
	p.out[0] = os.NewFile(uintptr(second), "terminal")
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		return p, fmt.Errorf("terminal: unlock: %w", err)
	}
	if p.theirs[0], err = peer(master, flags); err != nil {
		return p, fmt.Errorf("terminal: other end: %w", err)
	}
	for i := 1; i < 3; i++ {
		if p.theirs[i], err = unix.FcntlInt(uintptr(p.theirs[0]), unix.F_DUPFD_CLOEXEC, 3); err != nil {
			return p, fmt.Errorf("terminal: %w", err)
		}
	}
	if err := unix.IoctlSetWinsize(master, unix.TIOCSWINSZ, size.winsize()); err != nil {
		return p, fmt.Errorf("terminal: size: %w", err)
	}
	return p, nil
}

// peer opens the end of a terminal that its command gets. gVisor does not know how to do it without
// the path.
func peer(master, flags int) (int, error) {
	if fd, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(master), unix.TIOCGPTPEER, uintptr(flags)); errno == 0 {
		return int(fd), nil
	}
	n, err := unix.IoctlGetInt(master, unix.TIOCGPTN)
	if err != nil {
		return -1, err
	}
	return unix.Open("/dev/pts/"+strconv.Itoa(n), flags, 0)
}

// terminal is that of an exec while it runs. A nil one is none.
type terminal struct {
	mu   sync.Mutex
	file *os.File // nil: the exec has not begun, or ended
	next *Size    // was asked for before it began
}

// open takes the terminal into use. The file stays the caller's, who calls close first.
func (t *terminal) open(file *os.File) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.file = file
	if t.next != nil {
		_ = t.set(*t.next)
	}
}

func (t *terminal) close() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.file = nil
}

func (t *terminal) set(size Size) error {
	raw, err := t.file.SyscallConn()
	if err != nil {
		return ErrEnded
	}
	var failed error
	if err := raw.Control(func(fd uintptr) {
		failed = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, size.winsize())
	}); err != nil {
		return ErrEnded
	}
	return failed
}

// Resize sets the size of the terminal of the exec, of which the programs that it shows are told by
// SIGWINCH. Errors: ErrNoTerminal, ErrEnded, or a size that is not one.
func (e *Exec) Resize(size Size) error {
	if err := size.check(); err != nil {
		return err
	}
	t := e.terminal
	if t == nil {
		return ErrNoTerminal
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case e.Ended():
		return ErrEnded
	case t.file == nil:
		t.next = &size
		return nil
	}
	return t.set(size)
}
