// Package archive reads and writes .skill files: ZIP archives of one skill. What it reads is hostile. It
// checks an archive as a whole before it writes anything, and counts again while it inflates. An archive
// becomes a folder of plain files with modes that any uid can read, or leaves nothing behind.
//
// Each kind of refusal has a name (Reason) that callers, logs and tests can rely on.
package archive

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Limits bound an archive. All of them must be above zero: see DefaultLimits.
type Limits struct {
	ArchiveBytes int64 // the .skill file itself
	Files        int   // files, without folders
	Bytes        int64 // of all files together, inflated
	Ratio        int64 // inflated to compressed, for one file and for all; the first ratioFree bytes are free
	Depth        int   // parts of a path below the skill's folder: "scripts/run.py" has 2
	NameBytes    int   // one part of a path
	PathBytes    int   // a whole path
	// Executables lets programs of a machine in (ELF, PE, Mach-O). Scripts are always let in.
	Executables bool
}

// DefaultLimits are those of the Skills extension of MCP (SEP-2640: 512 files, 16 MiB), with a ratio
// that no text reaches and names that every file system takes.
func DefaultLimits() Limits {
	return Limits{ArchiveBytes: 24 << 20, Files: 512, Bytes: 16 << 20, Ratio: 100, Depth: 8, NameBytes: 255, PathBytes: 512}
}

// ratioFree is how much may come out of next to nothing: an empty table of 1 MiB is no bomb.
const ratioFree = 1 << 20

// Staged is an unpacked skill in a folder of its own, which only the caller knows. Its owner renames Dir
// away or calls Remove.
type Staged struct {
	Dir     string // host path; files are 0644 or 0755, folders 0755
	Wrapper string // name of the folder that the archive had around everything; "" when it had none
	Files   int
	Bytes   int64
}

// Remove deletes the folder. After a rename of Dir it does nothing.
func (s *Staged) Remove() error { return os.RemoveAll(s.Dir) }

// Unpack checks the archive of size bytes in r and unpacks it into a new folder below parent, which must
// exist. Junk of desktops (__MACOSX, .DS_Store) is left out. A file is executable when the archive says
// so or when it begins with #!.
//
// For an archive that is refused it returns an error of kind Invalid with a *Refusal in its chain; nothing of it
// stays on disk then, nor when ctx ends.
func Unpack(ctx context.Context, r io.ReaderAt, size int64, parent string, l Limits) (_ *Staged, err error) {
	plan, err := check(r, size, l)
	if err != nil {
		return nil, err
	}
	return plan.unpack(ctx, parent, l)
}

// UnpackTree is Unpack for an archive that need not be one skill: a folder around everything is taken away
// unless keep says that its name belongs to the content.
func UnpackTree(ctx context.Context, r io.ReaderAt, size int64, parent string, l Limits, keep func(top string) bool) (*Staged, error) {
	plan, err := members(r, size, l)
	if err == nil {
		plan, err = plan.unwrapTree(l, keep)
	}
	if err != nil {
		return nil, err
	}
	return plan.unpack(ctx, parent, l)
}

func (p plan) unpack(ctx context.Context, parent string, l Limits) (_ *Staged, err error) {
	dir, err := os.MkdirTemp(parent, ".skill-")
	if err != nil {
		return nil, fmt.Errorf("unpack: %w", err)
	}
	s := &Staged{Dir: dir, Wrapper: p.wrapper}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Remove())
		}
	}()
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // any uid in a sandbox reads it
		return nil, fmt.Errorf("unpack: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("unpack: %w", err)
	}
	defer root.Close()
	w := &writer{root: root, limits: l, left: l.Bytes}
	for _, m := range p.members {
		if err := w.write(ctx, m); err != nil {
			return nil, err
		}
	}
	s.Files, s.Bytes = w.files, l.Bytes-w.left
	return s, nil
}

// writer writes members below root and counts what really comes out of them.
type writer struct {
	root   *os.Root
	limits Limits
	left   int64 // bytes that may still be written
	files  int
}

func (w *writer) write(ctx context.Context, m member) error {
	if m.dir {
		return mkdirAll(w.root, m.path)
	}
	if err := mkdirAll(w.root, path.Dir(m.path)); err != nil {
		return err
	}
	in, err := m.file.Open()
	if err != nil {
		return refuse(BrokenArchive, m.file.Name, "cannot be read")
	}
	defer in.Close()
	out, err := w.root.OpenFile(m.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("unpack: %w", err)
	}
	exec, err := w.copy(ctx, out, in, m)
	if e := errors.Join(out.Chmod(sandbox.SkillFileMode(exec)), out.Close()); err == nil && e != nil {
		err = fmt.Errorf("unpack: %w", e)
	}
	w.files++
	return err
}

