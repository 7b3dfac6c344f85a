package paths

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"os"
	"path"
	"syscall"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

var errQuota = sandbox.Errorf(sandbox.QuotaExceeded, "the thread's files would exceed its disk quota")

// maxLinked bounds the files of several names that are counted once. Beyond, each name counts.
const maxLinked = 500_000

// Usage sums up workspace, uploads and outputs, with what the server is about to put there: bytes on disk (a
// file with holes counts what it holds, one with many hard links counts once) and the number of files and
// links. QuotaExceeded when folders lie so deep that what is in them cannot be counted. Timeout after
// WalkBudget.
func (f *FS) Usage(ctx context.Context) (sandbox.DiskUsage, error) { return f.disk.usage(ctx) }

// Measure is Usage of a host folder that holds hostile files. host comes from the server, never from a
// caller.
func Measure(ctx context.Context, host string) (sandbox.DiskUsage, error) {
	ctx, cancel := context.WithTimeout(ctx, WalkBudget)
	defer cancel()
	root, err := os.OpenRoot(host)
	if err != nil {
		return sandbox.DiskUsage{}, err
	}
	defer root.Close() //nolint:errcheck // read-only
	t := tally{space: &namespace{}, linked: map[inode]bool{}}
	err = t.add(ctx, root, "/")
	return t.sum, err
}

// diskLimit is what the thread's files may take.
type diskLimit struct {
	space *namespace
	most  int64 // Options.DiskBytes
}

func (d diskLimit) usage(ctx context.Context) (sandbox.DiskUsage, error) {
	ctx, cancel := context.WithTimeout(ctx, WalkBudget)
	defer cancel()
	t := tally{space: d.space, linked: map[inode]bool{}}
	for _, m := range d.space.mounts {
		if !m.data {
			continue
		}
		root, err := m.open()
		if err != nil {
			return t.sum, err
		}
		if err := t.add(ctx, root, m.virtual); err != nil {
			return t.sum, err
		}
	}
	return t.sum, t.addStage(ctx)
}

type inode struct{ dev, ino uint64 }

// tally adds up files.
type tally struct {
	space  *namespace
	linked map[inode]bool // of the files with several names, those that are counted
	sum    sandbox.DiskUsage
}

// add counts what is below a folder, which may be nil.
func (t *tally) add(ctx context.Context, root *os.Root, virtual string) error {
	w := &walk{ctx: ctx, space: t.space, unsorted: true, depth: maxDepth, left: math.MaxInt, visit: t.visit}
	if err := w.dir(root, virtual, 1); err != nil && !errors.Is(err, errStop) {
		return fail(err, virtual)
	}
	if err := ctx.Err(); err != nil {
		return fail(err, path.Dir(virtual))
	}
	if w.truncated {
		return sandbox.Errorf(sandbox.QuotaExceeded, "%s: what lies deeper than %d folders cannot be counted: move or remove it", virtual, maxDepth)
	}
	return nil
}

// addStage counts what the server is about to put into the thread's folders.
func (t *tally) addStage(ctx context.Context) error {
	m := t.space.mounts[sandbox.UserDataDir]
	if m == nil {
		return nil
	}
	top, err := m.open()
	if err != nil || top == nil {
		return err
	}
	stage, err := openDir(top, StageDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fail(err, m.virtual)
	}
	defer stage.Close() //nolint:errcheck // read-only
	return t.add(ctx, stage, path.Join(m.virtual, StageDir))
}

func (t *tally) visit(e *found) error {
	if e.isDir() {
		return nil
	}
	st, ok := e.info.Sys().(*syscall.Stat_t)
	if ok && st.Nlink > 1 {
		at := inode{st.Dev, st.Ino}
		if t.linked[at] {
			return nil
		}
		if len(t.linked) < maxLinked {
			t.linked[at] = true
		}
	}
	t.sum.Files++
	t.sum.Bytes += onDisk(e.info.Size(), st)
	return nil
}

// onDisk is the smaller of a file's size and of what is allocated for it.
func onDisk(size int64, st *syscall.Stat_t) int64 {
	if st == nil {
		return size
	}
	return min(size, st.Blocks*512)
}

// freed is how many bytes are free again when one name of a file goes.
func freed(info fs.FileInfo) int64 {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || st.Nlink > 1 {
		return 0
	}
	return onDisk(info.Size(), st)
}

// room is how many bytes may still be written; without a quota it means nothing.
func (d diskLimit) room(ctx context.Context) (int64, error) {
	if d.most <= 0 {
		return 0, nil
	}
	u, err := d.usage(ctx)
	if err != nil {
		return 0, err
	}
	return max(d.most-u.Bytes, 0), nil
}
