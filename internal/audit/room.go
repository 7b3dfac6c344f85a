package audit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/audit/record"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store/groupcommit"
)

// Room is made ahead of the records, by filling the segment with zeros in the background. A commit then changes no
// metadata of the file system and waits for no journal, and a disk that is full leaves room in which the ends of what
// was begun are still recorded.
const (
	// DefaultAhead is how much room is made ahead. It is filled up when half of it is left.
	DefaultAhead = 2 << 20
	// roomPiece is written in one go, while nothing can be appended: some 50 µs.
	roomPiece = 128 << 10
	// mendEvery is how often a log that cannot be written is tried again.
	mendEvery = time.Second
	// maxUnsynced is how many bytes of records may wait for a commit that no caller asks for.
	maxUnsynced = 1 << 20
	// refusalEvery bounds the records of refused attempts, which must not use up what is left.
	refusalEvery = time.Second
)

var noBytes [roomPiece]byte

// errFull is what is said while there is no room.
var errFull = sandbox.Errorf(sandbox.Unavailable, "the disk of the audit log is full: what must be recorded is refused until there is room again")

// isFull reports whether an error says that there is no room: of the disk, a quota, or a limit of the process.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}

// admit says whether there is room for a record while the reserve cannot be refilled: half of what is made ahead is kept for
// results, the last eighth for the results of what was begun.
func (l *Log) admit(r Record) error {
	if l.full == nil && r.Phase == PhaseAttempt && l.room-l.size < l.o.Ahead/2 && l.broken == nil {
		// The background is late, and may not know yet that the disk is full: an attempt takes no room of the results.
		if _, _, err := l.addPiece(); isFull(err) {
			l.full = err
			token(l.hungry)
		}
	}
	if l.full == nil {
		return nil
	}
	left := l.room - l.size
	if r.Phase == PhaseAttempt && left < l.o.Ahead/2 || r.Parent == "" && left < l.o.Ahead/8 {
		return errFull
	}
	return nil
}

// keep makes room, and tries again what failed, until stop is closed.
func (l *Log) keep(stop <-chan struct{}) {
	tick := time.NewTicker(mendEvery)
	defer tick.Stop()
	for {
		l.noteRoom(l.makeRoom())
		l.commitLots()
		select {
		case <-stop:
			return
		case <-l.hungry:
		case <-tick.C:
			l.mend()
			l.noteGap()
		}
	}
}

// makeRoom fills the segment with zeros, up to Ahead behind its last record, and makes them durable.
func (l *Log) makeRoom() error {
	for {
		l.mu.Lock()
		f, more, err := l.addPiece()
		l.mu.Unlock()
		if err != nil {
			return err
		}
		if more {
			continue
		}
		if f == nil {
			return nil
		}
		// A failure that this call is told, no later one is.
		if err := l.fdatasync(f); err != nil && !errors.Is(err, os.ErrClosed) {
			l.fail(err)
		}
		return nil
	}
}

// addPiece writes some zeros. more: there is not yet enough of them. f is the file, when some wait to be made durable.
// The caller holds mu.
func (l *Log) addPiece() (f *os.File, more bool, err error) {
	from := max(l.room, l.size)
	want := l.size + l.o.Ahead - from
	if l.closed || l.broken != nil || want <= 0 {
		f, l.filled = l.filled, nil
		return f, false, nil
	}
	n, err := l.f.WriteAt(noBytes[:min(want, roomPiece)], from)
	l.room = from + int64(n)
	l.filled = l.f
	return nil, true, err
}

// noteRoom remembers whether room could be made, and tells it when that changed.
func (l *Log) noteRoom(err error) {
	l.mu.Lock()
	was := l.fullTold
	l.full, l.fullTold = err, err
	left := l.room - l.size
	l.mu.Unlock()
	switch {
	case was == nil && err != nil:
		l.log.Error("no room can be made for the audit log; when little is left, what must be recorded is refused", "left_bytes", left, "error", err)
	case was != nil && err == nil:
		l.log.Info("there is room for the audit log again")
	}
}

