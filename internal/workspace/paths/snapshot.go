package paths

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/gabriel-vasile/mimetype"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// maxHashTotal bounds the bytes that one Changes hashes; what changed beyond has no hash.
const maxHashTotal = 256 << 20

// Snapshot is what the writable files were like at one time: regular files by virtual path.
type Snapshot struct {
	files map[string]stamp
	ok    bool
}

// OK is false when there were more than MaxEntries files and folders, or MaxEntryBytes of paths, or reading
// them took too long: then the Snapshot cannot be compared.
func (s Snapshot) OK() bool { return s.ok }

// stamp changes when a file's content does: the sandbox cannot set ctime.
type stamp struct {
	size, mtime, ctime int64
	inode              uint64
}

// Snapshot looks at all regular files in workspace, uploads and outputs, but for the server's own.
func (f *FS) Snapshot(ctx context.Context) (Snapshot, error) {
	s := Snapshot{files: map[string]stamp{}}
	ok, err := f.space.stamps(ctx, func(e *found, at stamp) error {
		s.files[e.virtual] = at
		return nil
	})
	s.ok = ok
	return s, err
}

// stamps calls each for every regular file. ok is false when a limit was reached.
func (n *namespace) stamps(ctx context.Context, each func(*found, stamp) error) (ok bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, WalkBudget)
	defer cancel()
	left, bytes := MaxEntries, 0
	for _, m := range n.mounts {
		if !m.data {
			continue
		}
		root, err := m.open()
		if err != nil {
			return false, err
		}
		w := &walk{ctx: ctx, space: n, unsorted: true, depth: maxDepth, left: left, visit: func(e *found) error {
			if e.virtual == keptDir && e.isDir() {
				return fs.SkipDir
			}
			st, ok := e.info.Sys().(*syscall.Stat_t)
			if !ok || !e.info.Mode().IsRegular() {
				return nil
			}
			if bytes += len(e.virtual); bytes > MaxEntryBytes {
				return errStop
			}
			return each(e, stamp{size: st.Size, mtime: st.Mtim.Nano(), ctime: st.Ctim.Nano(), inode: st.Ino})
		}}
		switch err := w.dir(root, m.virtual, 1); {
		case errors.Is(err, errStop):
			return false, nil
		case err != nil:
			return false, fail(err, m.virtual)
		}
		if ctx.Err() != nil || w.truncated {
			return false, nil
		}
		left = w.left
	}
	return true, nil
}

// Changes says which regular files were made, changed or deleted since before, sorted by path. ok
// is false when before was not OK or there are too many files now; then there are no changes.
func (f *FS) Changes(ctx context.Context, before Snapshot) (changes []sandbox.FileChange, ok bool, err error) {
	changes = []sandbox.FileChange{}
	if !before.ok {
		return changes, false, nil
	}
	seen := make(map[string]bool, len(before.files))
	budget := int64(maxHashTotal)
	ok, err = f.space.stamps(ctx, func(e *found, at stamp) error {
		seen[e.virtual] = true
		old, was := before.files[e.virtual]
		if was && old == at {
			return nil
		}
		c := sandbox.FileChange{Path: e.virtual, Bytes: at.size, Change: "created"}
		if was {
			c.Change = "modified"
		}
		budget -= describeContent(e, &c, budget)
		changes = append(changes, c)
		return nil
	})
	if err != nil || !ok {
		return []sandbox.FileChange{}, false, err
	}
	for name := range before.files {
		if !seen[name] {
			changes = append(changes, sandbox.FileChange{Path: name, Change: "deleted"})
		}
	}
	slices.SortFunc(changes, func(a, b sandbox.FileChange) int { return strings.Compare(a.Path, b.Path) })
	return changes, true, nil
}

// describeContent fills size, type and hash of a changed file, reading at most budget bytes, and
// returns the bytes that it read. A file that went away meanwhile keeps what is known of it.
func describeContent(e *found, c *sandbox.FileChange, budget int64) (n int64) {
	file, info, err := openRegular(e.dir, e.name, e.virtual, os.O_RDONLY)
	if err != nil {
		return 0
	}
	defer file.Close() //nolint:errcheck // read-only
	c.Bytes = info.Size()
	head := make([]byte, 3072) // as much as mimetype looks at
	k, err := io.ReadFull(file, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return 0
	}
	c.MIME = mimetype.Detect(head[:k]).String()
	if info.Size() > MaxHashBytes || info.Size() > budget {
		return int64(k)
	}
	sum := sha256.New()
	_, _ = sum.Write(head[:k]) // a hash never fails
	rest, err := io.Copy(sum, io.LimitReader(file, MaxHashBytes+1-int64(k)))
	n = int64(k) + rest
	if err == nil && n <= MaxHashBytes {
		c.Bytes, c.SHA256 = n, hex.EncodeToString(sum.Sum(nil))
	}
	return n
}
