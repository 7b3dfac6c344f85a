package gitfetch

import (
	"errors"
	"io"
	"path"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

const (
	maxDepth = 20
	maxLink  = 1 << 10 // bytes of a link's target
	maxHops  = 8       // links that lead to links
)

// Visit is called with each file: its path below the folder that is walked, with slashes.
type Visit func(name string, exec bool, r io.Reader) error

// File returns one file, at most limit bytes. NotFound; Invalid when it is larger.
func (r *Repo) File(name string, limit int64) ([]byte, error) {
	tree, err := r.commit.Tree()
	if err != nil {
		return nil, damaged(err)
	}
	f, err := r.resolve(tree, name, 0)
	if err != nil {
		return nil, err
	}
	if f == nil {
		return nil, sandbox.Errorf(sandbox.NotFound, "the repository has no file %.200q", name)
	}
	if f.Size > limit {
		return nil, sandbox.Errorf(sandbox.Invalid, "%.200q has more than %d bytes", name, limit)
	}
	in, err := f.Reader()
	if err != nil {
		return nil, damaged(err)
	}
	defer in.Close() //nolint:errcheck // it was read
	return io.ReadAll(io.LimitReader(in, limit))
}

// Walk visits all files of a folder of the commit, "." for all, in the order of their names. A link to a file of the repository is visited
// as that file; other links, submodules and links to folders are left out and named. NotFound: no such folder;
// Invalid: too much of something.
func (r *Repo) Walk(folder string, visit Visit) (skipped []string, err error) {
	root, err := r.commit.Tree()
	if err != nil {
		return nil, damaged(err)
	}
	tree := root
	if folder = path.Clean(folder); folder != "." {
		if tree, err = root.Tree(folder); err != nil {
			return nil, sandbox.Wrap(sandbox.NotFound, err, "the repository has no folder %.200q", folder)
		}
	}
	w := &walk{repo: r, root: root, base: folder, visit: visit}
	err = w.tree(tree, "", 0)
	return w.skipped, err
}

type walk struct {
	repo    *Repo
	root    *object.Tree
	base    string // of the folder that is walked
	visit   Visit
	skipped []string
}

func (w *walk) tree(t *object.Tree, prefix string, depth int) error {
	if depth > maxDepth {
		return sandbox.Errorf(sandbox.Invalid, "the repository has folders more than %d deep", maxDepth)
	}
	for _, e := range t.Entries {
		// A tree that holds one tree many times is small, and what it stands for is not.
		if w.repo.entries++; w.repo.entries > w.repo.limits.Entries {
			return sandbox.Errorf(sandbox.Invalid, "the repository has more than %d files and folders", w.repo.limits.Entries)
		}
		name := prefix + e.Name
		if strings.ContainsAny(e.Name, "/\x00") || e.Name == "" || e.Name == "." || e.Name == ".." {
			return sandbox.Errorf(sandbox.Invalid, "the repository has a file whose name is none: %.200q", name)
		}
		if err := w.entry(t, e, name, depth); err != nil {
			return err
		}
	}
	return nil
}

func (w *walk) entry(t *object.Tree, e object.TreeEntry, name string, depth int) error {
	switch e.Mode {
	case filemode.Dir:
		sub, err := object.GetTree(w.repo.store, e.Hash)
		if err != nil {
			return damaged(err)
		}
		return w.tree(sub, name+"/", depth+1)
	case filemode.Regular, filemode.Deprecated, filemode.Executable:
		f, err := t.TreeEntryFile(&e)
		if err != nil {
			return damaged(err)
		}
		return w.file(name, f)
	case filemode.Symlink:
		f, err := w.repo.resolve(w.root, path.Join(w.base, name), 0)
		if err != nil {
			return err
		}
		if f != nil {
			return w.file(name, f)
		}
	}
	if len(w.skipped) < 100 {
		w.skipped = append(w.skipped, name)
	}
	return nil
}

func (w *walk) file(name string, f *object.File) error {
	in, err := f.Reader()
	if err != nil {
		return damaged(err)
	}
	return errors.Join(w.visit(name, f.Mode == filemode.Executable, in), in.Close())
}

// resolve returns the file at a path of the repository, following links within it; nil when there is none.
func (r *Repo) resolve(root *object.Tree, name string, hops int) (*object.File, error) {
	clean := path.Clean(name)
	if hops > maxHops || clean == "." || clean == ".." || strings.HasPrefix(clean, "../") || path.IsAbs(clean) {
		return nil, nil //nolint:nilnil // it leads nowhere within
	}
	e, err := root.FindEntry(clean)
	if err != nil {
		return nil, nil //nolint:nilerr,nilnil // as above; a link in the middle of a path is not followed
	}
	switch e.Mode {
	case filemode.Regular, filemode.Deprecated, filemode.Executable, filemode.Symlink:
	default:
		return nil, nil //nolint:nilnil // as above
	}
	f, err := root.TreeEntryFile(e)
	if err != nil {
		return nil, damaged(err)
	}
	if e.Mode != filemode.Symlink {
		return f, nil
	}
	if f.Size > maxLink {
		return nil, nil //nolint:nilnil // as above
	}
	target, err := f.Contents()
	if err != nil {
		return nil, damaged(err)
	}
	if path.IsAbs(target) {
		return nil, nil //nolint:nilnil // as above
	}
	return r.resolve(root, path.Join(path.Dir(clean), target), hops+1)
}

func damaged(err error) error {
	return sandbox.Wrap(sandbox.Invalid, err, "the repository is damaged")
}
