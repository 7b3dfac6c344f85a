package paths

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// hostile is the error for an entry that no honest archive of files has.
func hostile(entry, why string) error {
	return sandbox.Errorf(sandbox.Invalid, "archive refused: %.200q %s", entry, why)
}

// brokenArchive maps errors of the decoders to their kinds. Errors of ours, and of contexts, stay what they are.
func brokenArchive(err error, entry string) error {
	var ours *sandbox.Error
	var path *fs.PathError // of the file that keeps it
	if errors.As(err, &ours) || errors.As(err, &path) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fail(err, "the archive")
	}
	if entry == "" {
		return sandbox.Wrap(sandbox.Invalid, err, "the body is no tar, tar.gz or zip archive that can be read as a whole")
	}
	return sandbox.Wrap(sandbox.Invalid, err, "archive refused: %.200q cannot be read as a whole", entry)
}

// eachArchived returns the entries of an archive, from its beginning.
func eachArchived(ctx context.Context, body *os.File, each func(archived) error) error {
	info, err := body.Stat()
	if err != nil {
		return err
	}
	head := make([]byte, 4)
	n, err := body.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	count := func(a archived) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return each(a)
	}
	switch head = head[:n]; {
	case n == 0:
		return sandbox.Errorf(sandbox.Invalid, "the archive is empty")
	case bytes.HasPrefix(head, []byte("PK\x03\x04")) || bytes.HasPrefix(head, []byte("PK\x05\x06")):
		return eachZipped(body, info.Size(), count)
	case bytes.HasPrefix(head, []byte("\x1f\x8b")):
		z, err := gzip.NewReader(io.NewSectionReader(body, 0, info.Size()))
		if err != nil {
			return brokenArchive(err, "")
		}
		return eachTarred(z, count)
	}
	return eachTarred(io.NewSectionReader(body, 0, info.Size()), count)
}

// tarOverhead is what a tar may have for each entry besides its content, on average.
const tarOverhead = 2 << 10

func eachTarred(r io.Reader, each func(archived) error) error {
	t := tar.NewReader(&capped{r: r, left: MaxArchivedBytes + MaxArchiveEntries*tarOverhead})
	for n := 0; ; n++ {
		h, err := t.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && !errors.Is(err, tar.ErrInsecurePath): // names are refused by what is wrong with them
			return brokenArchive(err, "")
		case n >= MaxArchiveEntries:
			return errTooManyEntries
		}
		a := archived{name: h.Name, mode: h.FileInfo().Mode(), size: h.Size, open: func() (io.Reader, error) { return t, nil }}
		switch h.Typeflag {
		case tar.TypeXGlobalHeader:
			continue
		case tar.TypeDir:
			a.dir = true
		case tar.TypeReg:
			if strings.HasSuffix(h.Name, "/") {
				return hostile(h.Name, "is a file by its type and a folder by its name")
			}
		case tar.TypeSymlink, tar.TypeLink:
			return hostile(h.Name, "is a link; put the file itself in its place")
		default:
			return hostile(h.Name, "is no regular file")
		}
		if err := each(a); err != nil {
			return err
		}
	}
}

var errTooManyEntries = sandbox.Errorf(sandbox.Invalid, "the archive has more than %d entries", MaxArchiveEntries)

// capped fails when more is read than it may have.
type capped struct {
	r    io.Reader
	left int64
}

func (c *capped) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	if c.left -= int64(n); c.left < 0 {
		return 0, sandbox.Errorf(sandbox.QuotaExceeded, "the archive holds more than %d bytes", int64(MaxArchivedBytes))
	}
	return n, err
}

// directory bounds how much of a ZIP archive is read for its directory, which is held as a whole.
type directory struct {
	r    io.ReaderAt
	left int64
	read bool // it was
}

func (d *directory) ReadAt(p []byte, off int64) (int, error) {
	n, err := d.r.ReadAt(p, off)
	if !d.read {
		if d.left -= int64(n); d.left < 0 {
			return 0, errTooManyEntries
		}
	}
	return n, err
}

func eachZipped(body io.ReaderAt, size int64, each func(archived) error) error {
	d := &directory{r: body, left: maxArchiveNames}
	z, err := zip.NewReader(d, size)
	if err != nil && !errors.Is(err, zip.ErrInsecurePath) {
		return brokenArchive(err, "")
	}
	d.read = true
	if len(z.File) > MaxArchiveEntries {
		return errTooManyEntries
	}
	z.RegisterDecompressor(zip.Deflate, func(r io.Reader) io.ReadCloser { return flate.NewReader(r) })
	for _, f := range z.File {
		a := archived{name: f.Name, dir: strings.HasSuffix(f.Name, "/"), mode: f.Mode()}
		a.open = func() (io.Reader, error) {
			r, err := f.Open()
			return r, err
		}
		switch kind := a.mode.Type(); {
		case f.Flags&1 != 0:
			return hostile(f.Name, "is encrypted")
		case kind&fs.ModeSymlink != 0:
			return hostile(f.Name, "is a link; put the file itself in its place")
		case kind&^fs.ModeDir != 0:
			return hostile(f.Name, "is no regular file")
		case a.dir != (kind&fs.ModeDir != 0):
			return hostile(f.Name, "is a folder by its name and none by its mode, or the other way round")
		}
		if err := each(a); err != nil {
			return err
		}
	}
	return nil
}
