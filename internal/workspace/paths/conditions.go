package paths

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"syscall"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// ErrChanged is in the chain of an error that says that a file is not the one that a write was meant for.
var ErrChanged = errors.New("the file changed")

// Writing is what a write may have beside the bytes.
type Writing struct {
	// Described is the description of the file. Without one it has none, whatever was there before.
	Described map[string]string
	// Match are ETags. The file has to have one of them; "*": there has to be a file.
	Match []string
	// Absent: nothing may be there.
	Absent bool
}

// met reports whether the place still is what the write is meant for. ErrChanged: it is not.
func (w Writing) met(p *place) error {
	if len(w.Match) == 0 && !w.Absent {
		return nil
	}
	info, err := p.dir.Lstat(p.base)
	missing := errors.Is(err, fs.ErrNotExist)
	switch {
	case err != nil && !missing:
		return fail(err, p.virtual)
	case w.Absent && !missing:
		return sandbox.Wrap(sandbox.Conflict, ErrChanged, "%s: exists", p.virtual)
	case len(w.Match) == 0:
		return nil
	case missing:
		return sandbox.Wrap(sandbox.Conflict, ErrChanged, "%s: no such file: it was deleted or renamed", p.virtual)
	case slices.Contains(w.Match, "*") || slices.Contains(w.Match, etag(info)):
		return nil
	}
	return sandbox.Wrap(sandbox.Conflict, ErrChanged, "%s: changed since it was read", p.virtual)
}

// checkedReader ends only when the place still is what the write is meant for: the bytes may take long to come.
type checkedReader struct {
	io.Reader
	w Writing
	p *place
}

func (c checkedReader) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	if errors.Is(err, io.EOF) {
		if bad := c.w.met(c.p); bad != nil {
			return n, bad
		}
	}
	return n, err
}

// tagOf returns the ETag of a file that has just taken its place; a rename changes one of the times that the tag is made of.
// When another program changed the file meanwhile, the caller gets the tag from before the rename, which no longer fits.
func (p *place) tagOf(made fs.FileInfo) string {
	now, err := p.dir.Lstat(p.base)
	if err != nil || !os.SameFile(made, now) || now.Size() != made.Size() || !now.ModTime().Equal(made.ModTime()) {
		return etag(made)
	}
	return etag(now)
}

// etag changes when the content does: it is made of inode, size and the times of the last change,
// the second of which the sandbox cannot set.
func etag(info fs.FileInfo) string {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Sprintf(`"%x-%x"`, info.Size(), info.ModTime().UnixNano())
	}
	return fmt.Sprintf(`"%x-%x-%x-%x"`, st.Ino, st.Size, st.Mtim.Nano(), st.Ctim.Nano())
}
