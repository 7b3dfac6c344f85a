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
	unsorted  bool                  // the entries of a folder come in any order, and few names are held
	held      int                   // bytes of the names that the folders on the way hold; at most maxHeld
	truncated bool                  // there was more than depth, left, maxHeld or ctx allowed
}

const (
	// maxHeld bounds the names that a sorted walk holds, of all folders that it is in together. So many are
	// more than MaxArchiveEntries of the longest.
	maxHeld = 32 << 20
	// nameCost is what a name costs besides its bytes.
	nameCost = 32
	// namesAtOnce is how many names are read at a time.
	namesAtOnce = 1024
)

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
	if w.unsorted {
		return w.inAnyOrder(dir, virtual, depth)
	}
	names, cost, err := w.names(dir, virtual)
	if err != nil {
		return err
	}
	w.held += cost
	defer func() { w.held -= cost }()
	if w.ctx.Err() != nil { // these are not all names
		return errStop
	}
	return w.entries(dir, virtual, names, depth)
}

// entries visits names of a folder.
func (w *walk) entries(dir *os.Root, virtual string, names []string, depth int) error {
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

// inAnyOrder visits what is in a folder as its names are read.
func (w *walk) inAnyOrder(dir *os.Root, virtual string, depth int) error {
	inner := w.space.inner[virtual]
	if err := w.entries(dir, virtual, inner, depth); err != nil || dir == nil {
		return err
	}
	return w.read(dir, namesAtOnce, func(names []string) (more bool, err error) {
		names = slices.DeleteFunc(names, func(n string) bool { return !w.shown(virtual, n, inner) })
		return true, w.entries(dir, virtual, names, depth)
	})
}

// read calls each with the names of a folder, so many at a time, until it wants no more.
func (w *walk) read(dir *os.Root, atOnce int, each func(names []string) (more bool, err error)) error {
	list, err := dir.Open(".")
	if err != nil {
		return passOver(err)
	}
	defer list.Close() //nolint:errcheck // read-only
	if w.opened != nil {
		w.opened(list)
	}
	for w.ctx.Err() == nil {
		names, err := list.Readdirnames(atOnce)
		if more, err := each(names); err != nil || !more {
			return err
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return passOver(err)
		}
	}
	return nil
}

// shown reports whether a name of a host folder is an entry of it: mounts have theirs, and the stage is the
// server's.
func (w *walk) shown(virtual, name string, inner []string) bool {
	return !slices.Contains(inner, name) && (virtual != sandbox.UserDataDir || name != StageDir)
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

// names lists a folder, sorted, no more names than the walk has left and may hold, and says what holding them
// costs.
func (w *walk) names(dir *os.Root, virtual string) (names []string, cost int, err error) {
	inner := w.space.inner[virtual]
	names = slices.Clone(inner)
	if dir == nil {
		return names, 0, nil
	}
	err = w.read(dir, min(namesAtOnce, w.left+1), func(part []string) (bool, error) {
		for _, n := range part {
			if !w.shown(virtual, n, inner) {
				continue
			}
			if w.held+cost+len(n)+nameCost > maxHeld {
				w.truncated = true
				return false, nil
			}
			cost += len(n) + nameCost
			names = append(names, n)
		}
		return len(names) <= w.left, nil
	})
	slices.Sort(names)
	return names, cost, err
}
