package tree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"golang.org/x/sys/unix"
)

// Differs says whether two entries at one path are not the same for a reader. Times do not count.
func Differs(old, now *Entry) bool {
	return old.Kind != now.Kind || old.Mode != now.Mode || old.Target != now.Target || old.Kind == File && old.Digest != now.Digest
}

// Whole is how a tree that no other process changes becomes another one: what is at the top is the old or the new, and never
// half of each. What has no change is not touched.
type Whole struct {
	Path     string // whose change is to be one step; "": each name in the root
	Old, New List   // with all digests
}

// Missing returns the files of New, by their place in it, whose content the old tree has nowhere.
func (w Whole) Missing() []int {
	have := map[Digest]bool{}
	for _, e := range w.Old {
		if e.Kind == File {
			have[e.Digest] = true
		}
	}
	var out []int
	for i, e := range w.New {
		if e.Kind == File && !have[e.Digest] {
			out = append(out, i)
			have[e.Digest] = true // one of several with the same content is enough
		}
	}
	return out
}

// Apply makes the change. incoming has the content of what was Missing; it is the Changing's from then on.
func (c *Changing) Apply(ctx context.Context, w Whole, incoming map[Digest]*Incoming) error {
	defer func() {
		for _, in := range incoming {
			_ = in.f.Close() // what has no place goes with the folder aside
		}
	}()
	b := builder{c: c, w: w, incoming: incoming, byDigest: map[Digest]string{}, used: map[Digest]bool{}}
	for _, e := range w.Old {
		if e.Kind == File {
			b.byDigest[e.Digest] = e.Path
		}
	}
	changes := Diff(w.Old, w.New, Differs)
	for len(changes) > 0 {
		top := w.Path
		if top == "" {
			top, _, _ = strings.Cut(changes[0].Path, "/")
		}
		n := 0
		for n < len(changes) && Under(changes[n].Path, top) {
			n++
		}
		if n == 0 {
			return fmt.Errorf("%.200q does not lie in %.200q", changes[0].Path, top)
		}
		b.changes = append(b.changes, group{at: common(changes[:n]), changes: changes[:n]})
		changes = changes[n:]
	}
	// Every new folder is made from the old tree before anything of that goes away.
	for i := range b.changes {
		if err := b.prepare(ctx, &b.changes[i]); err != nil {
			return err
		}
	}
	for _, g := range b.changes {
		if err := b.swap(g); err != nil {
			return err
		}
	}
	return nil
}

// common returns the path that all changes are at or below.
func common(changes []Change) string {
	at := changes[0].Path
	for _, c := range changes[1:] {
		for !Under(c.Path, at) {
			at = Parent(at)
		}
	}
	return at
}

type group struct {
	at      string
	changes []Change
	aside   string // what takes the place; "": nothing, or only another mode
}

type builder struct {
	c        *Changing
	w        Whole
	incoming map[Digest]*Incoming
	byDigest map[Digest]string // paths in the old tree
	used     map[Digest]bool   // incoming files that have been closed and are to be copied from now on
	changes  []group
}

// prepare makes aside what is to be at the group's path.
func (b *builder) prepare(ctx context.Context, g *group) error {
	now, ok := b.w.New.Find(g.at)
	if !ok {
		return nil
	}
	if old, was := b.w.Old.Find(g.at); was && len(g.changes) == 1 && old.Kind == now.Kind && (now.Kind == Folder || now.Kind == File && old.Digest == now.Digest) {
		return nil // another mode
	}
	g.aside = b.c.spare()
	side := &Tree{root: b.c.aside, cur: cursor{root: b.c.aside}}
	defer side.cur.cut(0)
	part := b.w.New.Part(g.at)
	for _, e := range part {
		if err := ctx.Err(); err != nil {
			return err
		}
		path := g.aside + strings.TrimPrefix(e.Path, g.at)
		if err := b.make(ctx, side, path, e); err != nil {
			return err
		}
	}
	for i := len(part) - 1; i >= 0; i-- { // the deepest first
		if e := part[i]; e.Kind == Folder {
			dir, err := side.cur.at(g.aside + strings.TrimPrefix(e.Path, g.at))
			if err != nil {
				return err
			}
			// A folder can be renamed only by who may write it.
			mode := e.Mode
			if e.Path == g.at {
				mode |= 0o700
			}
			if err := unix.Fchmod(dir.fd(), mode); err != nil {
				return dir.fail("chmod", e.Path, err)
			}
		}
	}
	return nil
}

