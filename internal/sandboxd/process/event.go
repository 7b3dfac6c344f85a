package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
)

// Status says how an exec ended.
type Status int

// The ways in which an exec ends.
const (
	Exited        Status = iota + 1 // by itself; death by signal N is code 128+N
	TimedOut                        // its deadline passed
	OOM                             // the kernel killed it for want of memory
	Killed                          // by Exec.Kill, or with its supervisor
	FailedToStart                   // nothing ran; Exit.Reason says why
)

// Event is one numbered event of an exec: exactly one of Started, Data and Exit is set. Events and
// what they point at are never changed.
type Event struct {
	N       uint64
	Time    time.Time
	Started *Started
	Stderr  bool
	Data    []byte // at most MaxChunk
	Exit    *Exit
}

// Started is the first event of an exec that could be started.
type Started struct{ PID int }

// Exit is the last event of every exec.
type Exit struct {
	Status         Status
	Code           int // of Exited, and 125 to 127 of FailedToStart
	Duration       time.Duration
	CPU            time.Duration
	MaxRSS         int64 // bytes, of the largest process
	Stdout, Stderr Stream
	Reason         string
	Left           int  // processes that the command left; 0: all that it started is gone
	LeftTooMany    bool // it would have left some, and too many other execs have

	// Of an exec in a Session.
	Results []json.RawMessage // what it displayed, as the Session sent it: data, at most 8 MiB together
	LeftOut uint32            // how many more there were
	Lost    bool              // the Session ended with it
}

// Stream sums up an output stream.
type Stream struct {
	Total     uint64
	Tail      []byte // the last half of MaxOutput when Total was above it
	SpillPath string // of the whole output, when Total was above MaxOutput
	SpillCut  bool   // the spill file is not whole
}

// MaxChunk is the most bytes of output in one event.
const MaxChunk = 64 << 10

// Errors of the methods of Manager and Exec.
var (
	ErrNotFound   = errors.New("no such exec")
	ErrBusy       = errors.New("too many execs run")
	ErrClosed     = errors.New("sandboxd ends")
	ErrEnded      = errors.New("the exec has ended")
	ErrRunning    = errors.New("the exec still runs")
	ErrNoStdin    = errors.New("stdin of the exec is not open")
	ErrOutOfRange = errors.New("the exec has fewer events")
	ErrNoTerminal = errors.New("the exec has no terminal")
	ErrNoProcess  = errors.New("no exec left such a process")
)

// maxLive bounds the events that are kept of a terminal: a person who types makes small ones.
const maxLive = 32 << 10

// eventLog holds the events of one exec. A record costs 40 bytes besides its data.
type eventLog struct {
	// keep is how many bytes of output stay, of an exec with a terminal; older events go. 0: all.
	keep int

	mu      sync.Mutex
	records []record
	base    uint64 // number of the event before the first record
	exit    *Exit
	pid     int
	block   []byte        // where the next output goes
	bytes   int           // of all output
	wake    chan struct{} // closed at the next event; nil when no follower waits
	exited  chan struct{} // closed with the exit
}

type record struct {
	data   []byte // nil for started and exit
	unixNS int64
	kind   recordKind
}

type recordKind uint8

const (
	recStarted recordKind = iota
	recStdout
	recStderr
	recExit
)

func (l *eventLog) add(kind recordKind, data []byte) {
	l.records = append(l.records, record{data: data, unixNS: time.Now().UnixNano(), kind: kind})
	if l.wake != nil {
		close(l.wake)
		l.wake = nil
	}
}

func (l *eventLog) started(pid int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pid = pid
	l.add(recStarted, nil)
}

// output copies p into blocks and adds an event for each piece.
func (l *eventLog) output(stderr bool, p []byte) {
	kind := recStdout
	if stderr {
		kind = recStderr
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(p) > 0 {
		room := cap(l.block) - len(l.block)
		if room < len(p) && room < 1<<10 {
			// Blocks begin small: most execs print a line or two.
			l.block = make([]byte, 0, max(min(MaxChunk, max(4*cap(l.block), 512)), min(len(p), MaxChunk)))
			room = cap(l.block)
		}
		n := min(room, len(p))
		from := len(l.block)
		l.block = append(l.block, p[:n]...)
		l.bytes += n
		l.add(kind, l.block[from:from+n:from+n])
		p = p[n:]
	}
	l.trim()
}

// trim lets go of the oldest events of a terminal. Called with mu held.
func (l *eventLog) trim() {
	if l.keep == 0 {
		return
	}
	for len(l.records) > maxLive || l.bytes > l.keep && len(l.records) > 1 {
		l.bytes -= len(l.records[0].data)
		l.records[0] = record{} // the array lives on
		l.records = l.records[1:]
		l.base++
	}
}

func (l *eventLog) end(x *Exit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.exit = x
	l.block = nil
	l.add(recExit, nil)
	close(l.exited)
}

func (l *eventLog) last() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.base + uint64(len(l.records))
}

// stream calls each with all output of one stream so far.
func (l *eventLog) stream(stderr bool, each func([]byte) error) error {
	kind := recStdout
	if stderr {
		kind = recStderr
	}
	l.mu.Lock()
	records := slices.Clone(l.records)
	l.mu.Unlock()
	for _, r := range records {
		if r.kind != kind {
			continue
		}
		if err := each(r.data); err != nil {
			return err
		}
	}
	return nil
}

// next returns up to limit events after number after, and waits when there is none yet. When older events
// were dropped, it starts with the oldest that is left. After the exit it returns io.EOF.
func (l *eventLog) next(ctx context.Context, after uint64, limit int) ([]Event, error) {
	for {
		l.mu.Lock()
		count := l.base + uint64(len(l.records))
		if after > count {
			l.mu.Unlock()
			return nil, fmt.Errorf("%w: the last is number %d", ErrOutOfRange, count)
		}
		if after < count {
			events := l.collect(after, limit)
			l.mu.Unlock()
			return events, nil
		}
		if l.exit != nil {
			l.mu.Unlock()
			return nil, io.EOF
		}
		if l.wake == nil {
			l.wake = make(chan struct{})
		}
		wake := l.wake
		l.mu.Unlock()
		select {
		case <-wake:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (l *eventLog) collect(after uint64, limit int) []Event {
	after = max(after, l.base)
	rs := l.records[after-l.base:]
	rs = rs[:min(len(rs), limit)]
	events := make([]Event, len(rs))
	for i, r := range rs {
		e := Event{N: after + uint64(i) + 1, Time: time.Unix(0, r.unixNS), Data: r.data, Stderr: r.kind == recStderr}
		switch r.kind {
		case recStarted:
			e.Started = &Started{PID: l.pid}
		case recExit:
			e.Exit = l.exit
		}
		events[i] = e
	}
	return events
}