// fdatasync makes what is in a file durable. Unlike File.Sync it leaves out the times, which no reader needs.
func (l *Log) fdatasync(f *os.File) error {
	if l.o.failSync != nil {
		if err := l.o.failSync(); err != nil {
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

// fail stops the log: what was appended last is not known to be durable, and never will be by another sync alone.
func (l *Log) fail(err error) {
	l.mu.Lock()
	first := l.broken == nil
	if first {
		l.broken = err
	}
	l.mu.Unlock()
	if first {
		l.log.Error("the audit log cannot be written", "error", err)
	}
}

// mend writes again what is not known to be durable, when the log failed. That it is written again is what makes the
// success of the sync mean something: after a failure the operating system takes the old pages for clean.
func (l *Log) mend() {
	l.mu.Lock()
	f, broken, text, at, seq := l.f, l.broken, l.unsynced, l.size-int64(len(l.unsynced)), l.appended.Load()
	if broken == nil || l.closed {
		l.mu.Unlock()
		return
	}
	_, err := f.WriteAt(text, at)
	l.mu.Unlock()
	if err == nil {
		err = l.fdatasync(f)
	}
	if err != nil {
		return // it was said when it began
	}
	l.mu.Lock()
	old := l.commit
	l.commit, l.broken, l.unsynced = groupcommit.New(l.sync), nil, nil
	l.advance(seq)
	l.mu.Unlock()
	_ = old.Close() // it failed, and works again
	l.log.Info("the audit log can be written again")
}

// gap is what was done while it could not be recorded (on_failure: open).
type gap struct {
	Count  uint64    `json:"count"`
	From   time.Time `json:"from"`
	To     time.Time `json:"to"`
	Reason string    `json:"reason"`
}

// miss counts a record that is not written, and returns it as if it were, without a place in the log.
func (l *Log) miss(r Record, err error) Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now().UTC()
	if l.missed.Count == 0 {
		l.missed.From, l.missed.Reason = now, err.Error()
		l.log.Error("actions go on without records (audit.on_failure: open)", "error", err)
	}
	l.missed.Count++
	l.missed.To = now
	l.missedEver++
	r.Time, r.Writer, r.Seq, r.Prev, r.Hash = now, l.writer, 0, "", ""
	return r
}

// noteGap records what was missed, once that is possible, also when no caller acts.
func (l *Log) noteGap() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed && l.broken == nil && l.full == nil {
		_ = l.writeGap()
	}
}

// writeGap records what was missed, if anything, before whatever comes next.
func (l *Log) writeGap() error {
	if l.missed.Count == 0 {
		return nil
	}
	args, hash := Args(l.missed)
	r, err := record.OfLog(ActionGap, fmt.Sprintf("%d records are missing", l.missed.Count))
	if err != nil {
		return err
	}
	r.Outcome, r.Args, r.ArgsHash = "error", args, hash
	if _, err := l.write(r); err != nil {
		return err
	}
	l.log.Warn("actions went on without records; the gap is recorded", "count", l.missed.Count, "from", l.missed.From, "to", l.missed.To)
	l.missed = gap{}
	return nil
}

// refused records an attempt that was refused for want of room, in the room that is kept for this.
func (l *Log) refused(r Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refusals++
	if now := time.Now(); now.Sub(l.refusedAt) < refusalEvery {
		return
	} else {
		l.refusedAt = now
	}
	r.Phase, r.Outcome, r.Detail = PhaseResult, "denied", "the disk of the audit log is full"
	if l.refusals > 1 {
		r.Detail += fmt.Sprintf("; %d more were refused before it", l.refusals-1)
	}
	if l.admit(r) == nil && l.broken == nil && !l.closed {
		if _, err := l.write(r); err == nil {
			l.refusals = 0
		}
	}
}

// State says how the log is.
type State struct {
	// Err is why something is, or is about to be, refused (or, with on_failure: open, not recorded); nil: nothing.
	Err error
	// Room is for how many bytes of records there is room that no full disk can take.
	Room int64
	// Missed is how many records were not written since the log was opened (on_failure: open).
	Missed uint64
	// Unsigned is how many records follow the last signed one, SignedAt the time of that signature. SignErr
	// is why no newer one could be made.
	Unsigned uint64
	SignedAt time.Time
	SignErr  error
}

// State of the log now.
func (l *Log) State() State {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := State{Room: max(0, l.room-l.size), Missed: l.missedEver, SignErr: l.signErr, SignedAt: l.signedAt}
	if l.o.Signer != nil {
		s.Unsigned = l.appended.Load() - l.signed
	}
	switch {
	case l.broken != nil:
		s.Err = sandbox.Wrap(sandbox.Unavailable, l.broken, "the audit log cannot be written")
	case l.full != nil:
		s.Err = errFull
		if !isFull(l.full) {
			s.Err = sandbox.Wrap(sandbox.Unavailable, l.full, "no room can be made for the audit log")
		}
	}
	return s
}

// commitLots makes durable what no caller waits for, when it is a lot: what is not durable is held in memory too.
func (l *Log) commitLots() {
	l.mu.Lock()
	lots := len(l.unsynced) > maxUnsynced && l.broken == nil
	l.mu.Unlock()
	if lots {
		ctx, cancel := context.WithTimeout(context.Background(), mendEvery)
		defer cancel()
		_ = l.durable(ctx, l.appended.Load()) // a failure is remembered
	}
}
