package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/skerry-sandbox/skerry/internal/sidecar/tree"
)

// SendFile sends the content of a file of a tree, as it is now, at most limit bytes. It returns the stamp and the digest of what was
// sent when nothing changed meanwhile; ok is false otherwise, and when there is no such file.
func SendFile(ctx context.Context, s *Stream, t *tree.Tree, path string, limit int64) (now tree.Entry, ok bool, err error) {
	f, err := t.OpenFile(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return now, false, s.Send(&Content{Last: true, Gone: true})
	}
	if err != nil {
		return now, false, err
	}
	defer f.Close() //nolint:errcheck // it was read
	before, err := tree.StatFile(f)
	if err != nil {
		return now, false, err
	}
	// What is appended while it is read does not come: a file that grows would have no end.
	h := tree.NewHash()
	r := io.TeeReader(io.LimitReader(f, min(before.Size, limit)), h)
	buf := make([]byte, MaxData)
	for {
		n, err := io.ReadFull(r, buf)
		if n > 0 {
			if err := s.Send(&Content{Data: buf[:n]}); err != nil {
				return now, false, err
			}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				return now, false, err
			}
			break
		}
		if err := ctx.Err(); err != nil {
			return now, false, err
		}
	}
	if now, err = tree.StatFile(f); err != nil {
		return now, false, err
	}
	now.Path, now.Digest = path, tree.Digest(h.Sum(nil))
	return now, now.Stamp == before.Stamp, s.Send(&Content{Last: true, Mode: now.Mode, Mtime: now.Mtime})
}

// ReceiveFile writes the content of a file, at most limit bytes. gone: the other side has no such file.
func ReceiveFile(s *Stream, w io.Writer, limit int64) (mode uint32, mtime int64, gone bool, err error) {
	var m Content
	for {
		m.Reset()
		if err := s.Receive(&m); err != nil {
			return 0, 0, false, err
		}
		if err := m.GetFailure().Err(); err != nil {
			return 0, 0, false, err
		}
		if limit -= int64(len(m.GetData())); limit < 0 {
			return 0, 0, false, fmt.Errorf("%w: more came than was announced", tree.ErrTooMuch)
		}
		if m.GetLast() {
			if m.GetMode() > 0o777 || len(m.GetData()) > 0 {
				return 0, 0, false, fmt.Errorf("mode %o and %d bytes at the end of a file", m.GetMode(), len(m.GetData()))
			}
			return m.GetMode(), m.GetMtime(), m.GetGone(), nil
		}
		if len(m.GetData()) == 0 {
			return 0, 0, false, errors.New("an empty part of a file")
		}
		if _, err := w.Write(m.GetData()); err != nil {
			return 0, 0, false, err
		}
	}
}
