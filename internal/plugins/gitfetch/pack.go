package gitfetch

import (
	"context"
	"io"
	"os"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/go-git/go-git/v5/plumbing/storer"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// measure reads a pack without unpacking it, and refuses one whose objects would be too large together. Of a delta the
// size of what it makes counts, which is written at its front.
func measure(ctx context.Context, f *os.File, l Limits) error {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return sandbox.Wrap(sandbox.Internal, err, "the pack cannot be read")
	}
	s := packfile.NewScanner(f)
	_, count, err := s.Header()
	if err != nil {
		return broken(err)
	}
	if count > l.Objects {
		return sandbox.Errorf(sandbox.Invalid, "the repository has more than %d files and folders", l.Objects)
	}
	left := l.Bytes
	for range count {
		if err := ctx.Err(); err != nil {
			return err
		}
		h, err := s.NextObjectHeader()
		if err != nil {
			return broken(err)
		}
		if left -= h.Length; h.Length < 0 || left < 0 {
			return errTooMuch
		}
		head := &front{}
		if _, _, err := s.NextObject(head); err != nil {
			return broken(err)
		}
		if h.Type != plumbing.OFSDeltaObject && h.Type != plumbing.REFDeltaObject {
			continue
		}
		made, ok := head.makes()
		if left -= made; !ok || left < 0 {
			return errTooMuch
		}
	}
	return nil
}

func broken(err error) error {
	return sandbox.Wrap(sandbox.Invalid, err, "what the repository sent is damaged")
}

// front keeps the first bytes of what is written.
type front struct {
	buf [24]byte
	n   int
}

func (f *front) Write(p []byte) (int, error) {
	f.n += copy(f.buf[f.n:], p)
	return len(p), nil
}

// makes reads the second of the two sizes that a delta begins with: that of what it makes.
func (f *front) makes() (int64, bool) {
	_, rest, ok := varint(f.buf[:f.n])
	if !ok {
		return 0, false
	}
	n, _, ok := varint(rest)
	return n, ok
}

// varint reads a number of up to 42 bits.
func varint(b []byte) (n int64, rest []byte, ok bool) {
	for i := 0; i < len(b) && i < 6; i++ {
		n |= int64(b[i]&0x7f) << (7 * i)
		if b[i]&0x80 == 0 {
			return n, b[i+1:], true
		}
	}
	return 0, nil, false
}

// parse unpacks a pack that was measured.
func parse(f *os.File, store storer.EncodedObjectStorer) error {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return sandbox.Wrap(sandbox.Internal, err, "the pack cannot be read")
	}
	p, err := packfile.NewParserWithStorage(packfile.NewScanner(f), store)
	if err != nil {
		return err
	}
	if _, err := p.Parse(); err != nil {
		return broken(err)
	}
	return nil
}
