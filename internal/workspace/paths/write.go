package paths

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/platform/rename"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Write makes a file of what r reads, with its parent folders, or replaces one, keeping its
// permissions: readers see the old content or the new. With add it adds to the end of the file
// instead (not atomically; a failure takes back what was added). A symbolic link is followed when
// it leads to a place inside. QuotaExceeded when the thread's files would exceed the limit.
func (f *FS) Write(ctx context.Context, name string, r io.Reader, add bool) (Written, error) {
	return f.write(ctx, name, r, add, Writing{})
}

func (f *FS) write(ctx context.Context, name string, r io.Reader, add bool, w Writing) (Written, error) {
	if f.spool.wanted(r) {
		body, err := f.spool.body(f.spool.incoming(ctx, r, f.disk.most, f.disk.most > 0))
		if err != nil {
			return Written{}, fail(err, name)
		}
		defer body.Close() //nolint:errcheck // only read
		r = body
	}
	p, err := f.space.resolve(name, how{follow: true, parents: f.create})
	if err != nil {
		return Written{}, err
	}
	defer p.close()
	if p.isDir() {
		return Written{}, isDirectory(p.virtual)
	}
	if err := p.changeable(); err != nil {
		return Written{}, err
	}
	if p.info != nil && !p.info.Mode().IsRegular() {
		return Written{}, notRegular(p.virtual)
	}
	if err := w.met(p); err != nil {
		return Written{}, err
	}
	room, err := f.disk.room(ctx)
	if err != nil {
		return Written{}, err
	}
	body := &boundedReader{ctx: ctx, r: r, left: room, limited: f.disk.most > 0}
	f.changing(p.virtual)
	if add && p.info != nil {
		return f.create.add(p, body)
	}
	if p.info != nil {
		body.left += freed(p.info) // when the new file has taken its place
	}
	n, tag, err := f.create.replace(p, checkedReader{body, w, p}, 0o644, w.Described)
	if err != nil {
		return Written{}, err
	}
	return Written{Path: p.virtual, Bytes: n, ETag: tag, Added: n, Created: p.info == nil}, nil
}

// Rewrite replaces a regular file of at most most bytes by what change makes of it. Conflict when a symbolic
// link is on the way, or the path is one. The file stays as it is when anything fails.
func (f *FS) Rewrite(ctx context.Context, name string, most int64, change func(io.Reader) io.Reader) error {
	p, err := f.space.resolve(name, how{follow: true, noLinks: true})
	if err != nil {
		return err
	}
	defer p.close()
	if err := p.changeable(); err != nil {
		return err
	}
	file, info, err := p.open(os.O_RDONLY)
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // only read
	if info.Size() > most {
		return tooLarge(p.virtual, most)
	}
	room, err := f.disk.room(ctx)
	if err != nil {
		return err
	}
	// It may grow while it is read.
	in := &boundedReader{ctx: ctx, r: file, left: most, limited: true}
	out := &boundedReader{ctx: ctx, r: change(in), left: room + freed(info), limited: f.disk.most > 0}
	f.changing(p.virtual)
	_, _, err = f.create.replace(p, out, 0o644, nil)
	return err
}

func tooLarge(virtual string, most int64) error {
	return sandbox.Errorf(sandbox.Invalid, "%s: larger than %d bytes", virtual, most)
}

// Edit replaces old by new in a text file of at most MaxEditBytes. Conflict when old is not in the
// file, or is there more than once and all is false.
func (f *FS) Edit(ctx context.Context, name, old, new string, all bool) (Edited, error) {
	if old == "" || old == new {
		return Edited{}, sandbox.Errorf(sandbox.Invalid, "old is empty or the same as new: there is nothing to replace")
	}
	p, err := f.space.resolve(name, how{follow: true})
	if err != nil {
		return Edited{}, err
	}
	defer p.close()
	content, err := p.content(MaxEditBytes)
	if err != nil {
		return Edited{}, err
	}
	if err := p.changeable(); err != nil {
		return Edited{}, err
	}
	count := bytes.Count(content, []byte(old))
	switch {
	case count == 0:
		return Edited{}, oldConflict("absent", p.virtual+": the text to replace is not in the file")
	case count > 1 && !all:
		return Edited{}, oldConflict("not unique", fmt.Sprintf("%s: the text to replace is there %d times: make it longer so that it is unique, or replace all", p.virtual, count))
	}
	size := int64(len(content)) + int64(count)*int64(len(new)-len(old))
	if size > 4*MaxEditBytes {
		return Edited{}, sandbox.Errorf(sandbox.Invalid, "%s: the result would be larger than %d bytes", p.virtual, 4*MaxEditBytes)
	}
	if grown := size - int64(len(content)); grown > 0 {
		room, err := f.disk.room(ctx)
		if err != nil {
			return Edited{}, err
		}
		if f.disk.most > 0 && grown > room {
			return Edited{}, fail(errQuota, p.virtual)
		}
	}
	f.changing(p.virtual)
	n, _, err := f.create.replace(p, bytes.NewReader(bytes.ReplaceAll(content, []byte(old), []byte(new))), 0o644, nil)
	if err != nil {
		return Edited{}, err
	}
	return Edited{Path: p.virtual, Occurrences: count, Bytes: n}, nil
}

