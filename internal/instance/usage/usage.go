package usage

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/platform/deadline"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store"
	"github.com/skerry-sandbox/skerry/internal/workspace"
)

const (
	// writeEvery is how often what a thread used is written down.
	writeEvery = 10 * time.Second
	// writeTimeout bounds a write, which outlives the exec it belongs to, and all of those at the server's end.
	writeTimeout = 10 * time.Second
	// measureEvery is how old the size of a thread's files gets while its sandbox is used.
	measureEvery = 2 * time.Minute
	// lookTimeout bounds one look. walkTime is how long it measures, and a walk that began is finished. After that, nothing is
	// measured for walkRest times as long.
	lookTimeout = time.Minute
	walkTime    = 200 * time.Millisecond
	walkRest    = 4
	// lastTimeout bounds how long a sandbox that ended waits for its walk, and the walk. lastWalks are made side by side.
	lastTimeout = time.Minute
	lastWalks   = 2
)

// Store has the records of threads.
type Store interface {
	TouchThread(ctx context.Context, t sandbox.Thread, at time.Time) error
	UseThread(ctx context.Context, t sandbox.Thread, at time.Time, u store.ThreadUse) error
}

// Meter measures the files of a thread. It has a deadline of its own.
type Meter interface {
	Thread(ctx context.Context, t sandbox.Thread) (sandbox.DiskUsage, error)
}

// Options are all needed.
type Options struct {
	Store   Store
	Meter   Meter
	Folders *workspace.Folders
	Live    *instance.Map
	Log     *slog.Logger
	Group   *sync.WaitGroup // counts what runs in the background, which ends with the context
}

// Writer writes what threads use.
type Writer struct {
	o    Options
	ctx  context.Context // ends with the server
	id   string          // of this process, in the records
	last chan struct{}   // has a token of each walk at the end of a sandbox

	looking atomic.Bool // a look goes on, which has the rest
	walks   time.Time   // before that nothing is measured
	writes  time.Time   // before that nothing is written: the state did not answer
}

// New returns the writer of a server.
func New(ctx context.Context, o Options) *Writer {
	return &Writer{o: o, ctx: ctx, id: string(sandbox.NewID()), last: make(chan struct{}, lastWalks)}
}

// Touch writes the last activity of an instance's thread, which is now, and what it used, every writeEvery at most. Of an instance
// that is ending, all is written.
func (w *Writer) Touch(inst *instance.Instance) {
	now, due := inst.Saved.Touch(writeEvery)
	if ending := inst.Ending() != ""; !due && !ending || ending && !w.sameFolder(inst) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.ctx), writeTimeout)
	defer cancel()
	if err := w.write(ctx, inst, now); err != nil {
		w.o.Log.Warn("last activity not written", "thread", inst.Thread.String(), "error", err)
	}
}

// write writes what an instance used, and the time when it was active; zero: none.
func (w *Writer) write(ctx context.Context, inst *instance.Instance, active time.Time) error {
	ran, sized := inst.Used.Take()
	use := store.ThreadUse{Writer: w.writer(inst), Batch: ran.Batch, Execs: ran.Execs, ExecTime: ran.Time}
	if disk, at := inst.Disk.Last(); disk != nil && at.After(sized) && !inst.OnVolume() {
		use.DiskBytes, use.MeasuredAt = disk.Bytes, at
	}
	switch {
	case use.Batch > 0 || !use.MeasuredAt.IsZero():
		err := w.o.Store.UseThread(ctx, inst.Thread, active, use)
		if err == nil {
			inst.Used.Written(ran, use.MeasuredAt)
		}
		return err
	case !active.IsZero():
		return w.o.Store.TouchThread(ctx, inst.Thread, active)
	}
	return nil
}

// writer names an instance in records: another process counts its batches anew.
func (w *Writer) writer(inst *instance.Instance) string { return w.id + "/" + string(inst.ID) }

// sameFolder reports whether the thread's folder is the one that the instance has: its thread may have been deleted, and be a new
// one by now.
func (w *Writer) sameFolder(inst *instance.Instance) bool {
	uid, err := workspace.UID(w.o.Folders.Dir(inst.Thread))
	return err == nil && uid == inst.UID
}

