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

	"github.com/skerry-sandbox/skerry/internal/platform/hostiletar"
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
	bounded := hostiletar.Limit(r, MaxArchivedBytes+MaxArchiveEntries*tarOverhead, tarRefusal{})
	return hostiletar.Each(bounded, MaxArchiveEntries, tarRefusal{}, func(h *tar.Header, r io.Reader) error {
		a := archived{name: h.Name, dir: h.Typeflag == tar.TypeDir, mode: h.FileInfo().Mode(), size: h.Size}
		if !a.dir && strings.HasSuffix(h.Name, "/") {
			return hostile(h.Name, "is a file by its type and a folder by its name")
		}
		a.open = func() (io.Reader, error) { return r, nil }
		return each(a)
	})
}

var errTooManyEntries = sandbox.Errorf(sandbox.Invalid, "the archive has more than %d entries", MaxArchiveEntries)

// tarRefusal says what is wrong with an archive.
type tarRefusal struct{}

func (tarRefusal) TooLarge() error {
	return sandbox.Errorf(sandbox.QuotaExceeded, "the archive holds more than %d bytes", int64(MaxArchivedBytes))
}
func (tarRefusal) TooMany() error { return errTooManyEntries }
func (tarRefusal) Link(name string) error {
	return hostile(name, "is a link; put the file itself in its place")
}
func (tarRefusal) Special(name string) error { return hostile(name, "is no regular file") }
func (tarRefusal) Broken(err error) error    { return brokenArchive(err, "") }

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
