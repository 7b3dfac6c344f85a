package sidecar

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"

	"github.com/hashicorp/yamux"
	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/sidecar/pod"
	"github.com/skerry-sandbox/skerry/internal/sidecar/tree"
	"github.com/skerry-sandbox/skerry/internal/sidecar/wire"
)

// Pull is that of driver.Remote. Conflict: a mount was never pushed as a whole since the sandbox was made, so that what
// is missing in it says nothing. Of sandbox.UserDataDir the folders workspace, uploads and outputs come, and nothing beside them.
func (c *Conn) Pull(ctx context.Context) (changed bool, err error) {
	release, err := c.lock(ctx)
	if err != nil {
		return false, err
	}
	defer release()
	mounts := slices.DeleteFunc(c.copies(), func(m sandbox.Mount) bool { return m.ReadOnly })
	if len(mounts) == 0 {
		return false, nil
	}
	once := func(ctx context.Context, session *yamux.Session) error {
		p := &pull{c: c}
		defer p.close(ctx)
		err := p.run(ctx, session, mounts)
		changed = changed || p.changed
		if err != nil {
			c.since = nil // both sides may have what the other does not know of
		}
		return err
	}
	err = c.call(ctx, func(ctx context.Context, session *yamux.Session) error {
		part := c.since != nil
		err := once(ctx, session)
		if part && err != nil && ctx.Err() == nil && !session.IsClosed() && !errors.Is(err, sandbox.QuotaExceeded) {
			// The changes may have been to what the server's files are no longer: all of it mends that.
			err = once(ctx, session)
		}
		return err
	})
	return changed, err
}

// pull is one of them on its way.
type pull struct {
	c       *Conn
	s       *wire.Stream
	full    bool
	sides   []*side
	items   []item
	changed bool
}

// side is one mount.
type side struct {
	m       sandbox.Mount
	t       *tree.Tree
	own     tree.List // of a full pull: what the Source has
	list    tree.List // of a full pull: what the sandbox has
	count   copied    // what the Source will have
	change  *tree.Changing
	arrived tree.List // files whose digests are known because they came
}

// item is one thing that the sandbox says.
type item struct {
	side       *side
	e          tree.Entry
	gone       bool
	wanted     bool
	attributes bool // only its mode or time is another
}

func (p *pull) close(ctx context.Context) {
	for _, s := range p.sides {
		if s.change != nil {
			s.change.Abort(ctx)
		}
		s.t.Close()
	}
	if p.s != nil {
		p.s.Close()
	}
}

func (p *pull) run(ctx context.Context, session *yamux.Session, mounts []sandbox.Mount) error {
	limits := p.c.o.Limits
	ask := &wire.Pull{Since: p.c.since, MaxEntries: tree.MaxEntries, MaxBytes: limits.DiskBytes, MaxFileBytes: limits.FileBytes}
	for _, m := range mounts {
		ask.Targets = append(ask.Targets, m.Target)
	}
	var err error
	if p.s, err = request(ctx, session, &wire.Request{Do: &wire.Request_Pull{Pull: ask}}); err != nil {
		return err
	}
	for _, m := range mounts {
		t, err := tree.Open(m.Source, pod.Only(m.Target))
		if err != nil {
			return ofSource(err, m.Target)
		}
		p.sides = append(p.sides, &side{m: m, t: t})
	}
	if err := p.receiveChanges(); err != nil {
		return unbelieved(err)
	}
	if !p.full && len(ask.GetSince()) == 0 {
		return unbelieved(errors.New("changes, where nothing was known"))
	}
	if !p.full && len(p.items) == 0 {
		return nil
	}
	if err := p.compare(ctx); err != nil {
		return err
	}
	if err := p.fetch(ctx); err != nil {
		return err
	}
	for _, s := range p.sides {
		if err := p.finish(ctx, s); err != nil {
			return ofWrite(err, s.m.Target)
		}
	}
	p.agree()
	return nil
}

// agree makes both sides note that they have the same. The files are safe by now: when that fails, the next pull is a full one.
func (p *pull) agree() {
	state := []byte(rand.Text())
	p.c.since = nil
	if p.s.Send(&wire.Outcome{State: state}) == nil && outcome(p.s) == nil {
		p.c.since = state
	}
}

// unbelieved adds a kind to an error of what the sandbox said, when it has none.
func unbelieved(err error) error {
	var ours *sandbox.Error
	switch {
	case errors.As(err, &ours):
		return err
	case errors.Is(err, tree.ErrTooMuch):
		return sandbox.Wrap(sandbox.QuotaExceeded, err, "%s", err.Error())
	}
	return sandbox.Wrap(sandbox.Unavailable, err, "the sandbox's sidecar says what cannot be")
}

