package pod

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/sidecar/tree"
	"github.com/skerry-sandbox/skerry/internal/sidecar/wire"
)

// unbounded is for trees that the server made: it has bounded them. The number of entries is bounded in any case.
var unbounded = tree.Limits{Entries: tree.MaxEntries, Bytes: math.MaxInt64, FileBytes: math.MaxInt64, Names: tree.MaxNames}

func (p *sidecar) mount(target string) (*mount, error) {
	for _, m := range p.mounts {
		if m.Target == target {
			return m, nil
		}
	}
	return nil, sandbox.Errorf(sandbox.Invalid, "%.200q is no mount", target)
}

// push makes a tree, or a part of one, what the server says.
func (p *sidecar) push(ctx context.Context, s *wire.Stream, ask *wire.Push) error {
	m, err := p.mount(ask.GetTarget())
	if err != nil {
		return err
	}
	r := &receiving{p: p, m: m, s: s, path: string(ask.GetPath())}
	if err := r.announced(ask); err != nil {
		return sandbox.Wrap(sandbox.Invalid, err, "what came is not in order")
	}
	if r.t, err = tree.Open(m.Folder, m.only()); err != nil {
		return err
	}
	defer r.t.Close()
	if m.Writable {
		err = r.parts(ctx)
	} else {
		err = r.whole(ctx)
	}
	if err != nil {
		return kindOf(err)
	}
	if r.path == "" {
		if err := p.fill(m); err != nil {
			return err
		}
	}
	return s.Send(&wire.Outcome{})
}

// kindOf maps errors of trees to their kinds.
func kindOf(err error) error {
	switch {
	case errors.Is(err, tree.ErrTooMuch):
		return sandbox.Wrap(sandbox.QuotaExceeded, err, "%s", err.Error())
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return sandbox.Wrap(sandbox.QuotaExceeded, err, "there is no space left in the sandbox")
	}
	return err
}

// receiving is a push on its way.
type receiving struct {
	p       *sidecar
	m       *mount
	s       *wire.Stream
	t       *tree.Tree
	path    string
	parents tree.List
	list    tree.List // what is to be at path and below it
}

// announced receives the list and checks it.
func (r *receiving) announced(ask *wire.Push) error {
	if r.path != "" {
		if err := tree.CheckPath(r.path); err != nil {
			return err
		}
	}
	for _, m := range ask.GetParents() {
		e, gone, err := m.Tree()
		if err != nil {
			return err
		}
		if gone || e.Kind != tree.Folder || e.Path == r.path || !tree.Under(r.path, e.Path) {
			return fmt.Errorf("%.200q is no folder above %.200q", e.Path, r.path)
		}
		r.parents = append(r.parents, e)
	}
	_, err := wire.ReceiveEntries(r.s, func(m *wire.Entry) error {
		e, gone, err := m.Tree()
		if err != nil {
			return err
		}
		if gone || e.Kind == tree.File && !e.Digest.Known() {
			return fmt.Errorf("%.200q: a file without a digest", e.Path)
		}
		if slices.Contains(r.m.only(), e.Path) && e.Kind != tree.Folder {
			return fmt.Errorf("%.200q is to be a folder", e.Path)
		}
		if r.list = append(r.list, e); len(r.list) > tree.MaxEntries {
			return tree.ErrTooMuch
		}
		return nil
	})
	if err != nil {
		return err
	}
	return r.list.Check(r.path)
}

// begin makes the folders above the path, and begins the change.
func (r *receiving) begin() (*tree.Changing, error) {
	c, err := r.t.Change(0, false)
	if err != nil {
		return nil, err
	}
	for _, e := range r.parents {
		if now, ok, err := r.t.Stat(e.Path); err != nil {
			return c, err
		} else if ok && now.Kind == tree.Folder {
			continue
		}
		if err := c.Folder(e); err != nil {
			return c, err
		}
	}
	return c, nil
}

// content receives one file.
func (r *receiving) content(c *tree.Changing, e tree.Entry) (*tree.Incoming, error) {
	in, err := c.New()
	if err != nil {
		return nil, err
	}
	_, _, gone, err := wire.ReceiveFile(r.s, in, e.Size)
	if err == nil && (gone || in.Digest() != e.Digest) {
		err = sandbox.Errorf(sandbox.Unavailable, "%.200q changed while it was copied", e.Path)
	}
	if err != nil {
		c.Drop(in)
		return nil, err
	}
	return in, nil
}