// copy inflates a file, never more than its header said, and reports whether it is to be executable. The
// CRC is checked by package zip.
func (w *writer) copy(ctx context.Context, out io.Writer, in io.Reader, m member) (exec bool, err error) {
	exec = m.exec
	buf := make([]byte, 64<<10)
	said, total := int64(m.file.UncompressedSize64), int64(0) //nolint:gosec // check bounded it
	for first := true; ; first = false {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		n, err := io.ReadFull(in, buf)
		total += int64(n)
		w.left -= int64(n)
		switch {
		case total > said:
			return false, refuse(HeaderMismatch, m.file.Name, "holds more than the %d bytes that its header says", said)
		case w.left < 0:
			return false, refuse(TooManyBytes, m.file.Name, "the files hold more than %d bytes together", w.limits.Bytes)
		}
		if first {
			kind := machineCode(buf[:n])
			if kind != "" && !w.limits.Executables {
				return false, refuse(Executable, m.file.Name, "is a program (%s); a skill holds scripts", kind)
			}
			exec = exec || n > 2 && buf[0] == '#' && buf[1] == '!'
		}
		if _, err := out.Write(buf[:n]); err != nil {
			return false, fmt.Errorf("unpack: %w", err)
		}
		switch {
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) && total == said:
			return exec, w.ended(in, total, said, m)
		case err != nil:
			return false, broken(err, m)
		}
	}
}

// ended checks the end of a file: io.ReadFull says ErrUnexpectedEOF for a last short piece and for data
// that breaks off, so the reader is asked once more.
func (w *writer) ended(in io.Reader, total, said int64, m member) error {
	var one [1]byte
	n, err := in.Read(one[:])
	switch {
	case n > 0 || total != said:
		return refuse(HeaderMismatch, m.file.Name, "does not hold the %d bytes that its header says", said)
	case !errors.Is(err, io.EOF):
		return broken(err, m)
	}
	return nil
}

func broken(err error, m member) error {
	switch {
	case errors.Is(err, zip.ErrChecksum):
		return refuse(BrokenArchive, m.file.Name, "the checksum is wrong")
	case errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, zip.ErrFormat):
		return refuse(HeaderMismatch, m.file.Name, "does not hold the %d bytes that its header says", m.file.UncompressedSize64)
	}
	return refuse(BrokenArchive, m.file.Name, "the data is damaged")
}

func mkdirAll(root *os.Root, dir string) error {
	if dir == "." {
		return nil
	}
	if err := root.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("unpack: %w", err)
	}
	// The umask may have taken bits away, and any uid has to pass.
	for p := dir; p != "."; p = path.Dir(p) {
		if err := root.Chmod(p, 0o755); err != nil {
			return fmt.Errorf("unpack: %w", err)
		}
	}
	return nil
}

// member is one entry that will be written.
type member struct {
	path string // below the skill's folder, clean
	dir  bool
	exec bool
	file *zip.File
}

// plan is what is left of an archive after all checks that need no inflating.
type plan struct {
	members []member
	wrapper string
}

// check reads the directory of the archive, which is one skill, and refuses it by its first fault.
func check(r io.ReaderAt, size int64, l Limits) (plan, error) {
	p, err := members(r, size, l)
	if err != nil {
		return plan{}, err
	}
	return p.unwrap(l)
}

// members reads the directory of the archive.
func members(r io.ReaderAt, size int64, l Limits) (plan, error) {
	if size > l.ArchiveBytes {
		return plan{}, refuse(TooManyBytes, "", "the archive has %d bytes, at most %d", size, l.ArchiveBytes)
	}
	if err := checkLayout(r, size, l); err != nil {
		return plan{}, err
	}
	z, err := zip.NewReader(r, size)
	if err != nil && !errors.Is(err, zip.ErrInsecurePath) { // names are refused below, by what is wrong with them
		return plan{}, refuse(BrokenArchive, "", "is not a ZIP archive that can be read")
	}
	names := newNameSet()
	var p plan
	var files int
	var inflated, compressed uint64
	for _, f := range z.File {
		name, err := checkName(f.Name, l)
		if err != nil {
			return plan{}, err
		}
		if err := checkHeader(f, l); err != nil {
			return plan{}, err
		}
		dir := strings.HasSuffix(f.Name, "/")
		if err := names.add(name, dir); err != nil {
			return plan{}, err
		}
		if !dir {
			files++
			inflated += f.UncompressedSize64
			compressed += f.CompressedSize64
		}
		switch {
		case files > l.Files:
			return plan{}, refuse(TooManyFiles, "", "has more than %d files", l.Files)
		case tooDense(inflated, compressed, l):
			return plan{}, refuse(Bomb, f.Name, "the archive inflates to more than %d times its size", l.Ratio)
		case inflated > uint64(l.Bytes):
			return plan{}, refuse(TooManyBytes, f.Name, "the files hold more than %d bytes together", l.Bytes)
		}
		if !junk(name) {
			p.members = append(p.members, member{path: name, dir: dir, exec: f.ExternalAttrs>>16&0o111 != 0, file: f})
		}
	}
	return p, nil
}

func tooDense(inflated, compressed uint64, l Limits) bool {
	return inflated > ratioFree && inflated/uint64(l.Ratio) > compressed
}