// oldConflict says also to programs why the text is not replaced.
func oldConflict(why, detail string) error {
	return &sandbox.Error{Kind: sandbox.Conflict, Detail: detail, Fields: []sandbox.Field{{Name: "old", Detail: why}}}
}

// content reads a whole regular file of at most most bytes.
func (p *place) content(most int64) ([]byte, error) {
	file, info, err := p.open(os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // read-only
	if info.Size() > most {
		return nil, tooLarge(p.virtual, most)
	}
	content, err := io.ReadAll(io.LimitReader(file, most+1))
	if err != nil {
		return nil, fail(err, p.virtual)
	}
	if int64(len(content)) > most { // it grew meanwhile
		return nil, tooLarge(p.virtual, most)
	}
	return content, nil
}

// Mkdir makes a folder and its parents. A folder that is there already is no error.
func (f *FS) Mkdir(name string) (Entry, error) {
	p, err := f.space.resolve(name, how{follow: true, parents: f.create})
	if err != nil {
		return Entry{}, err
	}
	defer p.close()
	if p.isDir() {
		return f.Stat(p.virtual)
	}
	if err := p.changeable(); err != nil {
		return Entry{}, err
	}
	if p.info != nil {
		return Entry{}, sandbox.Errorf(sandbox.Conflict, "%s: a file of that name exists", p.virtual)
	}
	f.changing(p.virtual)
	if err := f.create.mkdir(p.dir, p.base); err != nil {
		return Entry{}, fail(err, p.virtual)
	}
	return f.Stat(p.virtual)
}

// Move renames a file, folder or symbolic link (not what it points at), making the parents of to.
// Conflict when to exists.
func (f *FS) Move(from, to string) (Entry, error) {
	src, err := f.space.resolve(from, how{})
	if err != nil {
		return Entry{}, err
	}
	defer src.close()
	if err := src.changeable(); err != nil {
		return Entry{}, err
	}
	if src.info == nil {
		return Entry{}, notFound(src.virtual)
	}
	dst, err := f.space.resolve(to, how{parents: f.create})
	if err != nil {
		return Entry{}, err
	}
	defer dst.close()
	if err := dst.changeable(); err != nil {
		return Entry{}, err
	}
	if dst.info != nil {
		return Entry{}, sandbox.Errorf(sandbox.Conflict, "%s: exists", dst.virtual)
	}
	if below(path.Dir(dst.virtual), src.virtual) {
		return Entry{}, sandbox.Errorf(sandbox.Invalid, "%s: a folder cannot be moved into itself", src.virtual)
	}
	f.changing(src.virtual)
	f.changing(dst.virtual)
	if err := relocate(src, dst); err != nil {
		return Entry{}, fail(err, dst.virtual)
	}
	return f.Stat(dst.virtual)
}

// relocate moves between two open folders. It replaces nothing.
func relocate(src, dst *place) error {
	err := inFolders(src.dir, dst.dir, func(from, to int) error { return rename.NoReplaceAt(from, src.base, to, dst.base) })
	switch {
	case errors.Is(err, unix.EXDEV):
		return sandbox.Wrap(sandbox.NotSupported, err, "%s: cannot be moved to another file system", dst.virtual)
	case errors.Is(err, unix.EINVAL):
		return sandbox.Wrap(sandbox.Invalid, err, "%s: a folder cannot be moved into itself", src.virtual)
	}
	return err
}