// whole changes a tree that only this process can change.
func (r *receiving) whole(ctx context.Context) error {
	own, err := r.t.List(ctx, r.path, unbounded)
	if err != nil {
		return err
	}
	if err := r.p.digests.Fill(ctx, r.t, own, math.MaxInt64); err != nil {
		return err
	}
	w := tree.Whole{Path: r.path, Old: own, New: r.list}
	missing := w.Missing()
	if err := wire.SendWanted(r.s, missing); err != nil {
		return err
	}
	if len(missing) == 0 && len(tree.Diff(own, r.list, tree.Differs)) == 0 {
		return nil
	}
	c, err := r.begin()
	if err != nil {
		return abort(ctx, c, err)
	}
	incoming := map[tree.Digest]*tree.Incoming{}
	for _, i := range missing {
		in, err := r.content(c, r.list[i])
		if err != nil {
			return abort(ctx, c, err)
		}
		incoming[r.list[i].Digest] = in
	}
	if err := c.Apply(ctx, w, incoming); err != nil {
		return abort(ctx, c, err)
	}
	return c.Finish(ctx)
}

func abort(ctx context.Context, c *tree.Changing, err error) error {
	if c != nil {
		c.Abort(ctx)
	}
	return err
}

// parts changes a tree that the sandbox changes, too, file by file.
func (r *receiving) parts(ctx context.Context) error {
	own, err := r.t.List(ctx, r.path, unbounded)
	if err != nil {
		return err
	}
	var missing []int
	for i, e := range r.list {
		if e.Kind != tree.File {
			continue
		}
		same, err := r.same(ctx, own, e)
		if err != nil {
			return err
		}
		if !same {
			missing = append(missing, i)
		}
	}
	if err := wire.SendWanted(r.s, missing); err != nil {
		return err
	}
	c, err := r.begin()
	if err == nil {
		err = r.change(ctx, c, own, missing)
	}
	if err != nil {
		return abort(ctx, c, err)
	}
	if err := c.Finish(ctx); err != nil {
		return err
	}
	return r.remember(ctx)
}

// same says whether the tree has the content of a file already.
func (r *receiving) same(ctx context.Context, own tree.List, e tree.Entry) (bool, error) {
	now, ok := own.Find(e.Path)
	if !ok || now.Kind != tree.File || now.Size != e.Size {
		return false, nil
	}
	one := tree.List{now}
	if err := r.p.digests.Fill(ctx, r.t, one, e.Size+1); err != nil {
		return false, err
	}
	return one[0].Digest == e.Digest, nil
}

func (r *receiving) change(ctx context.Context, c *tree.Changing, own tree.List, missing []int) error {
	for i, e := range r.list {
		if err := ctx.Err(); err != nil {
			return err
		}
		if len(missing) > 0 && missing[0] == i {
			missing = missing[1:]
			in, err := r.content(c, e)
			if err == nil {
				err = c.File(in, e)
			}
			if err != nil {
				return err
			}
			continue
		}
		if err := adapt(c, own, e); err != nil {
			return err
		}
	}
	removed := ""
	for _, e := range own {
		if _, ok := r.list.Find(e.Path); ok || removed != "" && tree.Under(e.Path, removed) {
			continue
		}
		if slices.Contains(r.m.only(), e.Path) {
			continue // the sandbox has it as a mount of its own: only what is in it goes
		}
		removed = e.Path
		if err := c.RemoveAll(e.Path); err != nil {
			return err
		}
	}
	return nil
}

// adapt makes what needs no content.
func adapt(c *tree.Changing, own tree.List, e tree.Entry) error {
	now, ok := own.Find(e.Path)
	switch e.Kind {
	case tree.Folder:
		return c.Folder(e)
	case tree.Link:
		if ok && now.Kind == tree.Link && now.Target == e.Target {
			return nil
		}
		return c.Link(e)
	}
	if now.Mode != e.Mode || now.Mtime != e.Mtime {
		return c.SetAttributes(e)
	}
	return nil
}

// remember notes that the server has what was pushed. What the sandbox changed meanwhile is noted as something
// else, so that the next pull copies it.
func (r *receiving) remember(ctx context.Context) error {
	now, err := r.t.List(ctx, r.path, unbounded)
	if err != nil {
		return err
	}
	part := make(tree.List, len(r.list))
	for i, e := range r.list {
		if is, ok := now.Find(e.Path); ok && is.Kind == e.Kind && is.Size == e.Size && is.Mtime == e.Mtime && is.Mode == e.Mode && is.Target == e.Target {
			e.Stamp, e.Racy = is.Stamp, is.Racy
		}
		part[i] = e
	}
	r.m.list = r.m.list.With(r.path, part)
	return nil
}
