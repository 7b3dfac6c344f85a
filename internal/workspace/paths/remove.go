package paths

import (
	"context"
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
	r := remover{ctx: ctx, top: dir}
	if err := r.remove(dir, name, 0); err != nil {
		return err
	}
	for len(r.moved) > 0 {
		next := r.moved[len(r.moved)-1]
		r.moved = r.moved[:len(r.moved)-1]
		if err := r.remove(dir, next, 0); err != nil {
			return err
		}
	}
	return nil
}

type remover struct {
	ctx   context.Context
	top   *os.Root
	moved []string // names in top that are still to be removed
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
	// New entries may appear while we remove; a process that makes them faster than we remove them ends
	// with an error, not with us in a loop.
	for range 100 {
		if err := r.empty(sub, depth); err != nil {
			return err
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
	to := tempName()
	if err := relocate(&place{dir: dir, base: name}, &place{dir: r.top, base: to}); err != nil {
		return err
	}
	r.moved = append(r.moved, to)
	return nil
}