func (b *builder) make(ctx context.Context, side *Tree, path string, e Entry) error {
	dir, err := side.cur.at(Parent(path))
	if err != nil {
		return err
	}
	name := Base(path)
	switch e.Kind {
	case Folder:
		if err := unix.Mkdirat(dir.fd(), name, 0o700); err != nil {
			return dir.fail("mkdir", e.Path, err)
		}
		return b.c.own(dir, name)
	case Link:
		if err := unix.Symlinkat(e.Target, dir.fd(), name); err != nil {
			return dir.fail("symlink", e.Path, err)
		}
		return b.c.own(dir, name)
	}
	if in := b.incoming[e.Digest]; in != nil {
		if b.used[e.Digest] {
			return b.copy(ctx, dir, name, e, in.f)
		}
		b.used[e.Digest] = true
		if err := b.c.setAttributes(in.f, e); err != nil {
			return err
		}
		if err := unix.Renameat(b.c.aside.fd(), in.name, dir.fd(), name); err != nil {
			return dir.fail("rename", e.Path, err)
		}
		return nil
	}
	return b.fromOld(ctx, dir, name, e)
}

// fromOld fills a file with the content that the old tree has: by a hard link where mode and owner are the same.
func (b *builder) fromOld(ctx context.Context, dir *Dir, name string, e Entry) error {
	from := b.byDigest[e.Digest]
	if same, ok := b.w.Old.Find(e.Path); ok && same.Kind == File && same.Digest == e.Digest {
		from = e.Path
	}
	if from == "" {
		return fmt.Errorf("%.200q: its content did not come", e.Path)
	}
	old, _ := b.w.Old.Find(from)
	at, err := b.c.t.cur.at(Parent(from))
	if err != nil {
		return err
	}
	if old.Mode == e.Mode {
		// What cannot be linked (too many, another owner, a file system without) is copied.
		if unix.Linkat(at.fd(), Base(from), dir.fd(), name, 0) == nil {
			return nil
		}
	}
	f, err := at.Open(Base(from))
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // it was read
	return b.copy(ctx, dir, name, e, f)
}

func (b *builder) copy(ctx context.Context, dir *Dir, name string, e Entry, from io.ReaderAt) error {
	f, err := dir.create(name)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, &bound{ctx: ctx, r: io.NewSectionReader(from, 0, e.Size)})
	if err == nil {
		err = b.c.setAttributes(f, e)
	}
	return errors.Join(err, f.Close())
}

// swap puts what was prepared in its place.
func (b *builder) swap(g group) error {
	now, is := b.w.New.Find(g.at)
	_, was := b.w.Old.Find(g.at)
	switch {
	case !is:
		return b.c.RemoveAll(g.at)
	case g.aside == "":
		return b.c.SetAttributes(now)
	}
	if was {
		dir, err := b.c.t.cur.at(Parent(g.at))
		if err != nil {
			return err
		}
		err = unix.Renameat2(b.c.aside.fd(), g.aside, dir.fd(), Base(g.at), unix.RENAME_EXCHANGE)
		if err == nil {
			return b.setTopAttributes(now)
		}
		// gVisor cannot exchange: for a moment there is nothing.
		if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOSYS) {
			return dir.fail("exchange", g.at, err)
		}
		if now.Kind == Folder {
			if err := b.c.putAside(dir, Base(g.at)); err != nil {
				return err
			}
		}
	}
	if err := b.c.place(g.aside, g.at); err != nil {
		return err
	}
	return b.setTopAttributes(now)
}

func (b *builder) setTopAttributes(now Entry) error {
	if now.Kind == Folder {
		return b.c.SetAttributes(now)
	}
	return nil
}
