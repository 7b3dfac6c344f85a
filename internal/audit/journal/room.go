package journal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit/record"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store/groupcommit"
)

// Room is made ahead of the records: a goroutine fills the segment with zeros in the background. A commit
// then changes no metadata of the file system and waits for no journal. On a full disk, the room still takes
// the ends of what was begun.
const (
	// DefaultAhead is how much room is made ahead. It is filled up when half of it is left.
	DefaultAhead = 2 << 20
	// roomPiece is written in one go, while nothing can be appended: some 50 µs.
	roomPiece = 128 << 10
	// mendEvery is how often a log that cannot be written is tried again.
	mendEvery = time.Second
	// maxUnsynced is how many bytes of records may wait for a commit that no caller asks for.
	maxUnsynced = 1 << 20
)

// failure is why nothing can be appended, or no room be made. The Journal's mutex guards it.
type failure struct {
	broken   error // why nothing can be appended, see mend
	full     error // why no room could be made, the last time
	fullTold error // full, when it was last logged
}

var noBytes [roomPiece]byte

// errFull is what is said while there is no room.
var errFull = sandbox.Errorf(sandbox.Unavailable, "the disk of the audit log is full: what must be recorded is refused until there is room again")

// isFull reports whether an error says that there is no room: of the disk, a quota, or a limit of the process.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}

// admit says whether there is room for a record while the reserve cannot be refilled: half of what is made ahead is kept for
// results, the last eighth for the results of what was begun.
func (j *Journal) admit(r record.Record) error {
	if j.failure.full == nil && r.Phase == record.PhaseAttempt && j.tail.left() < j.o.Ahead/2 && j.failure.broken == nil {
		// The background is late, and may not know yet that the disk is full: an attempt takes no room of the results.
		if _, err := j.tail.fill(j.o.Ahead); isFull(err) {
			j.failure.full = err
			token(j.hungry)
		}
	}
	if j.failure.full == nil {
		return nil
	}
	left := j.tail.left()
	if r.Phase == record.PhaseAttempt && left < j.o.Ahead/2 || r.Parent == "" && left < j.o.Ahead/8 {
		return errFull
	}
	return nil
}

// keep makes room, and tries again what failed, until Stop.
func (j *Journal) keep() {
	tick := time.NewTicker(mendEvery)
	defer tick.Stop()
	for {
		j.noteRoom(j.makeRoom())
		j.commitLots()
		select {
		case <-j.stop:
			return
		case <-j.hungry:
		case <-tick.C:
			j.mend()
			j.noteGap()
		}
	}
}

// makeRoom fills the segment with zeros, up to Ahead behind its last record, and makes them durable.
func (j *Journal) makeRoom() error {
	for {
		f, more, err := (*os.File)(nil), false, error(nil)
		j.mu.Lock()
		if !j.closed && j.failure.broken == nil {
			more, err = j.tail.fill(j.o.Ahead)
		}
		if !more {
			f = j.tail.undurable()
		}
		j.mu.Unlock()
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
		if err := j.o.fdatasync(f); err != nil && !errors.Is(err, os.ErrClosed) {
			j.fail(err)
		}
		return nil
	}
}

// noteRoom remembers whether room could be made, and tells it when that changed.
func (j *Journal) noteRoom(err error) {
	j.mu.Lock()
	was := j.failure.fullTold
	j.failure.full, j.failure.fullTold = err, err
	left := j.tail.left()
	j.mu.Unlock()
	switch {
	case was == nil && err != nil:
		j.o.Log.Error("no room can be made for the audit log; when little is left, what must be recorded is refused", "left_bytes", left, "error", err)
	case was != nil && err == nil:
		j.o.Log.Info("there is room for the audit log again")
	}
}

// fail stops the log: what was appended last is not known to be durable, and never will be by another sync alone.
func (j *Journal) fail(err error) {
	j.mu.Lock()
	first := j.failure.broken == nil
	if first {
		j.failure.broken = err
	}
	j.mu.Unlock()
	if first {
		j.o.Log.Error("the audit log cannot be written", "error", err)
	}
}

