package memory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// sockets are those of a server's folder that what runs inside may open.
var sockets = []string{sandbox.ControlSocket, sandbox.BridgeSocket, sandbox.StdioSocket, sandbox.EgressSocket}

// pod is the disk of a sandbox, and its way to the process that is attached. A nil one is none.
type pod struct {
	root  string // the sandbox's /
	kept  string // where sandbox.UserDataDir lies; "": in root
	uid   int
	limit int64 // bytes in writable mounts

	files sync.Mutex // held while one side is made like the other

	mu        sync.Mutex
	owner     *Remote // that is attached; nil: none
	token     int64   // the highest that was seen
	mounts    []sandbox.Mount
	theirs    int // owner of what is pulled; 0: uid
	cut, dead bool
	listeners []net.Listener
	conns     map[net.Conn]bool
	passing   sync.WaitGroup
}

// newPod makes the disk of a sandbox, with copies of all that is mounted.
func newPod(spec sandbox.Spec, kept string) (*pod, error) {
	root, err := os.MkdirTemp("", "pod") // short: a socket's path has 108 bytes
	if err != nil {
		return nil, err
	}
	p := &pod{root: root, kept: kept, uid: spec.UID, limit: spec.Limits.DiskBytes, mounts: spec.Mounts, conns: map[net.Conn]bool{}}
	err = os.Chmod(root, 0o755) //nolint:gosec // what plays the sandbox may have any uid
	for _, m := range spec.Mounts {
		if err == nil {
			err = os.MkdirAll(p.at(m.Target), 0o755) //nolint:gosec // as above
		}
		if spec.Volume != nil && spec.Volume.Ahead && m.Target == sandbox.UserDataDir {
			continue
		}
		if err == nil && m.Target != sandbox.RunDir {
			_, err = p.copier(spec.Mounts, m).like(m.Source, p.at(m.Target), m.Target)
		}
	}
	for _, name := range sockets {
		if err == nil && slices.ContainsFunc(spec.Mounts, func(m sandbox.Mount) bool { return m.Target == sandbox.RunDir }) {
			err = p.listen(name)
		}
	}
	if err != nil {
		p.end()
		p.remove()
		return nil, err
	}
	return p, nil
}

func (p *pod) at(path string) string {
	if rest, ok := strings.CutPrefix(path, sandbox.UserDataDir); ok && p.kept != "" {
		return filepath.Join(p.kept, rest)
	}
	return filepath.Join(p.root, path)
}

// own returns the mounts as what runs inside sees them.
func (p *pod) own(mounts []sandbox.Mount) []sandbox.Mount {
	list := slices.Clone(mounts)
	for i := range list {
		list[i].Source = p.at(list[i].Target)
	}
	return list
}

// end breaks all ways for good.
func (p *pod) end() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dead, p.owner = true, nil
	p.hangUp()
	for _, ln := range p.listeners {
		_ = ln.Close()
	}
}

// remove takes the disk away, which has ended.
func (p *pod) remove() {
	if p == nil {
		return
	}
	p.passing.Wait()
	p.files.Lock()
	defer p.files.Unlock()
	_ = os.RemoveAll(p.root)
}

// hangUp is called with mu held.
func (p *pod) hangUp() {
	for c := range p.conns {
		_ = c.Close()
	}
	clear(p.conns)
}

func (p *pod) setCut(broken bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut = broken; broken {
		p.hangUp()
	}
}

var errUnreachable = sandbox.Errorf(sandbox.Unavailable, "the sandbox cannot be reached")

func (p *pod) attach(by *Remote, a driver.Attachment) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.dead || p.cut:
		return errUnreachable
	case a.Token < p.token:
		return sandbox.Errorf(sandbox.Conflict, "the sandbox was attached with the token %d, which is higher than %d", p.token, a.Token)
	}
	if p.owner != by {
		p.hangUp()
	}
	p.owner, p.token, p.mounts, p.theirs = by, a.Token, slices.Clone(a.Mounts), a.UID
	return nil
}

func (p *pod) detach(by *Remote) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.owner == by {
		p.owner = nil
		p.hangUp()
	}
}

// reach returns the mounts by which a process is attached.
func (p *pod) reach(by *Remote) ([]sandbox.Mount, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.dead || p.cut || p.owner == nil:
		return nil, errUnreachable
	case p.owner != by:
		return nil, sandbox.Errorf(sandbox.Conflict, "another process is attached to the sandbox")
	}
	return p.mounts, nil
}

// listen makes one of the sockets inside.
func (p *pod) listen(name string) error {
	ln, err := net.Listen("unix", p.at(name))
	if err != nil {
		return err
	}
	p.listeners = append(p.listeners, ln)
	p.passing.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			p.passing.Go(func() { p.pass(conn.(*net.UnixConn), filepath.Base(name)) })
		}
	})
	return nil
}

// pass connects a connection from inside with the same socket of the server, as long as both last.
func (p *pod) pass(in *net.UnixConn, name string) {
	defer in.Close() //nolint:errcheck // it was passed on
	out, err := p.dial(in, name)
	if err != nil {
		return
	}
	defer func() {
		_ = out.Close()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.conns, in)
		delete(p.conns, out)
	}()
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(in, out)
		_ = in.CloseWrite()
	})
	_, _ = io.Copy(out, in)
	_ = out.CloseWrite()
	back.Wait()
}

