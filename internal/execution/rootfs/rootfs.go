package rootfs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/limits"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/sandboxapi/client"
	sandboxv1 "github.com/skerry-sandbox/skerry/internal/sandboxapi/v1"
	"github.com/skerry-sandbox/skerry/internal/workspace/paths"
)

const (
	// MaxFileBytes bounds a file that is read, whatever sandboxd says of its size.
	MaxFileBytes = 4 << 30
	// transferTime bounds the way of a file.
	transferTime = 10 * time.Minute
)

// Sandboxes are those in which files are.
type Sandboxes interface {
	// Enter returns the thread's running sandbox, which it starts if there is none. It counts as used until Leave.
	Enter(ctx context.Context, c sandbox.Caller, t sandbox.Thread) (*instance.Instance, map[string]string, error)
	Leave(inst *instance.Instance)
}

// Roots are the root file systems of all sandboxes of this server, for callers.
type Roots struct {
	sandboxes Sandboxes
	audit     *audit.Log
	limits    *limits.Gate // nil: there are none
}

// New returns those of the sandboxes that s knows.
func New(s Sandboxes, log *audit.Log, l *limits.Gate) *Roots {
	return &Roots{sandboxes: s, audit: log, limits: l}
}

// ReadSandbox calls read with a view of the thread's sandbox, which it starts if there is none.
func (r *Roots) ReadSandbox(ctx context.Context, c sandbox.Caller, id string, read func(paths.Tree) error) error {
	t, err := c.Thread(id)
	if err != nil {
		return err
	}
	inst, _, err := r.sandboxes.Enter(ctx, c, t)
	if err != nil {
		return err
	}
	defer r.sandboxes.Leave(inst)
	return read(tree{inst.Conn.Client})
}

// ChangeSandbox does the same for a change, which is recorded: action is one of audit.ActionFile…, name its subject. change
// returns the bytes that it wrote.
func (r *Roots) ChangeSandbox(ctx context.Context, c sandbox.Caller, id, action, name string, change func(paths.Tree) (int64, error)) error {
	t, err := c.Thread(id)
	if err != nil {
		return err
	}
	if action != audit.ActionFileDelete {
		if err := r.limits.Files(ctx, c); err != nil {
			return err
		}
	}
	inst, _, err := r.sandboxes.Enter(ctx, c, t)
	if err != nil {
		return err
	}
	defer r.sandboxes.Leave(inst)
	rec := audit.About(c, t, action, audit.PhaseAttempt)
	rec.Sandbox, rec.Subject = string(inst.ID), name
	rec.Args, rec.ArgsHash = audit.Args(map[string]string{"path": name})
	return r.audit.Do(ctx, rec, func(result *audit.Record) error {
		var err error
		result.BytesIn, err = change(tree{inst.Conn.Client})
		return err
	})
}

// tree is paths.Tree of one sandbox.
type tree struct{ client *client.Client }

// entry is a file as sandboxd describes it; the path is the caller's own.
func entry(at string, i *sandboxv1.FileInfo) paths.Entry {
	return paths.Entry{
		Path: at, IsDir: i.GetIsDir(), Bytes: i.GetBytes(), Mode: fmt.Sprintf("%04o", i.GetMode()&0o777),
		ModifiedAt: time.UnixMilli(i.GetModifiedUnixMs()).UTC(), Symlink: i.GetSymlink(),
	}
}

func (s tree) Stat(ctx context.Context, at string) (paths.Entry, error) {
	i, err := s.client.Stat(ctx, at)
	return entry(at, i), err
}

func (s tree) List(ctx context.Context, at string, depth, limit int) (paths.Listing, error) {
	l, err := s.client.ListDir(ctx, at, uint32(depth), uint32(limit)) //nolint:gosec // both are small
	if err != nil {
		return paths.Listing{}, err
	}
	out := paths.Listing{Truncated: l.GetTruncated()}
	for _, i := range l.GetItems() {
		if !path.IsAbs(i.GetPath()) {
			return paths.Listing{}, sandbox.Errorf(sandbox.SandboxLost, "the sandbox listed %.80q, which is no absolute path", i.GetPath())
		}
		out.Items = append(out.Items, entry(path.Clean(i.GetPath()), i))
	}
	return out, nil
}

// Read writes at most MaxFileBytes: a file that has no end is not read for ever.
func (s tree) Read(ctx context.Context, at string, w io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, transferTime)
	defer cancel()
	_, err := s.client.ReadFile(ctx, at, 0, MaxFileBytes, w)
	return err
}

func (s tree) Write(ctx context.Context, at string, r io.Reader) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, transferTime)
	defer cancel()
	i, err := s.client.WriteFile(ctx, at, false, r)
	if errors.Is(err, sandbox.CapacityExceeded) {
		err = sandbox.Wrap(sandbox.QuotaExceeded, err, "no space is left in the sandbox for %.200s", at)
	}
	return i.GetBytes(), err
}

func (s tree) Mkdir(ctx context.Context, at string) (paths.Entry, error) {
	i, err := s.client.MakeDir(ctx, at)
	return entry(at, i), err
}

func (s tree) Move(ctx context.Context, from, to string) (paths.Entry, error) {
	i, err := s.client.Move(ctx, from, to)
	return entry(to, i), err
}

func (s tree) Remove(ctx context.Context, at string) error { return s.client.Remove(ctx, at, true) }