// junk tells what desktops add to archives.
func junk(name string) bool {
	first, _, _ := strings.Cut(name, "/")
	base := path.Base(name)
	return first == "__MACOSX" || base == ".DS_Store" || base == "Thumbs.db" || base == "desktop.ini"
}

const manifest = "SKILL.md"

// unwrap takes the folder around everything away, and refuses what is not one skill.
func (p plan) unwrap(l Limits) (plan, error) {
	tops := map[string]bool{}
	for _, m := range p.members {
		first, _, nested := strings.Cut(m.path, "/")
		tops[first] = tops[first] || nested || m.dir
		if m.path == manifest && !m.dir {
			return p.deepest(l)
		}
	}
	if len(tops) != 1 {
		return plan{}, refuse(NoSkill, "", "has no %s, neither at its top nor in one folder around everything", manifest)
	}
	for top := range tops {
		p.wrapper = top
	}
	found, inner := false, p.members[:0:0]
	for _, m := range p.members {
		rest, ok := strings.CutPrefix(m.path, p.wrapper+"/")
		if !ok {
			continue // the wrapper itself
		}
		found = found || rest == manifest && !m.dir
		m.path = rest
		inner = append(inner, m)
	}
	if !found {
		return plan{}, refuse(NoSkill, p.wrapper, "has no %s", manifest)
	}
	p.members = inner
	return p.deepest(l)
}

// unwrapTree takes the folder around everything away.
func (p plan) unwrapTree(l Limits, keep func(top string) bool) (plan, error) {
	top, files := "", 0
	for _, m := range p.members {
		first, _, nested := strings.Cut(m.path, "/")
		if !m.dir {
			files++
		}
		if top != "" && first != top || !nested && !m.dir || keep(first) {
			top = "/" // no name of a folder
			continue
		}
		top = first
	}
	switch {
	case files == 0:
		return plan{}, refuse(NoFiles, "", "has no files")
	case top == "/":
		return p.deepest(l)
	}
	inner := p.members[:0:0]
	for _, m := range p.members {
		if rest, ok := strings.CutPrefix(m.path, top+"/"); ok {
			m.path = rest
			inner = append(inner, m)
		}
	}
	p.wrapper, p.members = top, inner
	return p.deepest(l)
}

func (p plan) deepest(l Limits) (plan, error) {
	for _, m := range p.members {
		if strings.Count(m.path, "/") >= l.Depth {
			return plan{}, refuse(TooDeep, m.path, "is deeper than %d folders", l.Depth)
		}
	}
	return p, nil
}

// Refusal says why an archive was refused. It is in the chain of an error of kind Invalid.
type Refusal struct {
	Reason Reason
	Entry  string // name of the entry as the archive has it, cut; "" when it is about the whole
}

// Error returns the reason's name; the text for people is that of the error around it.
func (r *Refusal) Error() string { return string(r.Reason) }

// Reason names a kind of refusal. The names are stable.
type Reason string

// The reasons.
const (
	AbsolutePath     Reason = "absolute-path"
	ParentPath       Reason = "parent-path" // a part that is ".."
	Backslash        Reason = "backslash"
	PathForm         Reason = "path-form"    // empty parts, "."
	NTFSStream       Reason = "ntfs-stream"  // a colon
	WindowsName      Reason = "windows-name" // con, "a.", "a?"
	NameCharacters   Reason = "name-characters"
	NameLength       Reason = "name-length"
	TooDeep          Reason = "too-deep"
	Link             Reason = "link" // symbolic, wherever it leads
	SpecialFile      Reason = "special-file"
	SetUID           Reason = "setuid"
	Executable       Reason = "executable"
	Duplicate        Reason = "duplicate"
	CaseCollision    Reason = "case-collision"
	UnicodeCollision Reason = "unicode-collision"
	FileAsFolder     Reason = "file-as-folder"
	TooManyFiles     Reason = "too-many-files"
	TooManyBytes     Reason = "too-many-bytes"
	Bomb             Reason = "bomb"
	Overlap          Reason = "overlap"
	Encrypted        Reason = "encrypted"
	Method           Reason = "method" // neither stored nor deflated
	HeaderMismatch   Reason = "header-mismatch"
	HiddenData       Reason = "hidden-data" // bytes that belong to no entry: before, between or after
	BrokenArchive    Reason = "broken-archive"
	NoSkill          Reason = "no-skill"
	NoFiles          Reason = "no-files"
)

// maxShown bounds how much of an entry's name an error repeats.
const maxShown = 200

func refuse(why Reason, entry, format string, args ...any) error {
	if len(entry) > maxShown {
		entry = strings.ToValidUTF8(entry[:maxShown], "") + "…"
	}
	text := fmt.Sprintf(format, args...)
	if entry != "" {
		text = fmt.Sprintf("%q: %s", entry, text)
	}
	return sandbox.Wrap(sandbox.Invalid, &Refusal{Reason: why, Entry: entry}, "archive refused (%s): %s", why, text)
}
