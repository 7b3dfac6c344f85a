package orchestrator

import (
	"encoding/json"

	"github.com/skerry-sandbox/skerry/internal/redact"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/vpath"
)

// The values of a request's own environment are secrets for as long as its exec is known: they are hidden
// in its output, in whatever form that is kept, and in the audit log. What the program itself writes into
// files, and what it sends to tools, is its own business.

// secrets are those of an exec. The zero value hides nothing.
type secrets struct {
	hide     *redact.Secrets
	out, err *redact.Stream // of the events; nil without secrets
	// Bytes of each stream as they came, which hiding changes. sandboxd counts those.
	rawOut, rawErr uint64
}

func newSecrets(env map[string]string) (secrets, error) {
	hide, err := redact.Env(nil, env)
	if hide == nil || err != nil {
		return secrets{}, err
	}
	return secrets{hide: hide, out: hide.Stream(), err: hide.Stream()}, nil
}

// next takes a piece of output and gives what may be shown by now.
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
	err := r.withFiles(e.thread, &uid, func(fs *vpath.FS) error {
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
	err = r.withFiles(e.thread, &uid, func(fs *vpath.FS) error { return fs.Remove(r.ctx, *path, false) })
	if err != nil {
		r.o.Log.Warn("long output with secrets not deleted", "exec", e.id, "error", err)
	}
	return nil
}
