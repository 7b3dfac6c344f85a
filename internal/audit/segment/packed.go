package segment

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"

	"github.com/klauspost/compress/zstd"
)

const (
	// PackedSuffix is that of a segment in an archive.
	PackedSuffix = Suffix + ".zst"
	// packWindow bounds the memory of packing and of reading what is packed.
	packWindow = 1 << 20
)

// Pack writes the first n bytes of a file, compressed: the same ones each time.
func Pack(ctx context.Context, to io.Writer, path string, n int64) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := zstd.NewWriter(to, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(packWindow), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return err
	}
	_, err = io.Copy(z, ctxReader{ctx, io.NewSectionReader(f, 0, n)})
	return errors.Join(err, z.Close())
}

type ctxReader struct {
	ctx context.Context
	io.Reader
}

func (r ctxReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}

// Unpack writes what is packed in r, most bytes and one more when there are more.
func Unpack(ctx context.Context, to io.Writer, r io.Reader, most int64) (int64, error) {
	z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(8<<20))
	if err != nil {
		return 0, err
	}
	defer z.Close()
	return io.Copy(to, io.LimitReader(ctxReader{ctx, z}, most+1))
}

// maxUnpacked bounds a segment that is unpacked to be read.
const maxUnpacked = 4 << 30

// Open opens a segment to be read. A packed segment is unpacked into a file without a name. unreadable: only its beginning could be.
func (s Segment) Open(ctx context.Context) (f *os.File, unreadable bool, err error) {
	from, err := os.Open(s.Path)
	if err != nil || !strings.HasSuffix(s.Path, PackedSuffix) {
		return from, false, err
	}
	defer from.Close()
	if f, err = os.CreateTemp("", "skerry-audit-"); err != nil {
		return nil, false, err
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, false, errors.Join(err, f.Close())
	}
	w := noteError{w: f}
	n, err := Unpack(ctx, &w, from, maxUnpacked)
	if e := errors.Join(ctx.Err(), w.err); e != nil {
		return nil, false, errors.Join(e, f.Close())
	}
	return f, err != nil || n > maxUnpacked, nil
}

// noteError tells errors of writing from those of reading.
type noteError struct {
	w   io.Writer
	err error
}

func (w *noteError) Write(p []byte) (int, error) {
	n, err := w.w.Write(p)
	w.err = errors.Join(w.err, err)
	return n, err
}
