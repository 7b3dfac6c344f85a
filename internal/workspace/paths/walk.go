package paths

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// found is one entry that a walk came to. dir is nil for a folder that only mounts make.
type found struct {
	virtual string
	dir     *os.Root
	name    string
	info    fs.FileInfo // nil when dir is nil
	depth   int         // 1 = directly in the folder that the walk began at
}

func (e *found) isDir() bool { return e.info == nil || e.info.IsDir() }

// walk visits what is below a folder, each folder's entries in the order of their names, folders
// before what is in them. It follows no symbolic links.
type walk struct {
	ctx       context.Context
	space     *namespace
	depth     int // how deep it goes; at most maxDepth
	left      int // entries it still visits
	visit     func(e *found) error
	opened    func(folder *os.File) // is told of each folder before its names are read; may be nil
	truncated bool                  // there was more than depth, left or ctx allowed
}

// errStop ends a walk without being an error.
var errStop = errors.New("stop")

// run walks the folder at p, which the caller closes. A context that ends makes it truncated.
func (w *walk) run(p *place) error {
	dir, err := p.folder()
	if err != nil {
		return err
	}
	if dir != nil {
		defer dir.Close() //nolint:errcheck // read-only
	}
	err = w.dir(dir, p.virtual, 1)
	if errors.Is(err, errStop) {
		w.truncated = true
		return nil
	}
	return fail(err, p.virtual)
}

func (w *walk) dir(dir *os.Root, virtual string, depth int) error {
	if depth > min(w.depth, maxDepth) {
		return nil
	}
	names, err := w.names(dir, virtual)
	if err != nil {
		return err
	}
	for _, name := range names {
		if w.ctx.Err() != nil || w.left <= 0 {
			return errStop
		}
		e := &found{virtual: path.Join(virtual, name), dir: dir, name: name, depth: depth}
		if err := w.entry(e); err != nil {
			return err
		}
	}
	return nil
}

// entry visits one name, and what is in it.
func (w *walk) entry(e *found) error {
	sub, err := w.lookup(e)
	if err != nil || (e.info == nil && !w.space.made(e.virtual)) {
		return err
	}
	if sub != nil {
		defer sub.Close() //nolint:errcheck // read-only
	}
	w.left--
	switch err := w.visit(e); {
	case errors.Is(err, fs.SkipDir):
		return nil
	case err != nil:
		return err
	}
	if !e.isDir() {
		return nil
	}
	if e.depth == maxDepth {
		w.truncated = true
	}
	return w.dir(sub, e.virtual, e.depth+1)
}

// lookup fills e.info and opens e when it is a folder that may be walked. Whatever vanished or
// changed under the walk has no info and is passed over.
func (w *walk) lookup(e *found) (*os.Root, error) {
	if m := w.space.mounts[e.virtual]; m != nil {
		root, err := m.open()
		if err != nil || root == nil {
			e.dir = nil
			return nil, err
		}
		e.dir, e.name = root, "."
	} else if _, ok := w.space.inner[e.virtual]; ok {
		e.dir = nil
		return nil, nil
	}
	info, err := e.dir.Lstat(e.name)
	if err != nil {
		return nil, passOver(err)
	}
	var sub *os.Root
	if info.IsDir() && e.depth < min(w.depth, maxDepth) {
		if sub, err = openDir(e.dir, e.name); err != nil {
			return nil, passOver(err)
		}
	}
	e.info = info
	return sub, nil
}

// passOver drops the errors of entries that changed while they were looked at. Being out of
// descriptors or memory is none of those.
func passOver(err error) error {
	k := sandbox.KindOf(fail(err, ""))
	if k == sandbox.Internal {
		return err
	}
	return nil
}

// made reports whether a folder is there only because of the mounts.
func (n *namespace) made(virtual string) bool {
	_, ok := n.inner[virtual]
	return ok || n.mounts[virtual] != nil
}

// names lists a folder, sorted, no more names than the walk has left.
func (w *walk) names(dir *os.Root, virtual string) ([]string, error) {
	names := slices.Clone(w.space.inner[virtual])
	if dir == nil {
		return names, nil
	}
	list, err := dir.Open(".")
	if err != nil {
		return names, passOver(err)
	}
	defer list.Close() //nolint:errcheck // read-only
	if w.opened != nil {
		w.opened(list)
	}
	inner := names
	for len(names) <= w.left && w.ctx.Err() == nil {
		part, err := list.Readdirnames(min(1024, w.left+1))
		for _, n := range part {
			if !hidden(n) && !slices.Contains(inner, n) {
				names = append(names, n)
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, passOver(err)
		}
	}
	slices.Sort(names)
	return names, nil
}
