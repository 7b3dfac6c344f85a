package orchestrator

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/skerry-sandbox/skerry/internal/platform/redact"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/workspace/paths"
)

// The values of a request's own environment, and of the sandbox's, are secrets for as long as its exec is known:
// they are hidden in its output, in whatever form that is kept, and in the audit log. So are those that
// an exec of the same sandbox got by name: it may have left them in a file. What the program itself writes into
// files, and what it sends to tools, is its own business.

// secretValues gives values by name to execs that may have them.
type secretValues interface {
	ForExec(ctx context.Context, a sandbox.SecretAsker, names []string) (map[string]string, error)
}

// sealer encrypts what is kept in files. Only with the same purpose a text is opened again.
type sealer interface {
	Seal(purpose string, plain []byte) ([]byte, error)
	Open(purpose string, sealed []byte) ([]byte, error)
	// Stale reports whether a text is sealed for an older key than the newest.
	Stale(purpose string, sealed []byte) bool
}

// secrets are those of an exec. The zero value hides nothing.
type secrets struct {
	hide     *redact.Secrets
	out, err *redact.Stream // of the events; nil without secrets
	// Bytes of each stream as they came, which hiding changes. sandboxd counts those.
	rawOut, rawErr uint64
}

func newSecrets(hide *redact.Secrets) secrets {
	if hide == nil {
		return secrets{}
	}
	return secrets{hide: hide, out: hide.Stream(), err: hide.Stream()}
}

// named returns the variables of an exec whose values are those of secrets, by their names.
func (r *Orchestrator) named(ctx context.Context, t sandbox.Thread, skill string, env, names map[string]string) (map[string]string, error) {
	if len(names) == 0 {
		return nil, nil
	}
	if r.o.Secrets == nil {
		return nil, sandbox.Errorf(sandbox.NotSupported, "env_secrets: this server keeps no secrets")
	}
	if err := checkEnv(names); err != nil {
		return nil, err
	}
	for k := range names {
		if _, twice := env[k]; twice {
			return nil, sandbox.Errorf(sandbox.Invalid, "env_secrets: %.80q is in env, too", k)
		}
	}
	values, err := r.o.Secrets.ForExec(ctx, sandbox.SecretAsker{Owner: t.Owner, Skill: skill}, slices.Sorted(maps.Values(names)))
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for k, name := range names {
		out[k] = values[name]
	}
	return out, nil
}

// next takes a piece of output and returns what may be shown by now.
func (s *secrets) next(typ sandbox.EventType, piece []byte) []byte {
	raw, stream := &s.rawOut, s.out
	if typ == sandbox.EventStderr {
		raw, stream = &s.rawErr, s.err
	}
	*raw += uint64(len(piece))
	if stream == nil {
		return piece
	}
	return stream.Next(piece)
}

// skip begins stdout anew with a piece before which some is missing: neither the beginning of a secret
// that was kept back nor the rest of one in the piece is shown.
func (s *secrets) skip(piece []byte) []byte {
	if s.out == nil {
		return piece
	}
	before := s.out.End(true)
	s.out = s.hide.Stream()
	return append(before, s.hide.Tail(piece)...)
}

// end gives what was kept back of a stream of which sandboxd saw total bytes in all.
func (s *secrets) end(typ sandbox.EventType, total uint64) []byte {
	raw, stream := s.rawOut, s.out
	if typ == sandbox.EventStderr {
		raw, stream = s.rawErr, s.err
	}
	if stream == nil {
		return nil
	}
	return stream.End(total > raw)
}

// args are the arguments of a request for the audit log. Its hash is that of what is left: a hash of a
// secret would let anybody who reads the log try guesses.
func (s *secrets) args(v any) any {
	if s.hide == nil {
		return v
	}
	text, err := json.Marshal(v)
	if err != nil {
		return v
	}
	return s.hide.JSON(text)
}

// hideSpilled rewrites the file that sandboxd kept a long output in. When that fails, the file goes: the
// program could have read its own environment anyway, but whoever reads the thread's files later cannot.
func (r *Orchestrator) hideSpilled(e *execution, uid int, path *string) *string {
	if e.secret.hide == nil || path == nil {
		return path
	}
	err := r.changeFiles(r.ctx, e.thread, uid, func(fs *paths.FS) error {
		file, err := fs.Open(*path)
		if err != nil {
			return err
		}
		defer file.Close() //nolint:errcheck // only read
		_, err = fs.Write(r.ctx, *path, e.secret.hide.Reader(file), false)
		return err
	})
	if err == nil {
		return path
	}
	r.o.Log.Warn("long output with secrets not kept", "exec", e.id, "error", err)
	err = r.changeFiles(r.ctx, e.thread, uid, func(fs *paths.FS) error { return fs.Remove(r.ctx, *path, false) })
	if err != nil {
		r.o.Log.Warn("long output with secrets not deleted", "exec", e.id, "error", err)
	}
	return nil
}
