package paths

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Format is how an archive is written. Unpack tells them apart by their first bytes.
type Format string

// The formats.
const (
	TarGzip Format = "tar.gz"
	Tar     Format = "tar"
	Zip     Format = "zip"
)

// Packed is what an archive of a folder holds. LeftOut are the symbolic links, FIFOs, sockets and devices that it does not:
// nothing is followed, and Unpack would refuse them.
type Packed struct {
	Files   int
	Bytes   int64 // of the files
	LeftOut int
}

// Survey says what Pack would write now. QuotaExceeded: it is more than an archive may hold.
func (f *FS) Survey(ctx context.Context, name string) (Packed, error) {
	var p Packed
	err := f.space.packing(ctx, name, func(e *found, _ string) error {
		switch {
		case e.isDir():
		case !e.info.Mode().IsRegular():
			p.LeftOut++
		default:
			p.Files++
			p.Bytes += e.info.Size()
		}
		if p.Bytes > MaxArchivedBytes {
			return sandbox.Errorf(sandbox.QuotaExceeded, "%s: its files have more than %d bytes together: get a folder of it", name, int64(MaxArchivedBytes))
		}
		return nil
	})
	return p, err
}

// packing visits what an archive of a folder holds, with the names that it has there. The server's own folder is none of it.
func (n *namespace) packing(ctx context.Context, name string, visit func(e *found, rel string) error) error {
	p, err := n.resolve(name, how{follow: true})
	if err != nil {
		return err
	}
	defer p.close()
	w, bytes := &walk{ctx: ctx, space: n, depth: maxDepth, left: MaxArchiveEntries}, 0
	w.visit = func(e *found) error {
		if e.virtual == keptDir && e.isDir() {
			return fs.SkipDir
		}
		rel := strings.TrimPrefix(e.virtual[len(p.virtual):], "/")
		if bytes += len(rel); bytes > maxArchiveNames { // a ZIP archive ends with all of them, and Unpack takes no more
			return errStop
		}
		return visit(e, rel)
	}
	switch err := w.run(p); {
	case err != nil:
		return err
	case ctx.Err() != nil:
		return fail(ctx.Err(), p.virtual)
	case w.truncated:
		return sandbox.Errorf(sandbox.QuotaExceeded, "%s: more than %d entries, or %d bytes of names, or deeper than %d folders: get a folder of it", p.virtual, MaxArchiveEntries, maxArchiveNames, maxDepth)
	}
	return nil
}

// Pack writes an archive of what is in a folder, with names relative to it. It follows no symbolic link. What is made, changed
// or removed meanwhile may be in it or not; an error means that what was written is no whole archive.
func (f *FS) Pack(ctx context.Context, name string, format Format, w io.Writer) error {
	out, err := newPacker(format, w)
	if err != nil {
		return err
	}
	left := int64(MaxArchivedBytes)
	err = f.space.packing(ctx, name, func(e *found, rel string) error {
		if e.isDir() {
			return out.folder(rel, e)
		}
		if !e.info.Mode().IsRegular() {
			return nil
		}
		n, err := packFile(ctx, out, e, rel)
		if left -= n; err == nil && left < 0 {
			err = sandbox.Errorf(sandbox.QuotaExceeded, "%s: it grew to more than %d bytes", name, int64(MaxArchivedBytes))
		}
		return err
	})
	if err != nil {
		return err
	}
	return out.close()
}

// wholeBytes is how large a file is read before its size is told: a file that is written to all the time is seldom larger.
const wholeBytes = 1 << 20

func packFile(ctx context.Context, out packer, e *found, rel string) (int64, error) {
	file, info, err := openRegular(e.dir, e.name, e.virtual, os.O_RDONLY)
	if err != nil {
		return 0, passOver(err) // it vanished, or is another thing by now
	}
	defer file.Close() //nolint:errcheck // read-only
	in, size := io.Reader(&boundedReader{ctx: ctx, r: file}), info.Size()
	if size <= wholeBytes {
		text, err := io.ReadAll(io.LimitReader(in, wholeBytes))
		if err != nil {
			return 0, fail(err, e.virtual)
		}
		in, size = strings.NewReader(string(text)), int64(len(text))
	}
	n, err := out.file(rel, info, size, io.LimitReader(in, size))
	switch {
	case err != nil:
		return n, fail(err, e.virtual)
	case n < size:
		return n, sandbox.Errorf(sandbox.Conflict, "%s: it was cut while it was read", e.virtual)
	}
	return n, nil
}

// packer writes one format.
type packer interface {
	folder(rel string, e *found) error
	file(rel string, info fs.FileInfo, size int64, r io.Reader) (int64, error)
	close() error
}

func newPacker(format Format, w io.Writer) (packer, error) {
	switch format {
	case TarGzip:
		z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
		return &tarPacker{tar.NewWriter(z), z}, err
	case Tar:
		return &tarPacker{tar.NewWriter(w), nil}, nil
	case Zip:
		return &zipPacker{zip.NewWriter(w)}, nil
	}
	return nil, sandbox.Errorf(sandbox.Invalid, "format %.40q: it is one of %s, %s and %s", format, TarGzip, Tar, Zip)
}

type tarPacker struct {
	t *tar.Writer
	z *gzip.Writer // nil: not compressed
}

func (p *tarPacker) folder(rel string, e *found) error {
	h := &tar.Header{Typeflag: tar.TypeDir, Name: rel + "/", Mode: 0o755}
	if e.info != nil {
		h.Mode, h.ModTime = int64(e.info.Mode().Perm()), e.info.ModTime()
	}
	return p.t.WriteHeader(h)
}

func (p *tarPacker) file(rel string, info fs.FileInfo, size int64, r io.Reader) (int64, error) {
	h := &tar.Header{Typeflag: tar.TypeReg, Name: rel, Size: size, Mode: int64(info.Mode().Perm()), ModTime: info.ModTime()}
	if err := p.t.WriteHeader(h); err != nil {
		return 0, err
	}
	return io.Copy(p.t, r)
}

func (p *tarPacker) close() error {
	err := p.t.Close()
	if p.z != nil {
		err = errors.Join(err, p.z.Close())
	}
	return err
}

type zipPacker struct{ z *zip.Writer }

func (p *zipPacker) folder(rel string, e *found) error {
	h := &zip.FileHeader{Name: rel + "/"}
	h.SetMode(fs.ModeDir | 0o755)
	if e.info != nil {
		h.SetMode(fs.ModeDir | e.info.Mode().Perm())
		h.Modified = e.info.ModTime()
	}
	_, err := p.z.CreateHeader(h)
	return err
}

func (p *zipPacker) file(rel string, info fs.FileInfo, _ int64, r io.Reader) (int64, error) {
	h := &zip.FileHeader{Name: rel, Method: zip.Deflate, Modified: info.ModTime()}
	h.SetMode(info.Mode().Perm())
	w, err := p.z.CreateHeader(h)
	if err != nil {
		return 0, fmt.Errorf("pack: %w", err)
	}
	return io.Copy(w, r)
}

func (p *zipPacker) close() error { return p.z.Close() }
