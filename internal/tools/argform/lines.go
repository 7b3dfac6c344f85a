package argform

import (
	"bufio"
	"context"
	"errors"
	"io"
)

// maxLine is the longest answer in bytes.
const maxLine = 1 << 20

// Lines reads answers. A read from a terminal cannot be called off, so it is made in a goroutine,
// which ends with the input; who waits for it can go away.
type Lines struct {
	want chan struct{}
	got  chan answer
}

type answer struct {
	line string
	err  error
}

// NewLines reads lines of up to 1 MiB from in, each when it is asked for. Close ends it.
func NewLines(in io.Reader) *Lines {
	l := &Lines{want: make(chan struct{}), got: make(chan answer, 1)}
	go l.run(in)
	return l
}

func (l *Lines) run(in io.Reader) {
	scanner := bufio.NewScanner(in)
	scanner.Buffer(make([]byte, 4096), maxLine)
	for range l.want {
		a := answer{err: ErrEnded}
		if scanner.Scan() {
			a = answer{line: scanner.Text()}
		} else if err := scanner.Err(); err != nil {
			a.err = err
			if errors.Is(err, bufio.ErrTooLong) {
				a.err = errors.New("a line is longer than 1 MiB")
			}
		}
		l.got <- a
	}
}

// Close lets the reader go. It does not wait for a read that is under way.
func (l *Lines) Close() { close(l.want) }

func (l *Lines) next(ctx context.Context) (string, error) {
	select {
	case l.want <- struct{}{}:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	select {
	case a := <-l.got:
		return a.line, a.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}
