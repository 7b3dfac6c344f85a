package paths

import (
	"context"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Change is a file or folder that is not as it was: created, modified or deleted. What was renamed is deleted under its old
// name and created under the new one.
type Change struct {
	Path   string `json:"path"`
	Change string `json:"change" enum:"created,modified,deleted"`
	IsDir  bool   `json:"is_dir"`

	Bytes    int64 `json:"-"`
	ModeOnly bool  `json:"-"` // of modified: only its permissions are others
}

// Watch is a folder as it was when it was last looked at. It is for one goroutine. Close it.
type Watch struct {
	path      string
	recursive bool
	before    map[string]Entry // nil before the first look
	took      time.Duration    // the last look
	bell      *bell            // nil: no caller waits
}

// NewWatch makes a watch of a folder, and of all below it when recursive.
func NewWatch(path string, recursive bool) *Watch { return &Watch{path: path, recursive: recursive} }

// Look returns what changed since the look before, sorted by path; the first look returns nothing. What came and went in
// between is not seen. QuotaExceeded: the folder has more than MaxEntries, or MaxEntryBytes.
func (w *Watch) Look(ctx context.Context, f *FS) ([]Change, error) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, WalkBudget)
	defer cancel()
	p, err := f.space.resolve(w.path, how{follow: true})
	if err != nil {
		return nil, err
	}
	defer p.close()
	now, bytes := map[string]Entry{}, 0
	walk := &walk{ctx: ctx, space: f.space, depth: 1, left: MaxEntries, visit: func(e *found) error {
		item := f.space.foundEntry(e)
		if bytes += item.bytes(); bytes > MaxEntryBytes {
			return errStop
		}
		now[e.virtual] = item
		return nil
	}}
	if w.recursive {
		walk.depth = maxDepth
	}
	if w.bell != nil {
		walk.opened = w.bell.hear
	}
	switch err := walk.run(p); {
	case err != nil:
		return nil, err
	case ctx.Err() != nil:
		return nil, fail(ctx.Err(), p.virtual)
	case walk.truncated:
		return nil, sandbox.Errorf(sandbox.QuotaExceeded, "%s: more than %d entries, or %d bytes of paths: watch a folder of it", p.virtual, MaxEntries, MaxEntryBytes)
	}
	w.took = time.Since(began)
	return w.update(now), nil
}

// Update takes what the folder holds now from a caller that lists it, and returns what changed since the update before; the
// first returns nothing.
func (w *Watch) Update(items []Entry) []Change {
	now := make(map[string]Entry, len(items))
	for _, e := range items {
		now[e.Path] = e
	}
	return w.update(now)
}

func (w *Watch) update(now map[string]Entry) (changes []Change) {
	if w.before != nil {
		changes = differences(w.before, now)
	}
	w.before = now
	return changes
}

func differences(before, now map[string]Entry) []Change {
	var out []Change
	for name, e := range before {
		if n, ok := now[name]; !ok || n.IsDir != e.IsDir {
			out = append(out, Change{Path: name, Change: "deleted", IsDir: e.IsDir})
		}
	}
	for name, e := range now {
		old, there := before[name]
		c := Change{Path: name, Change: "modified", IsDir: e.IsDir, Bytes: e.Bytes}
		switch {
		case !there || old.IsDir != e.IsDir:
			c.Change = "created"
		case !e.IsDir && (e.Bytes != old.Bytes || !e.ModifiedAt.Equal(old.ModifiedAt) || e.Symlink != old.Symlink):
		case e.Mode != old.Mode:
			c.ModeOnly = true
		default:
			continue
		}
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b Change) int {
		if a.Path == b.Path { // a file that became a folder
			return -strings.Compare(a.Change, b.Change)
		}
		return strings.Compare(a.Path, b.Path)
	})
	return out
}

// How often a watch looks. Changes that the kernel tells of are looked at at once, as long as looks take a small part of the
// time; those by mmap it does not tell of.
const (
	watchPause     = 50 * time.Millisecond
	watchPauseMost = time.Second
	watchBlind     = 500 * time.Millisecond // without help of the kernel
	watchAnyway    = 5 * time.Second
	watchedShare   = 20 // a look may take one part of so many
)

// Wait waits until it is worth to look again: something in the folder has changed, or might have, or most has passed. It does not
// wait for less than a look's share. An error is that of ctx. Listen comes before.
func (w *Watch) Wait(ctx context.Context, most time.Duration) error {
	pause := time.NewTimer(min(max(watchPause, w.took*watchedShare), watchPauseMost))
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	w.bell.wait(ctx, min(most, watchAnyway))
	return ctx.Err()
}

// Listen makes it ready for Wait, before the first look.
func (w *Watch) Listen() { w.bell = newBell() }

// Close lets go of what Wait needed.
func (w *Watch) Close() {
	if w.bell != nil && w.bell.file != nil {
		_ = w.bell.file.Close() // nothing to lose
	}
}

// bell is the kernel's inotify for the folders of a watch. What it says is not read: a look finds out, whatever got lost.
type bell struct {
	file *os.File // nil: the system has none
	fd   int
	deaf atomic.Bool // a folder could not be added
}

const heard = unix.IN_MODIFY | unix.IN_ATTRIB | unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR

func newBell() *bell {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return &bell{}
	}
	return &bell{file: os.NewFile(uintptr(fd), "inotify"), fd: fd}
}

// hear adds an open folder. By its descriptor it is that one, whatever its name leads to by now.
func (b *bell) hear(folder *os.File) {
	if b.file == nil {
		return
	}
	if _, err := unix.InotifyAddWatch(b.fd, "/proc/self/fd/"+strconv.Itoa(int(folder.Fd())), heard); err != nil {
		b.deaf.Store(true)
	}
}

func (b *bell) wait(ctx context.Context, most time.Duration) {
	if b.file == nil || b.deaf.Load() {
		most = min(most, watchBlind)
	}
	if b.file == nil {
		t := time.NewTimer(most)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
		}
		return
	}
	_ = b.file.SetReadDeadline(time.Now().Add(most)) // inotify has deadlines
	defer context.AfterFunc(ctx, func() { _ = b.file.SetReadDeadline(time.Unix(1, 0)) })()
	var buf [16 << 10]byte
	if _, err := b.file.Read(buf[:]); err != nil {
		return
	}
	for range 64 { // the rest of what is there
		if n, err := unix.Read(b.fd, buf[:]); n <= 0 || err != nil {
			return
		}
	}
}
