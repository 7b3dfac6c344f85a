package paths

import (
	"context"
	"math"
	"strings"
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
	return f.space.collect(ctx, name, max(depth, 1), limit, WalkBudget, MaxEntries, func(string, bool) bool { return true })
}

// Glob returns the files and folders below a folder whose path, relative to it, matches a pattern:
// "**" is any number of folders, also none. At most MaxEntries, within GlobBudget.
func (f *FS) Glob(ctx context.Context, name, pattern string) (Listing, error) {
	g, err := newGlob("pattern", pattern)
	if err != nil {
		return Listing{}, err
	}
	end, err := f.beginSearch(ctx)
	if err != nil {
		return Listing{}, err
	}
	defer end()
	ctx, cancel := context.WithTimeout(ctx, GlobBudget)
	defer cancel()
	return f.space.collect(ctx, name, maxDepth, MaxEntries, GlobBudget, math.MaxInt, func(rel string, _ bool) bool {
		return g.fits(ctx, rel)
	})
}

// checkGlob refuses patterns that cannot match, and patterns that could take exponential time.
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
func (n *namespace) collect(ctx context.Context, name string, depth, limit int, budget time.Duration, scan int, keep func(rel string, isDir bool) bool) (Listing, error) {
	if limit == 0 {
		limit = MaxEntries
	}
	p, err := n.resolve(name, how{follow: true})
	if err != nil {
		return Listing{}, err
	}
	defer p.close()
	ctx, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
	l, bytes := Listing{Items: []Entry{}}, 0
	w := &walk{ctx: ctx, space: n, depth: depth, left: min(scan, maxScan)}
	if scan <= limit {
		w.left = limit
	}
	w.visit = func(e *found) error {
		if !keep(strings.TrimPrefix(e.virtual[len(p.virtual):], "/"), e.isDir()) {
			return nil
		}
		item := n.foundEntry(e)
		if bytes += item.bytes(); len(l.Items) == limit || bytes > MaxEntryBytes {
			return errStop
		}
		l.Items = append(l.Items, item)
		return nil
	}
	err = w.run(p)
	l.Truncated = w.truncated
	return l, err
}

// bytes is what an entry holds in memory that code in the sandbox chose.
func (e Entry) bytes() int { return len(e.Path) + len(e.Symlink) }

// maxScan bounds how many entries one walk looks at.
const maxScan = 500_000

func (n *namespace) foundEntry(e *found) Entry {
	if e.info == nil {
		return Entry{Path: e.virtual, IsDir: true, Mode: "0755"}
	}
	return n.describe(e.dir, e.name, e.virtual, e.info)
}
