package paths

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Unpacked is what Unpack wrote.
type Unpacked struct {
	Path  string `json:"path"`
	Files int    `json:"files"`
	Bytes int64  `json:"bytes"` // of the files
}

// Unpack writes the contents of an archive into a folder, which it makes when it is not there. The archive
// is a tar, one compressed with gzip, or a ZIP archive. Files of the same names are replaced, the others
// stay. The archive is hostile: all of it is read and checked before anything is written. Invalid,
// Forbidden, Conflict or QuotaExceeded says what is wrong. No path in it leads out of the folder, and no
// link or special file is in it. No link that is in the folder already is followed or replaced. An error
// during the writes says so, and how far it got.
func (f *FS) Unpack(ctx context.Context, name string, r io.Reader) (Unpacked, error) {
	if _, err := f.space.unpackTop(name); err != nil {
		return Unpacked{}, err
	}
	body, err := f.spool.archive(ctx, r, f.disk.most)
	if err != nil {
		return Unpacked{}, fail(err, name)
	}
	defer body.Close() //nolint:errcheck // only read
	ctx, cancel := context.WithTimeout(ctx, UnpackBudget)
	defer cancel()
	top, err := f.space.unpackTop(name) // it may be another one by now
	if err != nil {
		return Unpacked{}, err
	}
	room := int64(MaxArchivedBytes)
	if f.disk.most > 0 {
		if room, err = f.disk.room(ctx); err != nil {
			return Unpacked{}, err
		}
	}
	u := &unpacker{ctx: ctx, space: f.space, create: f.create, changing: f.changing, top: top, seen: map[string]bool{}, missing: map[string]bool{}, left: min(room, MaxArchivedBytes)}
	if err := u.check(body); err != nil {
		return Unpacked{}, err
	}
	if u.files+u.folders == 0 {
		return Unpacked{}, sandbox.Errorf(sandbox.Invalid, "the archive has nothing in it")
	}
	return u.write(body)
}

// unpackTop returns the folder that a path leads to, or would, without symbolic links on the way to what is there.
func (n *namespace) unpackTop(name string) (string, error) {
	top, err := Clean(name)
	if err != nil {
		return "", err
	}
	p, err := n.resolve(top, how{follow: true})
	switch {
	case err == nil:
		p.close()
		if top = p.virtual; p.info != nil && !p.info.IsDir() {
			return "", notDirectory(top)
		}
	case sandbox.KindOf(err) != sandbox.NotFound:
		return "", err
	}
	for _, dir := range fixedDirs {
		if v := path.Join(sandbox.UserDataDir, dir); top == sandbox.UserDataDir || below(top, v) {
			return top, nil
		}
	}
	return "", readOnly(top)
}

// unpacker goes through an archive twice.
type unpacker struct {
	ctx            context.Context
	space          *namespace
	create         *creator
	changing       func(path string)
	top            string          // the folder
	seen           map[string]bool // names of the archive; whether they are folders
	missing        map[string]bool // its folders that are not there yet, so that nothing below them is
	nameBytes      int
	left           int64 // that its files may still hold
	files, folders int
	bytes          int64
}

// archived is one entry of an archive. Its content is read at most once, and before the next one.
type archived struct {
	name string // as the archive has it
	dir  bool
	mode fs.FileMode
	size int64
	open func() (io.Reader, error)
}

// check reads all of the archive and compares it with what is there.
func (u *unpacker) check(body *os.File) error {
	return eachArchived(u.ctx, body, func(a archived) error {
		rel, err := u.name(a)
		if err != nil || rel == "" {
			return err
		}
		if u.missing[path.Dir(rel)] {
			u.missing[rel] = a.dir
			return u.count(a)
		}
		p, err := u.space.resolve(path.Join(u.top, rel), how{noLinks: true})
		switch {
		case sandbox.KindOf(err) == sandbox.NotFound: // a folder on the way, which is made later
		case err != nil:
			return err
		default:
			err := u.fits(p, a)
			p.close()
			if err != nil {
				return err
			}
			if p.info != nil && !a.dir {
				u.left += freed(p.info) // when the new file has taken its place
			}
			u.missing[rel] = a.dir && p.info == nil && !p.isDir()
		}
		return u.count(a)
	})
}

func (u *unpacker) count(a archived) error {
	if a.dir {
		u.folders++
		return nil
	}
	n, err := u.copy(io.Discard, a)
	u.files++
	u.bytes += n
	return err
}

// fits says why an entry cannot be at a place.
func (u *unpacker) fits(p *place, a archived) error {
	switch {
	case a.dir && p.isDir():
		return nil
	case p.isDir():
		return isDirectory(p.virtual)
	case p.info != nil && a.dir:
		return notDirectory(p.virtual)
	case p.info != nil && !p.info.Mode().IsRegular():
		return sandbox.Errorf(sandbox.Conflict, "%s: is no regular file here: remove it first", p.virtual)
	}
	err := p.changeable()
	if p.dir == nil && p.m != nil && p.m.writable && sandbox.KindOf(err) == sandbox.NotFound {
		return nil
	}
	return err
}

