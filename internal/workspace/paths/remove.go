package paths

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Remove removes a file, a symbolic link (not what it points at) or, with recursive, a folder and
// all that is in it. Conflict for a folder that is not empty.
func (f *FS) Remove(ctx context.Context, name string, recursive bool) error {
	p, err := f.space.resolve(name, how{})
	if err != nil {
		return err
	}
	defer p.close()
	if p.info == nil && p.dir != nil {
		return notFound(p.virtual)
	}
	if err := p.changeable(); err != nil {
		return err
	}
	f.changing(p.virtual)
	if recursive && p.info.IsDir() {
		return fail(removeTree(ctx, p.dir, p.base), p.virtual)
	}
	return fail(p.dir.Remove(p.base), p.virtual)
}

// RemoveName removes a file, a symbolic link or an empty folder. Conflict when a symbolic link is on the way.
func (f *FS) RemoveName(name string) error {
	p, err := f.space.resolve(name, how{noLinks: true})
	if err != nil {
		return err
	}
	defer p.close()
	if err := p.changeable(); err != nil {
		return err
	}
	f.changing(p.virtual)
	return fail(p.dir.Remove(p.base), p.virtual)
}

// RemoveAll removes a host folder that held hostile files, with all that is in it. Unlike
// os.RemoveAll it holds few folders open whatever their depth, and stops when ctx ends. A folder
// that does not exist is no error. host comes from the server, never from a caller.
func RemoveAll(ctx context.Context, host string) error {
	parent, err := os.OpenRoot(filepath.Dir(host))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return sandbox.Wrap(sandbox.Internal, err, "the folder cannot be removed")
	}
	defer parent.Close() //nolint:errcheck // read-only
	if err := removeTree(ctx, parent, filepath.Base(host)); err != nil {
		return sandbox.Wrap(sandbox.Internal, err, "the folder cannot be removed")
	}
	return nil
}

// flattenDepth is how deep removeTree goes before it moves a folder up to where it began. Code in a
// sandbox can nest folders a hundred thousand deep; each level would be a descriptor.
const flattenDepth = 32

// removeTree removes dir/name. It follows no symbolic link.
func removeTree(ctx context.Context, dir *os.Root, name string) error {
	r := remover{ctx: ctx}
	return r.remove(dir, name, 0)
}

// remover removes a tree. What lies too deep it moves up into the tree's own top, so that what is left when
// ctx ends is where it was: in the folder that was to be removed.
type remover struct {
	ctx   context.Context
	top   *os.Root // the folder that is removed; nil until it is open
	moved bool     // something lies in top that was not there when top was listed
}

func (r *remover) remove(dir *os.Root, name string, depth int) error {
	err := dir.Remove(name)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if !errors.Is(err, syscall.ENOTEMPTY) && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if depth >= flattenDepth {
		return r.flatten(dir, name)
	}
	sub, err := openDir(dir, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer sub.Close() //nolint:errcheck // read-only
	if depth == 0 {
		r.top = sub
	}
	// New entries may appear while we remove; a process that makes them faster than we remove them ends
	// with an error, not with us in a loop.
	for tries := 0; tries < 100; tries++ {
		if err := r.empty(sub, depth); err != nil {
			return err
		}
		if depth == 0 && r.moved { // that was progress
			r.moved, tries = false, 0
			continue
		}
		err = dir.Remove(name)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if !errors.Is(err, syscall.ENOTEMPTY) && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return err
}

// empty removes what is in a folder.
func (r *remover) empty(sub *os.Root, depth int) error {
	list, err := sub.Open(".")
	if err != nil {
		return err
	}
	defer list.Close() //nolint:errcheck // read-only
	for {
		names, err := list.Readdirnames(1024)
		for _, n := range names {
			if err := r.ctx.Err(); err != nil {
				return err
			}
			if err := r.remove(sub, n, depth+1); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// flatten moves a deep folder up, to be removed from there.
func (r *remover) flatten(dir *os.Root, name string) error {
	if err := relocate(&place{dir: dir, base: name}, &place{dir: r.top, base: "removed-" + rand.Text()}); err != nil {
		return err
	}
	r.moved = true
	return nil
}