// Look writes, in the background, what instances used and no exec has written since, and measures files that are due. While a
// look goes on, another one does nothing.
func (w *Writer) Look(now time.Time) {
	if !w.looking.CompareAndSwap(false, true) {
		return
	}
	w.o.Group.Go(func() {
		defer w.looking.Store(false)
		ctx, cancel := context.WithTimeout(w.ctx, lookTimeout)
		defer cancel()
		w.look(ctx, now)
	})
}

func (w *Writer) look(ctx context.Context, now time.Time) {
	var walked time.Duration
	for _, inst := range w.o.Live.All() {
		if inst.Main != nil || !inst.IsReady() || inst.Ending() != "" {
			continue
		}
		measured := false
		if walked < walkTime && !now.Before(w.walks) && measureDue(inst, now) {
			began := time.Now()
			measured = inst.Disk.Used(func() (sandbox.DiskUsage, error) { return w.o.Meter.Thread(ctx, inst.Thread) }) != nil
			walked += time.Since(began)
		}
		rests, tried := inst.Used.Rests()
		if now.Before(w.writes) || !measured && (!rests || now.Sub(tried) < writeEvery) {
			continue
		}
		if err := w.write(ctx, inst, time.Time{}); err != nil {
			w.writes = now.Add(writeEvery)
			w.o.Log.Warn("what threads used is not written; tried again", "thread", inst.Thread.String(), "error", err)
		}
	}
	if walked > 0 {
		w.walks = time.Now().Add(walkRest * walked)
	}
}

// measureDue reports whether an instance was used since its files were measured, long enough ago.
func measureDue(inst *instance.Instance, now time.Time) bool {
	_, at := inst.Disk.Last()
	if at.IsZero() {
		at = inst.Info().CreatedAt
	}
	return now.Sub(at) > measureEvery && !inst.OnVolume() && (inst.Busy() || inst.LastUse().After(at))
}

// Flush writes what an instance used that is not written yet, before it goes.
func (w *Writer) Flush(ctx context.Context, inst *instance.Instance) {
	ctx, cancel := deadline.Detached(ctx, writeTimeout)
	defer cancel()
	w.flush(ctx, inst)
}

func (w *Writer) flush(ctx context.Context, inst *instance.Instance) {
	for range 2 { // what was taken before, and what ran since
		if rests, _ := inst.Used.Rests(); !rests {
			return
		}
		if err := w.write(ctx, inst, time.Time{}); err != nil {
			w.o.Log.Warn("what a thread used at last is not written", "thread", inst.Thread.String(), "error", err)
			return
		}
	}
}

// FlushAll is Flush for all instances, at the end of the server.
func (w *Writer) FlushAll(ctx context.Context) {
	ctx, cancel := deadline.Detached(ctx, writeTimeout)
	defer cancel()
	for _, inst := range w.o.Live.All() {
		w.flush(ctx, inst)
	}
}

// Ended measures the files of a sandbox that ended, in the background, and writes their size.
func (w *Writer) Ended(inst *instance.Instance) {
	if inst.Main != nil || inst.Waits() || !inst.IsReady() || inst.OnVolume() {
		return
	}
	w.o.Group.Go(func() {
		ctx, cancel := context.WithTimeout(w.ctx, lastTimeout)
		defer cancel()
		select {
		case w.last <- struct{}{}:
			defer func() { <-w.last }()
		case <-ctx.Done():
			return
		}
		use := store.ThreadUse{Writer: w.writer(inst), MeasuredAt: time.Now()}
		used, err := w.o.Meter.Thread(ctx, inst.Thread)
		if err == nil && w.sameFolder(inst) {
			use.DiskBytes = used.Bytes
			err = w.o.Store.UseThread(ctx, inst.Thread, time.Time{}, use)
		}
		if err != nil { // such as of a thread that was deleted meanwhile
			w.o.Log.Debug("files not measured at the end of a sandbox", "thread", inst.Thread.String(), "error", err)
		}
	})
}
