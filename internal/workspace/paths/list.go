package paths

import (
	"context"
	"errors"
	"math"
	"path"
	"strings"
	"syscall"
	"time"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// List returns the entries of a folder, depth levels deep (0 = 1), at most limit (0 = MaxEntries), in
// the order of a walk: each folder before what is in it. Of a folder with more entries than
// MaxEntries it returns any of them.
func (f *FS) List(ctx context.Context, name string, depth, limit int) (Listing, error) {
	if depth < 0 || limit < 0 || limit > MaxEntries {
		return Listing{}, sandbox.Errorf(sandbox.Invalid, "depth cannot be negative, limit is 1 to %d", MaxEntries)
	}
	return f.collect(ctx, name, max(depth, 1), limit, WalkBudget, MaxEntries, func(string, bool) bool { return true })
}

// Glob returns the files and folders below a folder whose path, relative to it, matches a pattern:
// "**" is any number of folders, also none. At most MaxEntries, within GlobBudget.
func (f *FS) Glob(ctx context.Context, name, pattern string) (Listing, error) {
	if err := checkGlob("pattern", pattern); err != nil {
		return Listing{}, err
	}
	return f.collect(ctx, name, maxDepth, MaxEntries, GlobBudget, math.MaxInt, func(rel string, _ bool) bool {
		return doublestar.MatchUnvalidated(pattern, rel)
	})
}

// checkGlob refuses patterns that cannot match, and those that could take exponential time.
func checkGlob(field, pattern string) error {
	switch {
	case pattern == "":
		return sandbox.Errorf(sandbox.Invalid, "%s is empty", field)
	case len(pattern) > MaxPatternBytes:
		return sandbox.Errorf(sandbox.Invalid, "%s is longer than %d bytes", field, MaxPatternBytes)
	case strings.HasPrefix(pattern, "/"):
		return sandbox.Errorf(sandbox.Invalid, "%s %.200q: begin it below the folder, without \"/\"", field, pattern)
	case !doublestar.ValidatePattern(pattern):
		return sandbox.Errorf(sandbox.Invalid, "%s %.200q is no glob pattern", field, pattern)
	case strings.Count(pattern, "{") > 4 || strings.Count(pattern, "**") > 4:
		return sandbox.Errorf(sandbox.Invalid, "%s has more than four {} or ** in it", field)
	}
	return nil
}

// collect walks and keeps up to limit entries that keep wants of the first scan ones.
func (f *FS) collect(ctx context.Context, name string, depth, limit int, budget time.Duration, scan int, keep func(rel string, isDir bool) bool) (Listing, error) {
	if limit == 0 {
		limit = MaxEntries
	}
	p, err := f.resolve(name, how{follow: true})
	if err != nil {
		return Listing{}, err
	}
	defer p.close()
	ctx, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
	l := Listing{Items: []Entry{}}
	w := &walk{ctx: ctx, fs: f, depth: depth, left: min(scan, maxScan)}
	if scan <= limit {
		w.left = limit
	}
	w.visit = func(e *found) error {
		if !keep(strings.TrimPrefix(e.virtual[len(p.virtual):], "/"), e.isDir()) {
			return nil
		}
		if len(l.Items) == limit {
			return errStop
		}
		l.Items = append(l.Items, f.foundEntry(e))
		return nil
	}
	err = w.run(p)
	l.Truncated = w.truncated
	return l, err
}

// maxScan bounds how many entries one walk looks at, and so how many names it holds.
const maxScan = 500_000

func (f *FS) foundEntry(e *found) Entry {
	if e.info == nil {
		return Entry{Path: e.virtual, IsDir: true, Mode: "0755"}
	}
	return f.describe(e.dir, e.name, e.virtual, e.info)
}

var errQuota = sandbox.Errorf(sandbox.QuotaExceeded, "the thread's files would exceed its disk quota")

// Usage sums up workspace, uploads and outputs: bytes on disk (a file with holes counts what it holds, one
// with many hard links counts once) and the number of files and links. What lies more than 128
// folders deep, or after the first 500,000 entries of a mount, is not seen. Timeout after WalkBudget.
func (f *FS) Usage(ctx context.Context) (sandbox.DiskUsage, error) {
	ctx, cancel := context.WithTimeout(ctx, WalkBudget)
	defer cancel()
	var u sandbox.DiskUsage
	linked := map[uint64]bool{}
	for _, m := range f.mounts {
		if !m.data {
			continue
		}
		root, err := m.open()
		if err != nil {
			return u, err
		}
		w := &walk{ctx: ctx, fs: f, depth: maxDepth, left: maxScan, visit: func(e *found) error {
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
func (f *FS) room(ctx context.Context) (int64, error) {
	if f.opts.DiskBytes <= 0 {
		return 0, nil
	}
	u, err := f.Usage(ctx)
	if err != nil {
		return 0, err
	}
	return max(f.opts.DiskBytes-u.Bytes, 0), nil
}