// ofWrite maps errors of writing the server's files to their kinds.
func ofWrite(err error, target string) error {
	var ours *sandbox.Error
	switch {
	case errors.As(err, &ours):
		return err
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return sandbox.Wrap(sandbox.QuotaExceeded, err, "%s: there is no space left", target)
	}
	return ofSource(err, target)
}

// receiveChanges receives what the sandbox has, or what changed, and checks it.
func (p *pull) receiveChanges() error {
	last, names := -1, 0
	var err error
	p.full, err = wire.ReceiveEntries(p.s, func(m *wire.Entry) error {
		e, gone, err := m.Tree()
		if err != nil {
			return err
		}
		i := int(m.GetMount())
		if i >= len(p.sides) || i < last {
			return fmt.Errorf("mount %d behind %d, of %d", i, last, len(p.sides))
		}
		if n := len(p.items); i == last && tree.Compare(p.items[n-1].e.Path, e.Path) >= 0 {
			return fmt.Errorf("%.200q behind %.200q", e.Path, p.items[n-1].e.Path)
		}
		last = i
		if !p.sides[i].t.Counts(e.Path) {
			return fmt.Errorf("%.200q is not copied", e.Path)
		}
		if p.items = append(p.items, item{side: p.sides[i], e: e, gone: gone}); len(p.items) > 2*tree.MaxEntries {
			return fmt.Errorf("%w: more than %d files and folders", tree.ErrTooMuch, tree.MaxEntries)
		}
		if names += len(e.Path) + len(e.Target); names > 2*tree.MaxNames { // of all mounts, as the entries are
			return fmt.Errorf("%w: the paths of all files, folders and links together have more than %d bytes", tree.ErrTooMuch, tree.MaxNames)
		}
		return nil
	})
	if err != nil || !p.full {
		return err
	}
	for i, it := range p.items {
		if it.gone {
			return fmt.Errorf("%.200q is gone, among all that is there", it.e.Path)
		}
		p.items[i].side.list = append(it.side.list, it.e)
	}
	for _, s := range p.sides {
		if err := s.list.Check(""); err != nil {
			return err
		}
	}
	return nil
}

// compare finds out what of it the server has already, and whether there is room for it.
func (p *pull) compare(ctx context.Context) error {
	for _, s := range p.sides {
		s.count = p.c.copied[s.m.Target]
		if !p.full {
			continue
		}
		s.count.entries, s.count.bytes = 0, 0
		var err error
		unbounded := tree.Limits{Entries: 4 * tree.MaxEntries, Bytes: 1<<63 - 1, FileBytes: 1<<63 - 1, Names: 4 * tree.MaxNames}
		if s.own, err = s.t.List(ctx, "", unbounded); err != nil {
			return ofSource(err, s.m.Target)
		}
	}
	for i := range p.items {
		if err := p.compareOne(ctx, &p.items[i]); err != nil {
			return err
		}
	}
	for _, s := range p.sides {
		if err := p.room(s); err != nil {
			return err
		}
	}
	return nil
}

func (p *pull) room(s *side) error {
	limits := p.c.o.Limits
	if s.count.bytes > limits.DiskBytes || s.count.entries > tree.MaxEntries {
		return sandbox.Errorf(sandbox.QuotaExceeded, "%s: %d files and folders with %d bytes, more than %d with %d",
			s.m.Target, s.count.entries, s.count.bytes, tree.MaxEntries, limits.DiskBytes)
	}
	return nil
}

// has tells what the Source has at a path.
func (p *pull) has(s *side, path string) (tree.Entry, bool, error) {
	if p.full {
		e, ok := s.own.Find(path)
		return e, ok, nil
	}
	return s.t.Stat(path)
}

func (p *pull) compareOne(ctx context.Context, it *item) error {
	own, ok, err := p.has(it.side, it.e.Path)
	if err != nil {
		return ofSource(err, it.side.m.Target)
	}
	if ok && !p.full {
		it.side.count.entries--
		it.side.count.bytes -= own.Size
	}
	if it.gone {
		return nil
	}
	if it.e.Size > p.c.o.Limits.FileBytes {
		return sandbox.Errorf(sandbox.QuotaExceeded, "%s: %.200q has %d bytes, more than %d", it.side.m.Target, it.e.Path, it.e.Size, p.c.o.Limits.FileBytes)
	}
	it.side.count.entries++
	it.side.count.bytes += it.e.Size
	if it.e.Kind != tree.File {
		return nil
	}
	it.wanted = true
	if !ok || own.Kind != tree.File || own.Size != it.e.Size || !it.e.Digest.Known() {
		return nil
	}
	one := tree.List{own}
	if err := p.c.o.Digests.Fill(ctx, it.side.t, one, it.e.Size+1); err != nil {
		return ofSource(err, it.side.m.Target)
	}
	if one[0].Digest == it.e.Digest {
		it.wanted = false
		it.attributes = own.Mode != it.e.Mode || own.Mtime != it.e.Mtime
	}
	return nil
}

