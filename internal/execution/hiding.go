package execution

import (
	"encoding/json"
	"maps"

	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/platform/redact"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Secrets are those of an exec. The zero value hides nothing.
type Secrets struct {
	// Hide is for what the exec's caller sees of it: Given, or All when the caller asked for that.
	Hide *redact.Secrets
	// All hides the values of the environment, too: of the argument env in the audit log, and of what is hashed there.
	All      *redact.Secrets
	tooLarge bool // All lacks values of the environment
	// Given is for the audit log, and for the people who decide on a run: it hides only what was given as a secret.
	Given    *redact.Secrets
	out, err *redact.Stream // of the events; nil without secrets
	// Bytes of each stream as they came, which hiding changes. sandboxd counts those.
	rawOut, rawErr uint64
	seen           uint64 // sandboxd's number of the newest event
}

// NewSecrets returns the secrets of an exec that h hides.
func NewSecrets(h instance.Hidden) Secrets {
	s := Secrets{Hide: h.Output, Given: h.Given, All: h.All, tooLarge: h.TooLarge}
	if s.Hide != nil {
		s.out, s.err = s.Hide.Stream(), s.Hide.Stream()
	}
	return s
}

// next takes a piece of output and returns what may be shown by now.
func (s *Secrets) next(typ sandbox.EventType, piece []byte) []byte {
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
func (s *Secrets) skip(piece []byte) []byte {
	if s.out == nil {
		return piece
	}
	before := s.out.End(true)
	s.out = s.Hide.Stream()
	return append(before, s.Hide.Tail(piece)...)
}

// end returns what was kept back of a stream of which sandboxd saw total bytes in all.
func (s *Secrets) end(typ sandbox.EventType, total uint64) []byte {
	raw, stream := s.rawOut, s.out
	if typ == sandbox.EventStderr {
		raw, stream = s.rawErr, s.err
	}
	if stream == nil {
		return nil
	}
	return stream.End(total > raw)
}

// Args are the arguments of a request for the audit log. Its hash is that of what is left: a hash of a
// secret would let a reader of the log try guesses. Values of the environment are hidden where they are
// given, and nowhere else: one that is equal to the command would hide what ran.
func (s *Secrets) Args(v any) any {
	switch args := v.(type) {
	case sandbox.Command:
		args.Env = s.hidden(args.Env)
		v = args
	case sandbox.Code:
		args.Env = s.hidden(args.Env)
		v = args
	case sandbox.Script:
		args.Env = s.hidden(args.Env)
		v = args
	}
	if s.Given == nil {
		return v
	}
	text, err := json.Marshal(v)
	if err != nil {
		return v
	}
	return s.Given.JSON(text)
}

// hidden returns an environment without its values, but for short ones and paths. A path may contain a value.
func (s *Secrets) hidden(env map[string]string) map[string]string {
	out := maps.Clone(env)
	for name, value := range out {
		if redact.IsPath(value) && !s.tooLarge {
			out[name] = s.All.String(value)
		} else if len(value) >= redact.MinLength {
			out[name] = redact.Marker
		}
	}
	return out
}
