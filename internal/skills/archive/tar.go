package archive

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/platform/hostiletar"
)

// UnpackTar checks a tar archive, compressed with gzip or not, and unpacks it into a new folder below parent, which must
// exist. The rules are those of Unpack, and it need not be one skill: a folder around everything is taken away
// unless keep says that its name belongs to the content. Links of both kinds are refused.
func UnpackTar(ctx context.Context, r io.Reader, parent string, l Limits, keep func(top string) bool) (_ *Staged, err error) {
	f, err := NewFolder(parent, l)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Remove())
		}
	}()
	plain, err := inflated(hostiletar.Limit(r, l.ArchiveBytes, tarRefusal{l}), l)
	if err != nil {
		return nil, err
	}
	if err := untar(ctx, plain, f, l); err != nil {
		return nil, err
	}
	if err := f.unwrap(keep); err != nil {
		return nil, err
	}
	return f.Done()
}

// tarOverhead is what a tar needs besides the content: headers of 512 bytes, long names, padding.
const tarOverhead = 4 << 10

// inflated returns the tar itself, which may be no longer than what the limits allow to be in it.
func inflated(in io.Reader, l Limits) (io.Reader, error) {
	most := l.Bytes + int64(l.Files+1)*4*tarOverhead
	head := make([]byte, 2)
	n, err := io.ReadFull(in, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return nil, err
	}
	whole := io.MultiReader(strings.NewReader(string(head[:n])), in)
	if n < 2 || head[0] != 0x1f || head[1] != 0x8b {
		return hostiletar.Limit(whole, most, tarRefusal{l}), nil
	}
	z, err := gzip.NewReader(whole)
	if err != nil {
		return nil, tarError(err)
	}
	return hostiletar.Limit(z, most, tarRefusal{l}), nil
}

// tarRefusal says what is wrong with an archive.
type tarRefusal struct{ Limits }

func (tarRefusal) TooLarge() error {
	return refuse(TooManyBytes, "", "the archive is larger than this server takes")
}
func (l tarRefusal) TooMany() error {
	return refuse(TooManyFiles, "", "has more than %d entries", 4*l.Files)
}
func (tarRefusal) Link(name string) error {
	return refuse(Link, name, "is a link; put the file itself in its place")
}
func (tarRefusal) Special(name string) error { return refuse(SpecialFile, name, "is no regular file") }
func (tarRefusal) Broken(err error) error    { return tarError(err) }

func untar(ctx context.Context, plain io.Reader, f *Folder, l Limits) error {
	return hostiletar.Each(plain, 4*l.Files+1, tarRefusal{l}, func(h *tar.Header, r io.Reader) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return addTar(ctx, f, r, h)
	})
}

func addTar(ctx context.Context, f *Folder, r io.Reader, h *tar.Header) error {
	name := strings.TrimPrefix(h.Name, "./")
	if h.Typeflag == tar.TypeDir {
		if name == "" || name == "." {
			return nil
		}
		_, err := checkName(name, f.limits)
		return err
	}
	if h.Mode&setIDs != 0 {
		return refuse(SetUID, h.Name, "has a setuid or setgid bit")
	}
	if junk(name) {
		return nil
	}
	return tarError(f.Add(ctx, name, h.Mode&0o111 != 0, r))
}

// tarError keeps what was said for callers, and contexts; what the decoders say is a damaged archive.
func tarError(err error) error {
	var known *Refusal
	switch {
	case err == nil || errors.As(err, &known) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, tar.ErrHeader) || errors.Is(err, gzip.ErrHeader) || errors.Is(err, gzip.ErrChecksum) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF):
		return refuse(BrokenArchive, "", "is not a tar archive that can be read")
	}
	return err
}

// unwrap takes the folder around everything away.
func (f *Folder) unwrap(keep func(top string) bool) error {
	list, err := f.root.Open(".")
	if err != nil {
		return err
	}
	defer list.Close() //nolint:errcheck // it was read
	entries, err := list.ReadDir(2)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if len(entries) == 0 {
		return refuse(NoFiles, "", "has no files")
	}
	top := entries[0].Name()
	if len(entries) > 1 || !entries[0].IsDir() || keep(top) {
		return nil
	}
	f.staged.Wrapper = top
	return f.lift(top)
}

// lift moves everything in a folder one up. The folder takes another name first: it may hold one of its own.
func (f *Folder) lift(top string) error {
	const aside = ".wrapper-"
	if err := f.root.Rename(top, aside); err != nil {
		return err
	}
	dir, err := f.root.Open(aside)
	if err != nil {
		return err
	}
	defer dir.Close() //nolint:errcheck // it was read
	entries, err := dir.ReadDir(-1)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() == aside {
			return refuse(PathForm, aside, "is a name that is taken")
		}
		if err := f.root.Rename(aside+"/"+e.Name(), e.Name()); err != nil {
			return err
		}
	}
	return f.root.Remove(aside)
}
