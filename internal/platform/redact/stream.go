package redact

import "io"

// Stream hides secrets in a text that comes in pieces, also secrets that span several of them. Make one for
// each text with Secrets.Stream; one goroutine at a time may use it.
type Stream struct {
	s       *Secrets
	at      int32
	pending []byte // not decided yet: the beginning of a secret may be in it
	covered []bool // of each byte of pending: it is part of a secret
	hiding  bool   // the last byte given was hidden
	rest    int    // so many bytes to come are the rest of a secret that was cut
}

// Stream begins a text. With nil Secrets it passes every piece on as it came.
func (s *Secrets) Stream() *Stream { return &Stream{s: s} }

// Next takes the next piece and returns what can be said by now, which may be nothing: what looks like the
// beginning of a secret is kept back until more is known. piece is not changed, and not kept.
func (t *Stream) Next(piece []byte) []byte {
	if t.s == nil {
		return piece
	}
	var out []byte
	for _, c := range piece {
		t.at = t.s.step(t.at, c)
		t.pending, t.covered = append(t.pending, c), append(t.covered, t.rest > 0)
		t.rest = max(t.rest-1, 0)
		n := &t.s.nodes[t.at]
		if n.hit > 0 {
			for i := len(t.covered) - int(n.hit); i < len(t.covered); i++ {
				t.covered[i] = true
			}
		}
		if len(t.pending)-int(n.depth) >= flushAt {
			out = t.give(out, len(t.pending)-int(n.depth))
		}
	}
	return t.give(out, len(t.pending)-int(t.s.nodes[t.at].depth))
}

// flushAt is how many decided bytes gather before they are moved to the output.
const flushAt = 1 << 10

// End returns what was kept back. cut says that the text did not end there but was cut off: the beginning
// of a secret at its end is hidden then.
func (t *Stream) End(cut bool) []byte {
	if t.s == nil {
		return nil
	}
	if n := int(t.s.nodes[t.at].depth); cut && n >= minPart {
		for i := len(t.covered) - n; i < len(t.covered); i++ {
			t.covered[i] = true
		}
	}
	out := t.give(nil, len(t.pending))
	t.at = 0
	return out
}

// give moves the first n bytes of what is pending to out.
func (t *Stream) give(out []byte, n int) []byte {
	for i := range n {
		if !t.covered[i] {
			out = append(out, t.pending[i])
		} else if !t.hiding {
			out = append(out, Marker...)
		}
		t.hiding = t.covered[i]
	}
	t.pending = t.pending[:copy(t.pending, t.pending[n:])]
	t.covered = t.covered[:copy(t.covered, t.covered[n:])]
	return out
}

// Reader returns what r reads, without secrets.
func (s *Secrets) Reader(r io.Reader) io.Reader {
	if s == nil {
		return r
	}
	return &reader{r: r, t: s.Stream(), buf: make([]byte, 32<<10)}
}

type reader struct {
	r    io.Reader
	t    *Stream
	buf  []byte
	have []byte
	err  error
}

func (r *reader) Read(p []byte) (int, error) {
	for len(r.have) == 0 && r.err == nil {
		var n int
		n, r.err = r.r.Read(r.buf)
		r.have = r.t.Next(r.buf[:n])
		if r.err != nil {
			r.have = append(r.have, r.t.End(false)...)
		}
	}
	n := copy(p, r.have)
	r.have = r.have[n:]
	if n > 0 || len(p) == 0 {
		return n, nil
	}
	return 0, r.err
}
