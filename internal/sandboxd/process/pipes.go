package process

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// pipes are the standard streams of an exec. Our ends do not block, theirs do.
type pipes struct {
	theirs [3]int
	stdin  *os.File    // nil: stdin is /dev/null
	out    [2]*os.File // the second is nil for a terminal
}

func openPipes(req Request) (*pipes, error) {
	if req.Terminal != nil {
		return openTerminal(*req.Terminal)
	}
	p := &pipes{theirs: [3]int{-1, -1, -1}}
	var err error
	if len(req.Stdin) > 0 || req.KeepStdin {
		p.theirs[0], p.stdin, err = openPipe(false)
	} else {
		p.theirs[0], err = unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	}
	for i := range p.out {
		if err == nil {
			p.theirs[i+1], p.out[i], err = openPipe(true)
		}
	}
	if err != nil {
		p.closeTheirs()
		p.closeOurs()
		return nil, err
	}
	return p, nil
}

// openPipe makes a pipe of which we read or write one end.
func openPipe(weRead bool) (theirs int, ours *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return -1, nil, err
	}
	our, their := fds[0], fds[1]
	if !weRead {
		our, their = their, our
	}
	if err := unix.SetNonblock(our, true); err != nil {
		return -1, nil, errors.Join(err, unix.Close(our), unix.Close(their))
	}
	return their, os.NewFile(uintptr(our), "pipe"), nil
}

func (p *pipes) closeTheirs() {
	for i, fd := range p.theirs {
		if fd >= 0 {
			_ = unix.Close(fd)
			p.theirs[i] = -1
		}
	}
}

func (p *pipes) closeOurs() {
	for _, f := range append(p.out[:], p.stdin) {
		if f != nil {
			_ = f.Close()
		}
	}
}
