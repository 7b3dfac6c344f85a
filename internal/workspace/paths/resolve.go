package paths

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// place is where a path leads: a name in an open folder.
type place struct {
	virtual string      // without symbolic links
	m       *mount      // nil for a folder that exists only because mounts lie in it
	dir     *os.Root    // nil when m is nil or the host has no such folder
	base    string      // one name in dir; "." for the top of a mount
	info    fs.FileInfo // of the entry itself, never followed; nil = not there, or dir is nil
	own     bool        // dir is closed with the place
}

func (p *place) close() {
	if p.own {
		_ = p.dir.Close() // read-only descriptor of a folder: nothing to lose
	}
	p.dir, p.own = nil, false
}

// isDir reports whether the place is a folder, also a folder that only mounts make.
func (p *place) isDir() bool {
	if p.info == nil {
		return p.base == "."
	}
	return p.info.IsDir()
}

// changeable says why the entry may not be made, replaced or removed.
func (p *place) changeable() error {
	if p.m == nil || !p.m.writable || p.base == "." {
		return readOnly(p.virtual)
	}
	if p.dir == nil {
		return sandbox.Errorf(sandbox.NotFound, "%s: the thread has no such folder yet", p.m.virtual)
	}
	return nil
}

// how resolve treats the path.
type how struct {
	follow  bool     // follow a symbolic link that is the last element
	parents *creator // makes missing folders on the way; nil: none are made
	noLinks bool     // a symbolic link on the way is a Conflict
}

// resolver walks a path element by element. at is where it stands, free of symbolic links.
type resolver struct {
	space *namespace
	how   how
	asis  string   // the path as the caller wrote it, for errors
	todo  []string // elements still to go, of the path and of the links met
	at    string
	m     *mount
	cur   *os.Root
	own   bool
	hops  int
}

// resolve finds the place of a path. The caller closes it. A missing last element is no error (info
// is nil); a missing folder on the way is NotFound unless it is made.
func (n *namespace) resolve(name string, h how) (*place, error) {
	clean, err := Clean(name)
	if err != nil {
		return nil, err
	}
	r := &resolver{space: n, how: h, asis: clean, todo: elements(clean), at: "/"}
	for {
		p, err := r.step()
		if err != nil {
			r.leave()
			return nil, fail(err, clean)
		}
		if p != nil {
			return p, nil
		}
	}
}

// leave lets go of the current folder.
func (r *resolver) leave() {
	if r.own {
		_ = r.cur.Close()
	}
	r.cur, r.own, r.m = nil, false, nil
}

// step takes one element. It returns the place when that was the last one.
func (r *resolver) step() (*place, error) {
	name := r.todo[0]
	r.todo = r.todo[1:]
	last := len(r.todo) == 0
	if name == ".." {
		return nil, r.up()
	}
	next := path.Join(r.at, name)
	if next == sandbox.UserDataDir+"/"+StageDir {
		return nil, leaves(r.asis)
	}
	if m := r.space.mounts[next]; m != nil {
		return r.enter(m, next, last)
	}
	if _, ok := r.space.inner[next]; ok {
		r.leave()
		r.at = next
		if last && !inRoots(next) {
			return nil, leaves(r.asis)
		}
		return r.done(last, &place{virtual: next, base: "."}), nil
	}
	if r.cur == nil {
		return r.nowhere(next, name, last)
	}
	return r.descend(next, name, last)
}

// up handles ".." of a link's target: the walk begins again at the parent of where it stands.
func (r *resolver) up() error {
	dir := path.Dir(r.at)
	for len(r.todo) > 0 && r.todo[0] == ".." {
		r.todo = r.todo[1:]
		dir = path.Dir(dir)
	}
	return r.again(append(elements(dir), r.todo...))
}

// again begins the walk anew with other elements, which costs a hop.
func (r *resolver) again(todo []string) error {
	r.hops++
	if r.hops > maxLinks {
		return sandbox.Errorf(sandbox.Invalid, "%s: too many symbolic links", r.asis)
	}
	if len(todo) > 4*maxDepth {
		return sandbox.Errorf(sandbox.Invalid, "%s: symbolic links make the path too long", r.asis)
	}
	if len(todo) == 0 {
		return leaves(r.asis)
	}
	r.leave()
	r.at, r.todo = "/", todo
	return nil
}

func (r *resolver) enter(m *mount, next string, last bool) (*place, error) {
	root, err := m.open()
	if err != nil {
		return nil, err
	}
	r.leave()
	r.at, r.m, r.cur = next, m, root
	p := &place{virtual: next, m: m, dir: root, base: "."}
	if last && root != nil {
		if p.info, err = root.Lstat("."); err != nil {
			return nil, err
		}
	}
	return r.done(last, p), nil
}

func (r *resolver) done(last bool, p *place) *place {
	if !last {
		return nil
	}
	return p
}

// nowhere is a name in a folder that the host does not have.
func (r *resolver) nowhere(next, name string, last bool) (*place, error) {
	if !inRoots(next) {
		return nil, leaves(r.asis)
	}
	if !last && r.how.parents != nil && (r.m == nil || !r.m.writable) {
		return nil, readOnly(next)
	}
	if !last {
		return nil, notFound(r.asis)
	}
	return &place{virtual: next, m: r.m, base: name}, nil
}

// descend takes one name in the current folder.
func (r *resolver) descend(next, name string, last bool) (*place, error) {
	info, err := r.cur.Lstat(name)
	missing := errors.Is(err, fs.ErrNotExist)
	if err != nil && !missing {
		return nil, err
	}
	if !missing && info.Mode()&fs.ModeSymlink != 0 && (!last || r.how.follow) {
		if r.how.noLinks {
			return nil, sandbox.Errorf(sandbox.Conflict, "%s: is a symbolic link here, and an archive goes through none", next)
		}
		return nil, r.link(name)
	}
	if last {
		p := &place{virtual: next, m: r.m, dir: r.cur, base: name, info: info, own: r.own}
		if missing {
			p.info = nil
		}
		r.cur, r.own = nil, false
		return p, nil
	}
	if missing {
		if r.how.parents == nil {
			return nil, notFound(r.asis)
		}
		if !r.m.writable {
			return nil, readOnly(next)
		}
		if err := r.how.parents.mkdir(r.cur, name); err != nil {
			return nil, err
		}
	} else if !info.IsDir() {
		return nil, notDirectory(next)
	}
	sub, err := openDir(r.cur, name)
	if err != nil {
		return nil, err
	}
	m := r.m
	r.leave()
	r.at, r.m, r.cur, r.own = next, m, sub, true
	return nil, nil
}

// link puts a symbolic link's target in the place of its name.
func (r *resolver) link(name string) error {
	target, err := r.cur.Readlink(name)
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, fs.ErrNotExist) {
		// It was a link a moment ago. What it is now is found by going there again.
		return r.again(append(elements(path.Join(r.at, name)), r.todo...))
	}
	if err != nil {
		return err
	}
	if target == "" || len(target) > maxPathBytes {
		return sandbox.Errorf(sandbox.Invalid, "%s: bad symbolic link", r.asis)
	}
	to := slices.DeleteFunc(elements(target), func(e string) bool { return e == "." })
	if !strings.HasPrefix(target, "/") {
		to = append(elements(r.at), to...)
	}
	return r.again(append(to, r.todo...))
}
