package paths

import (
	"context"
	"errors"
	"path"
	"syscall"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

var errQuota = sandbox.Errorf(sandbox.QuotaExceeded, "the thread's files would exceed its disk quota")

// Usage sums up workspace, uploads and outputs: bytes on disk (a file with holes counts what it holds, one
// with many hard links counts once) and the number of files and links. What lies more than 128
// folders deep, or after the first 500,000 entries of a mount, is not seen. Timeout after WalkBudget.
func (f *FS) Usage(ctx context.Context) (sandbox.DiskUsage, error) { return f.disk.usage(ctx) }

// diskLimit is what the thread's files may take.
type diskLimit struct {
	space *namespace
	most  int64 // Options.DiskBytes
}

func (d diskLimit) usage(ctx context.Context) (sandbox.DiskUsage, error) {
	ctx, cancel := context.WithTimeout(ctx, WalkBudget)
	defer cancel()
	var u sandbox.DiskUsage
	linked := map[uint64]bool{}
	for _, m := range d.space.mounts {
		if !m.data {
			continue
		}
		root, err := m.open()
		if err != nil {
			return u, err
		}
		w := &walk{ctx: ctx, space: d.space, depth: maxDepth, left: maxScan, visit: func(e *found) error {
			if e.isDir() {
				return nil
			}
			st, ok := e.info.Sys().(*syscall.Stat_t)
			if ok && st.Nlink > 1 {
				if linked[st.Ino] {
					return nil
				}
				linked[st.Ino] = true
			}
			u.Files++
			u.Bytes += onDisk(e.info.Size(), st)
			return nil
		}}
		if err := w.dir(root, m.virtual, 1); err != nil && !errors.Is(err, errStop) {
			return u, fail(err, m.virtual)
		}
		if err := ctx.Err(); err != nil {
			return u, fail(err, path.Dir(m.virtual))
		}
	}
	return u, nil
}

// onDisk is the smaller of a file's size and of what is allocated for it.
func onDisk(size int64, st *syscall.Stat_t) int64 {
	if st == nil {
		return size
	}
	return min(size, st.Blocks*512)
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