// copy reads the content of an entry, never more than there is room for.
func (u *unpacker) copy(w io.Writer, a archived) (int64, error) {
	r, err := a.open()
	if err != nil {
		return 0, brokenArchive(err, a.name)
	}
	in := &boundedReader{ctx: u.ctx, r: r, left: u.left, limited: true}
	n, err := io.Copy(w, in)
	u.left = in.left
	switch {
	case errors.Is(err, errQuota):
		return n, sandbox.Errorf(sandbox.QuotaExceeded, "the archive holds more than there is room for: nothing of it was written")
	case err != nil:
		return n, brokenArchive(err, a.name)
	}
	return n, nil
}

// name returns the clean name of an entry below the folder, "" for the folder itself.
func (u *unpacker) name(a archived) (string, error) {
	rel := strings.TrimSuffix(a.name, "/")
	for strings.HasPrefix(rel, "./") {
		rel = rel[2:]
	}
	if a.dir && (rel == "." || rel == "") {
		return "", nil
	}
	if err := u.checkName(a, rel); err != nil {
		return "", err
	}
	u.nameBytes += len(rel)
	if was, there := u.seen[rel]; there && (was != a.dir || !a.dir) {
		return "", hostile(a.name, "is there twice")
	}
	u.seen[rel] = a.dir
	for dir := path.Dir(rel); dir != "."; dir = path.Dir(dir) {
		isDir, there := u.seen[dir]
		if there && !isDir {
			return "", hostile(a.name, "lies in what is a file in the archive, too")
		}
		if there {
			break
		}
		u.seen[dir] = true
	}
	if len(u.seen) > 2*MaxArchiveEntries || u.nameBytes > maxArchiveNames {
		return "", sandbox.Errorf(sandbox.Invalid, "the archive has too many folders, or names that are too long")
	}
	return rel, nil
}

func (u *unpacker) checkName(a archived, rel string) error {
	switch {
	case strings.HasPrefix(a.name, "/"):
		return hostile(a.name, "is an absolute path")
	case a.mode&(fs.ModeSetuid|fs.ModeSetgid) != 0 && !a.dir:
		return hostile(a.name, "has a setuid or setgid bit")
	}
	for part := range strings.SplitSeq(rel, "/") {
		switch part {
		case "..":
			return hostile(a.name, `leaves the folder by ".."`)
		case "", ".":
			return hostile(a.name, `has an empty part or "."`)
		}
	}
	_, err := Clean(u.top + "/" + rel)
	return err
}

// write writes what was checked.
func (u *unpacker) write(body *os.File) (Unpacked, error) {
	for _, changed := range u.changes() {
		u.changing(changed)
	}
	done := Unpacked{Path: u.top}
	u.left = u.bytes
	err := u.folder(u.top)
	if err == nil {
		err = eachArchived(u.ctx, body, func(a archived) error {
			rel := path.Clean(a.name) // it was checked
			if a.dir {
				return u.folder(path.Join(u.top, rel))
			}
			n, err := u.file(path.Join(u.top, rel), a)
			if err == nil {
				done.Files++
				done.Bytes += n
			}
			return err
		})
	}
	if err != nil {
		return done, wrapPartly(err, done.Files, u.files)
	}
	return done, nil
}

// changes are the paths below which something changes: never the top, which has what is not the thread's to change.
func (u *unpacker) changes() []string {
	if u.top != sandbox.UserDataDir {
		return []string{u.top}
	}
	var all []string
	for _, name := range fixedDirs {
		all = append(all, path.Join(u.top, name))
	}
	return all
}

func wrapPartly(err error, done, all int) error {
	text := "it failed"
	var ours *sandbox.Error
	if errors.As(err, &ours) {
		text = ours.Detail
	}
	return sandbox.Wrap(sandbox.KindOf(err), err, "%s: %d of %d files were written before", text, done, all)
}

// folder makes a folder, and those above it.
func (u *unpacker) folder(virtual string) error {
	p, err := u.space.resolve(virtual, how{parents: u.create, noLinks: true})
	if err != nil {
		return err
	}
	defer p.close()
	if p.isDir() {
		return nil
	}
	if err := p.changeable(); err != nil {
		return err
	}
	if p.info != nil {
		return notDirectory(p.virtual)
	}
	return fail(u.create.mkdir(p.dir, p.base), p.virtual)
}

func (u *unpacker) file(virtual string, a archived) (int64, error) {
	p, err := u.space.resolve(virtual, how{parents: u.create, noLinks: true})
	if err != nil {
		return 0, err
	}
	defer p.close()
	if err := u.fits(p, a); err != nil {
		return 0, err
	}
	if err := p.changeable(); err != nil {
		return 0, err
	}
	r, err := a.open()
	if err != nil {
		return 0, brokenArchive(err, a.name)
	}
	in := &boundedReader{ctx: u.ctx, r: r, left: u.left, limited: true}
	mode := fs.FileMode(0o644)
	if a.mode&0o111 != 0 {
		mode = 0o755
	}
	n, _, err := u.create.replace(p, in, mode, nil)
	u.left = in.left
	return n, err
}
