package process

import (
	"context"
	"os"
	"slices"
	"sync"
	"time"
)

// endOfFile is what a person types (Ctrl-D).
const endOfFile = 0x04

// stdin is the open stdin of an exec. Writes happen one after the other.
type stdin struct {
	ready chan struct{} // closed once start was called
	turn  chan struct{} // holds a token while nothing is written
	// terminal: it is one, whose input ends by a character and goes on after it.
	terminal bool

	mu   sync.Mutex
	file *os.File // nil: not open, or closed
}

func newStdin() *stdin {
	s := &stdin{ready: make(chan struct{}), turn: make(chan struct{}, 1)}
	s.turn <- struct{}{}
	return s
}

// start sends the command its first input, in the background when it does not surely fit into the
// pipe. file is nil when stdin is not open. Called once.
func (s *stdin) start(file *os.File, req Request) {
	<-s.turn // others wait for ready
	s.mu.Lock()
	s.file = file
	s.mu.Unlock()
	close(s.ready)
	write := func() {
		if file != nil {
			_, _ = file.Write(req.Stdin) // a command is free not to read it
		}
		if !req.KeepStdin {
			s.close()
		}
		s.turn <- struct{}{}
	}
	if len(req.Stdin) <= 4<<10 {
		write()
		return
	}
	go write() // ends when the command has read all, or by close at the end of the exec
}

// close ends the input; a write under way fails.
func (s *stdin) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file != nil {
		_ = s.file.Close()
		s.file = nil
	}
}

// write writes all of data, unless ctx ends first.
func (s *stdin) write(ctx context.Context, data []byte) error {
	s.mu.Lock()
	file := s.file
	s.mu.Unlock()
	if file == nil {
		return ErrNoStdin
	}
	_ = file.SetWriteDeadline(time.Time{})
	stop := context.AfterFunc(ctx, func() { _ = file.SetWriteDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := file.Write(data); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return ErrNoStdin
	}
	return nil
}

// WriteStdin writes to an exec started with KeepStdin, waiting until the command took all or ctx
// ends; with closeIt stdin is closed after it, which for a terminal is to type the end of file. Errors: ErrNoStdin when stdin is not open (any more).
func (e *Exec) WriteStdin(ctx context.Context, data []byte, closeIt bool) error {
	s := e.stdin
	for _, wait := range []chan struct{}{s.ready, s.turn} {
		select {
		case <-wait:
		case <-e.log.exited:
			return ErrNoStdin
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	defer func() { s.turn <- struct{}{} }()
	if closeIt && s.terminal {
		data, closeIt = append(slices.Clip(data), endOfFile), false
	}
	err := s.write(ctx, data)
	if closeIt && err == nil {
		s.close()
	}
	return err
}