// mend writes again what is not known to be durable, when the log failed. That it is written again is what makes the
// success of the sync mean something: after a failure the operating system takes the old pages for clean.
func (j *Journal) mend() {
	j.mu.Lock()
	f, broken, text, at := j.tail.f, j.failure.broken, j.unsynced, j.tail.size-int64(len(j.unsynced))
	if broken == nil || j.closed {
		j.mu.Unlock()
		return
	}
	_, err := f.WriteAt(text, at)
	j.mu.Unlock()
	if err == nil {
		err = j.o.fdatasync(f)
	}
	if err != nil {
		return // it was said when it began
	}
	j.mu.Lock()
	old := j.commit
	j.commit, j.failure.broken, j.unsynced = groupcommit.New(j.sync), nil, nil
	j.advance(j.appended.Load(), j.head) // nothing was appended while it was broken
	j.mu.Unlock()
	_ = old.Close() // it failed, and works again
	j.o.Log.Info("the audit log can be written again")
}

// miss counts a record that is not written, and returns it as if it were, without a place in the log.
func (j *Journal) miss(r record.Record, err error) record.Record {
	j.mu.Lock()
	defer j.mu.Unlock()
	now := time.Now().UTC()
	if j.gaps.miss(now, err) {
		j.o.Log.Error("actions go on without records (audit.on_failure: open)", "error", err)
	}
	r.Time, r.Writer, r.Seq, r.Prev, r.Hash = now, j.writer, 0, "", ""
	return r
}

// noteGap records what was missed, once that is possible, also when no caller acts.
func (j *Journal) noteGap() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.closed && j.failure.broken == nil && j.failure.full == nil {
		_ = j.writeGap()
	}
}

// writeGap records what was missed, if anything, before whatever comes next.
func (j *Journal) writeGap() error {
	if j.gaps.missed.Count == 0 {
		return nil
	}
	args, hash := record.Args(j.gaps.missed)
	r, err := record.OfLog(record.ActionGap, fmt.Sprintf("%d records are missing", j.gaps.missed.Count))
	if err != nil {
		return err
	}
	r.Outcome, r.Args, r.ArgsHash = "error", args, hash
	if _, err := j.write(r); err != nil {
		return err
	}
	j.o.Log.Warn("actions went on without records; the gap is recorded", "count", j.gaps.missed.Count, "from", j.gaps.missed.From, "to", j.gaps.missed.To)
	j.gaps.missed = gap{}
	return nil
}

// refused records an attempt that was refused for want of room, in the room that is kept for this.
func (j *Journal) refused(r record.Record) {
	j.mu.Lock()
	defer j.mu.Unlock()
	detail, due := j.gaps.refuse(time.Now())
	if !due {
		return
	}
	r.Phase, r.Outcome, r.Detail = record.PhaseResult, "denied", detail
	if j.admit(r) == nil && j.failure.broken == nil && !j.closed {
		if _, err := j.write(r); err == nil {
			j.gaps.refusals = 0
		}
	}
}

// State says how a journal is.
type State struct {
	// Err is why something is, or is about to be, refused (or, with on_failure: open, not recorded); nil: nothing.
	Err error
	// Room is for how many bytes of records there is room that no full disk can take.
	Room int64
	// Missed is how many records were not written since the journal was opened (on_failure: open).
	Missed uint64
}

// State of the journal now.
func (j *Journal) State() State {
	j.mu.Lock()
	defer j.mu.Unlock()
	s := State{Room: max(0, j.tail.left()), Missed: j.gaps.missedEver}
	switch {
	case j.failure.broken != nil:
		s.Err = sandbox.Wrap(sandbox.Unavailable, j.failure.broken, "the audit log cannot be written")
	case j.failure.full != nil:
		s.Err = errFull
		if !isFull(j.failure.full) {
			s.Err = sandbox.Wrap(sandbox.Unavailable, j.failure.full, "no room can be made for the audit log")
		}
	}
	return s
}

// commitLots makes durable what no caller waits for, when it is a lot: what is not durable is held in memory too.
func (j *Journal) commitLots() {
	j.mu.Lock()
	lots := len(j.unsynced) > maxUnsynced && j.failure.broken == nil
	j.mu.Unlock()
	if lots {
		ctx, cancel := context.WithTimeout(context.Background(), mendEvery)
		defer cancel()
		_ = j.Durable(ctx, j.appended.Load()) // a failure is remembered
	}
}