func (p *pod) dial(in *net.UnixConn, name string) (*net.UnixConn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead || p.cut || p.owner == nil {
		return nil, errUnreachable
	}
	i := slices.IndexFunc(p.mounts, func(m sandbox.Mount) bool { return m.Target == sandbox.RunDir })
	if i < 0 {
		return nil, errUnreachable
	}
	dir, err := os.Open(p.mounts[i].Source)
	if err != nil {
		return nil, err
	}
	defer dir.Close() //nolint:errcheck // only its number was used: the path may be too long for an address
	out, err := net.DialUnix("unix", nil, &net.UnixAddr{Net: "unix", Name: fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), name)})
	if err != nil {
		return nil, err
	}
	p.conns[in], p.conns[out] = true, true
	return out, nil
}

// push makes the disk have what the server has at some paths.
func (p *pod) push(ctx context.Context, by *Remote, paths []string) error {
	p.files.Lock()
	defer p.files.Unlock()
	for _, path := range paths {
		mounts, err := p.reach(by)
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return sandbox.Wrap(sandbox.Timeout, context.Cause(ctx), "not all was pushed in time")
		}
		if err := p.pushPath(mounts, filepath.Clean(path)); err != nil {
			return err
		}
	}
	return nil
}

func (p *pod) pushPath(mounts []sandbox.Mount, path string) error {
	var in *sandbox.Mount
	for i, m := range mounts {
		if m.Target != sandbox.RunDir && within(path, m.Target) && (in == nil || len(m.Target) >= len(in.Target)) {
			in = &mounts[i]
		}
	}
	if in == nil {
		return sandbox.Errorf(sandbox.Invalid, "%.200q is in no mount", path)
	}
	rel := strings.TrimPrefix(path, in.Target)
	if err := p.parents(mounts, *in, filepath.Dir(path)); err != nil {
		return wrap(err)
	}
	if err := p.show(mounts, *in, filepath.Join(in.Source, rel), path); err != nil {
		return err
	}
	for _, m := range mounts { // mounts that lie in it
		if m.Target != path && within(m.Target, path) {
			if err := p.show(mounts, m, m.Source, m.Target); err != nil {
				return err
			}
		}
	}
	return nil
}

// parents makes the folders above a path that the server has.
func (p *pod) parents(mounts []sandbox.Mount, m sandbox.Mount, dir string) error {
	if !within(dir, m.Target) || dir == m.Target {
		return nil
	}
	if err := p.parents(mounts, m, filepath.Dir(dir)); err != nil {
		return err
	}
	info, err := os.Lstat(filepath.Join(m.Source, strings.TrimPrefix(dir, m.Target)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil || !info.IsDir() {
		return err
	}
	_, err = p.copier(mounts, m).folder(info, p.at(dir))
	return err
}

// show pushes one path of a mount. What is read-only is made aside and changes by whole folders of the first level.
func (p *pod) show(mounts []sandbox.Mount, m sandbox.Mount, from, path string) error {
	c := p.copier(mounts, m)
	if !m.ReadOnly {
		_, err := c.like(from, p.at(path), path)
		return wrap(err)
	}
	aside := p.at(".aside")
	defer os.RemoveAll(aside) //nolint:errcheck // the next one begins with it
	c.aside = aside
	_, err := c.like(from, p.at(path), path)
	return wrap(err)
}

// pull makes the server have what the disk has.
func (p *pod) pull(ctx context.Context, by *Remote) (changed bool, err error) {
	p.files.Lock()
	defer p.files.Unlock()
	mounts, err := p.reach(by)
	if err != nil {
		return false, err
	}
	p.mu.Lock()
	owner := cmp.Or(p.theirs, p.uid)
	p.mu.Unlock()
	var total int64
	for _, m := range mounts {
		if !m.ReadOnly && m.Target != sandbox.RunDir {
			total += bytesIn(p.at(m.Target))
		}
	}
	if total > p.limit {
		return false, sandbox.Errorf(sandbox.QuotaExceeded, "the sandbox has files of %d bytes, and its limit is %d", total, p.limit)
	}
	for _, m := range mounts {
		if m.ReadOnly || m.Target == sandbox.RunDir {
			continue
		}
		if ctx.Err() != nil {
			return changed, sandbox.Wrap(sandbox.Timeout, context.Cause(ctx), "not all was pulled in time")
		}
		c := p.copier(mounts, m)
		c.uid = owner
		did, err := c.like(p.at(m.Target), m.Source, m.Target)
		changed = changed || did
		if err != nil {
			return changed, wrap(err)
		}
	}
	return changed, nil
}

func wrap(err error) error {
	if err == nil {
		return nil
	}
	return sandbox.Wrap(sandbox.Internal, err, "files cannot be copied")
}

// within reports whether a path is a folder, or in it.
func within(path, folder string) bool { return path == folder || strings.HasPrefix(path, folder+"/") }

func bytesIn(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if info, err := d.Info(); err == nil {
				n += info.Size()
			}
		}
		return nil
	})
	return n
}

// copier makes one tree like another.
type copier struct {
	top   string            // target of the mount: its own owner and mode stay
	skip  func(string) bool // what another mount shows
	uid   int               // owner of all that is copied
	aside string            // where folders are made that are then exchanged; "": file by file
}

func (p *pod) copier(mounts []sandbox.Mount, m sandbox.Mount) copier {
	c := copier{top: m.Target, uid: p.uid, skip: func(path string) bool {
		return slices.ContainsFunc(mounts, func(o sandbox.Mount) bool { return o.Target != m.Target && o.Target == path })
	}}
	if m.ReadOnly {
		c.uid = 0
	}
	return c
}
