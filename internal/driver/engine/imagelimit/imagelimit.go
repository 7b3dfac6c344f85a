package imagelimit

import (
	"archive/tar"
	"bufio"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"github.com/containerd/containerd/v2/pkg/archive/compression"
	"github.com/klauspost/compress/zstd"
)

// The limits of one archive.
const (
	// MaxBytes bounds the files of all layers, also those that a later layer deletes.
	MaxBytes = 32 << 30
	// MaxEntries bounds the files, folders and links of all layers, with the folders that an entry implies.
	MaxEntries = 4 << 20
	// MaxText bounds a manifest, an index or a config, which are read into memory whole.
	MaxText = 8 << 20
	// maxParts bounds the entries of the archive itself, whose names are kept in memory. A layer is one of them, or three.
	maxParts = 10_000
	// What is read of an archive at most: each byte of a file twice, as the layer comes and as it is unpacked, so much for each
	// entry, and more by what readers read ahead.
	perByte  = 2
	perEntry = 4 << 10
	ahead    = 8 << 20
)

// ErrLimit is wrapped by errors about an archive beyond its limits.
var ErrLimit = errors.New("it is larger than an image may be")

// Limit counts what is read and unpacked of one archive. It is for one goroutine.
type Limit struct {
	most        int64 // bytes
	read        int64
	files       int64 // bytes of them
	entries     int
	mostEntries int
	last        string // name of the entry before
}

// New returns a Limit of so many bytes, 0 for MaxBytes.
func New(bytes int64) *Limit { return &Limit{most: cmp.Or(bytes, MaxBytes), mostEntries: MaxEntries} }

// Reader returns r, which fails once too much was read.
func (l *Limit) Reader(r io.Reader) io.Reader { return reader{r, l} }

type reader struct {
	r io.Reader
	l *Limit
}

func (r reader) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	if r.l.read += int64(n); r.l.read > perByte*r.l.most+perEntry*int64(r.l.entries)+ahead {
		return n, fmt.Errorf("%w: it holds more than its %d files and folders take", ErrLimit, r.l.entries)
	}
	return n, err
}

// Entry counts an entry of a layer before it is unpacked. A file with holes counts as if it had none: that is how it is written.
func (l *Limit) Entry(h *tar.Header) error {
	if h.Size < 0 || h.Size > l.most-l.files {
		return fmt.Errorf("%w: its files have more than %d bytes", ErrLimit, l.most)
	}
	l.files += h.Size
	name := path.Clean("/" + h.Name)
	l.entries += 1 + newFolders(l.last, name)
	l.last = name
	if l.entries > l.mostEntries {
		return fmt.Errorf("%w: it has more than %d files and folders", ErrLimit, l.mostEntries)
	}
	return nil
}

// newFolders is how many folders an entry may imply that the entry before did not have.
func newFolders(last, name string) (n int) {
	dir := path.Dir(name)
	for dir != "/" && dir != last && !strings.HasPrefix(last, dir+"/") {
		dir = path.Dir(dir)
		n++
	}
	return n
}

// CheckParts refuses an archive with too many parts, or none that can be read. It leaves f at its beginning.
func CheckParts(ctx context.Context, f *os.File) error {
	return each(ctx, f, New(0), func(*tar.Header, io.Reader) error { return nil })
}

// Check reads an archive of an image whole, compressed or not, in the format of OCI or of "docker save": each part that is an
// archive itself is taken for a layer. It leaves f at its beginning.
func Check(ctx context.Context, f *os.File, l *Limit) error {
	return each(ctx, f, l, func(h *tar.Header, part io.Reader) error {
		err := l.layer(ctx, part)
		if err != nil && !errors.Is(err, ErrLimit) && ctx.Err() == nil {
			return nil //nolint:nilerr // no layer; whoever unpacks it says what is wrong
		}
		if err != nil {
			return fmt.Errorf("%.200q: %w", h.Name, err)
		}
		return nil
	})
}

// each calls do for each file of an archive.
func each(ctx context.Context, f *os.File, l *Limit, do func(h *tar.Header, part io.Reader) error) (err error) {
	defer func() {
		_, e := f.Seek(0, io.SeekStart)
		err = errors.Join(err, e)
	}()
	plain, done, err := unpacked(f)
	if err != nil {
		return err
	}
	defer done()
	r := tar.NewReader(l.Reader(plain))
	for n := 1; ; n++ {
		h, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case n > maxParts:
			return fmt.Errorf("%w: the archive has more than %d parts", ErrLimit, maxParts)
		case ctx.Err() != nil:
			return ctx.Err()
		case h.Typeflag != tar.TypeReg:
			continue
		}
		if err := do(h, r); err != nil {
			return err
		}
	}
}

// maxWindow is what a layer in zstd may want of memory: what "zstd --ultra --long" makes.
const maxWindow = 128 << 20

// unpacked returns what is in a stream, compressed or not, until done is called. It reads in this goroutine alone, as containerd's own
// function does not: nothing reads on when a part ends early.
func unpacked(r io.Reader) (plain io.Reader, done func(), err error) {
	buffered := bufio.NewReader(r)
	head, err := buffered.Peek(headBytes)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, err
	}
	switch compression.DetectCompression(head) {
	case compression.Gzip:
		z, err := gzip.NewReader(buffered)
		return z, func() {}, err
	case compression.Zstd:
		z, err := zstd.NewReader(buffered, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, nil, err
		}
		return z, z.Close, nil
	}
	return buffered, func() {}, nil
}

// headBytes are those that tell how a stream is compressed.
const headBytes = 10

// layer counts the entries of one.
func (l *Limit) layer(ctx context.Context, part io.Reader) error {
	plain, done, err := unpacked(part)
	if err != nil {
		return err
	}
	defer done()
	bounded := l.Reader(plain)
	r := tar.NewReader(bounded)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			_, err = io.Copy(io.Discard, bounded)
			return err
		}
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			err = l.Entry(h)
		}
		if err != nil {
			return err
		}
	}
}
