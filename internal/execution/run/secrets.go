package run

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/skerry-sandbox/skerry/internal/execution"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/workspace/paths"
)

// The values that an exec gets by name are secrets. They are hidden in its output, in whatever form the server keeps
// it, and in that of later execs of the same sandbox: the exec may have left them in a file. With redact_env, the values
// of the request's own environment and of the sandbox's are hidden there, too. The audit log, and people who decide on
// a run, see the latter: the caller chooses its environment, and must not choose what they see. The argument env itself
// is the exception: its values are in no record. What the program itself writes into files, and what it sends to tools,
// is its own business.

// SecretValues returns values by name for execs that may have them.
type SecretValues interface {
	ForExec(ctx context.Context, a sandbox.SecretAsker, names []string) (map[string]string, error)
}

// named returns the variables of an exec whose values are those of secrets, by their names.
func (x *Runner) named(ctx context.Context, t sandbox.Thread, skill *sandbox.Skill, names map[string]string) (map[string]string, error) {
	if len(names) == 0 {
		return nil, nil
	}
	if x.o.Secrets == nil {
		return nil, sandbox.Errorf(sandbox.NotSupported, "env_secrets: this server keeps no secrets")
	}
	values, err := x.o.Secrets.ForExec(ctx, sandbox.SecretAsker{Owner: t.Owner, Skill: skill}, slices.Sorted(maps.Values(names)))
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for k, name := range names {
		out[k] = values[name]
	}
	return out, nil
}

// hideTimeout bounds the calls of hideSpilled for one exec: its files are as many and as large as code made
// them.
const hideTimeout = time.Minute

// hideSpilled rewrites the file that sandboxd kept a long output in. When that fails, the file goes: the
// program could have read its own environment anyway, but a later reader of the thread's files cannot. Code
// in the sandbox may have put anything there: a link, or a file that never ends.
func (x *Runner) hideSpilled(ctx context.Context, e *execution.Exec, uid int, path *string) *string {
	if e.Secret.Hide == nil || path == nil {
		return path
	}
	err := x.o.Files.Change(ctx, e.Thread, uid, func(fs *paths.FS) error {
		return fs.Rewrite(ctx, *path, maxSpill, e.Secret.Hide.Reader)
	})
	if err == nil {
		return path
	}
	x.o.Log.Warn("long output with secrets not kept", "exec", e.ID, "error", err)
	err = x.o.Files.Change(x.ctx, e.Thread, uid, func(fs *paths.FS) error { return fs.RemoveName(*path) })
	if err != nil {
		x.o.Log.Warn("long output with secrets not deleted", "exec", e.ID, "error", err)
	}
	return nil
}