// fetch asks for what the server does not have, and puts it and all else in place.
func (p *pull) fetch(ctx context.Context) error {
	var wanted []int
	for i, it := range p.items {
		if it.wanted {
			wanted = append(wanted, i)
		}
	}
	if err := wire.SendWanted(p.s, wanted); err != nil {
		return err
	}
	for i := range p.items {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := p.put(&p.items[i]); err != nil {
			return ofWrite(err, p.items[i].side.m.Target)
		}
	}
	return nil
}

// put makes one thing be at the server as it is at the sandbox. What is gone goes at the end.
func (p *pull) put(it *item) error {
	own, ok, err := p.has(it.side, it.e.Path)
	if err != nil {
		return err
	}
	switch {
	case it.gone, it.e.Kind == tree.File && !it.wanted && !it.attributes:
		return nil
	case it.e.Kind == tree.Folder && ok && own.Kind == tree.Folder && (own.Mode == it.e.Mode || it.side.fixed(it.e.Path)):
		return nil
	case it.e.Kind != tree.Folder && it.side.fixed(it.e.Path):
		return nil // the sandbox put something else in the place of the workspace itself
	case it.e.Kind == tree.Link && ok && own.Kind == tree.Link && own.Target == it.e.Target:
		return nil
	}
	if !it.wanted {
		p.changed = true
	}
	c, err := p.changing(it.side)
	if err != nil {
		return err
	}
	switch {
	case it.wanted:
		return p.file(c, it)
	case it.e.Kind == tree.Folder:
		return c.Folder(it.e)
	case it.e.Kind == tree.Link:
		return c.Link(it.e)
	}
	return c.SetAttributes(it.e)
}

// fixed reports whether the server made the folder at a path, which no sandbox can change.
func (s *side) fixed(path string) bool {
	return slices.Contains(pod.Only(s.m.Target), path)
}

func (p *pull) changing(s *side) (*tree.Changing, error) {
	if s.change != nil {
		return s.change, nil
	}
	if err := s.t.Sweep(p.c.ctx); err != nil {
		return nil, err
	}
	var err error
	s.change, err = s.t.Change(p.c.uid, true)
	return s.change, err
}

// file receives one file.
func (p *pull) file(c *tree.Changing, it *item) error {
	in, err := c.New()
	if err != nil {
		return err
	}
	mode, mtime, gone, err := wire.ReceiveFile(p.s, in, p.c.o.Limits.FileBytes)
	if err != nil || gone {
		c.Drop(in)
		it.gone = it.gone || gone // it went while the sandbox was asked
		return unwritten(err)
	}
	it.side.count.bytes += in.Size() - it.e.Size
	if err := p.room(it.side); err != nil {
		c.Drop(in)
		return err
	}
	p.changed = true
	e := it.e
	e.Mode, e.Mtime, e.Size, e.Digest = mode, mtime, in.Size(), in.Digest()
	it.side.arrived = append(it.side.arrived, e)
	return c.File(in, e)
}

// unwritten tells what the sandbox said from what the disk did.
func unwritten(err error) error {
	if err == nil || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.EIO) {
		return err
	}
	return unbelieved(err)
}

// finish takes away what is gone, and makes a mount durable.
func (p *pull) finish(ctx context.Context, s *side) error {
	if err := p.remove(s); err != nil {
		return err
	}
	if s.change == nil {
		p.c.copied[s.m.Target] = s.count
		return nil
	}
	c := s.change
	s.change = nil
	if err := c.Finish(ctx); err != nil {
		return err
	}
	for _, e := range s.arrived {
		// A change of a file at the server puts another in its place, so its stamp cannot be that of two contents.
		if now, ok, err := s.t.Stat(e.Path); err == nil && ok && now.Kind == tree.File && now.Size == e.Size {
			p.c.o.Digests.Put(now.Stamp, e.Digest)
		}
	}
	p.c.copied[s.m.Target] = s.count
	return nil
}

// remove takes away what the sandbox does not have any more, the deepest first.
func (p *pull) remove(s *side) error {
	var old tree.List
	for _, it := range p.items {
		if it.side != s || !it.gone || s.fixed(it.e.Path) {
			continue
		}
		if e, ok, err := p.has(s, it.e.Path); err != nil {
			return err
		} else if ok {
			old = append(old, e)
		}
	}
	for _, e := range s.own {
		if _, ok := s.list.Find(e.Path); !ok && !s.fixed(e.Path) {
			old = append(old, e)
		}
	}
	if len(old) == 0 {
		return nil
	}
	slices.SortFunc(old, func(a, b tree.Entry) int { return tree.Compare(b.Path, a.Path) })
	c, err := p.changing(s)
	if err != nil {
		return err
	}
	p.changed = true
	for _, e := range old {
		if err := c.Remove(e); err != nil {
			return err
		}
	}
	return nil
}
