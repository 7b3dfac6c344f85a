package skills

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/platform/rename"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/skills/format"
)

// tops are the folders of a view that are always there: a sandbox mounts the first level, and a
// container cannot mount what comes later.
var tops = []string{"skills", "skills/public", "skills/custom", "skills/virtual", "plugins"}

// linkers is how many trees are linked side by side.
const linkers = 4

// Folder is a view on disk: <dir>/skills and <dir>/plugins, hard links to the files of the store. Its
// methods may be called at the same time and wait for each other.
type Folder struct {
	dir    string // also has stage/, where trees are made before they are moved into place
	copies *tenantCopies
	count  atomic.Uint64

	mu     sync.Mutex
	have   map[string]string // key by path, of the trees that are there
	view   *View             // that it shows, nil when that is not known
	tenant string            // whose files they are
	gone   bool
}

// unknown is the key of a tree that a former process made. No tree has it.
const unknown = ""

// Open takes over the folder at dir, which it makes when it is not there. What is in it is not
// known: the first Show keeps the trees whose files are those of the store, and makes the others anew.
func (v *Views) Open(dir string) (*Folder, error) { return openFolder(dir, v.copies) }

func openFolder(dir string, copies *tenantCopies) (*Folder, error) {
	f := &Folder{dir: dir, copies: copies, have: map[string]string{}}
	if err := os.RemoveAll(f.stage()); err != nil {
		return nil, err
	}
	for _, top := range append([]string{"stage"}, tops...) {
		p := filepath.Join(dir, top)
		if err := os.MkdirAll(p, 0o755); err != nil {
			return nil, err
		}
		if err := os.Chmod(p, 0o755); err != nil { //nolint:gosec // every uid reads it, whatever the umask
			return nil, err
		}
	}
	for _, group := range []string{"skills/public", "skills/custom", "skills/virtual", "plugins"} {
		entries, err := os.ReadDir(filepath.Join(dir, group))
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			f.have[path.Join(group, e.Name())] = unknown
		}
	}
	return f, nil
}

// Skills and Plugins are the host folders to mount at /mnt/skills and /mnt/plugins.
func (f *Folder) Skills() string { return filepath.Join(f.dir, "skills") }

// Plugins is the host folder to mount at /mnt/plugins.
func (f *Folder) Plugins() string { return filepath.Join(f.dir, "plugins") }

func (f *Folder) stage() string { return filepath.Join(f.dir, "stage") }

// Shows reports whether the folder shows this view already.
func (f *Folder) Shows(v *View) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.view == v
}

// Show makes the folder show a view to a tenant's sandbox; "": to one that no tenant has yet. Only trees that differ are touched, and each of them appears, changes or
// vanishes in one step: a reader finds the old tree or the new one, whole. Files that are open stay readable. When it fails, some trees
// are old and some new, and the next Show does the rest. Unavailable after Close.
func (f *Folder) Show(tenant string, v *View) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.gone {
		return sandbox.Errorf(sandbox.Unavailable, "the sandbox has ended")
	}
	if f.view == v && f.tenant == tenant {
		return nil
	}
	f.view, f.tenant = nil, tenant
	want := map[string]Tree{}
	for _, t := range v.trees {
		want[t.Path] = t
	}
	var errs []error
	for _, p := range slices.Sorted(maps.Keys(f.have)) {
		if _, ok := want[p]; !ok {
			errs = append(errs, f.take(p))
		}
	}
	errs = append(errs, f.put(v.trees), f.empty())
	if err := errors.Join(errs...); err != nil {
		return sandbox.Wrap(sandbox.Internal, err, "the skills cannot be shown")
	}
	f.view = v
	return nil
}

// next is a name in stage that nothing has.
func (f *Folder) next() string {
	return filepath.Join(f.stage(), fmt.Sprint(f.count.Add(1)))
}

// take moves a tree out of sight.
func (f *Folder) take(p string) error {
	err := os.Rename(filepath.Join(f.dir, p), f.next())
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		delete(f.have, p)
		return nil
	}
	return err
}

// put makes the trees that are not there as they should be.
func (f *Folder) put(trees []Tree) error {
	var mu sync.Mutex // of errs and have
	var errs []error
	var wg sync.WaitGroup
	work := make(chan Tree)
	for range linkers {
		wg.Go(func() {
			for t := range work {
				err := f.place(t)
				mu.Lock()
				if err != nil {
					errs = append(errs, err)
				} else {
					f.have[t.Path] = f.copies.key(f.tenant, t)
				}
				mu.Unlock()
			}
		})
	}
	for _, t := range trees {
		mu.Lock()
		key, ok := f.have[t.Path]
		mu.Unlock()
		t.doubtful = ok && key == unknown
		if !ok || key != f.copies.key(f.tenant, t) {
			work <- t
		}
	}
	close(work)
	wg.Wait()
	return errors.Join(errs...)
}

// place makes one tree aside and moves it to where it belongs, exchanged with an existing one.
func (f *Folder) place(t Tree) error {
	t, err := f.copies.of(f.tenant, t)
	if err != nil {
		return err
	}
	aside, target := f.next(), filepath.Join(f.dir, filepath.FromSlash(t.Path))
	if t.doubtful && t.isAt(target) {
		return nil
	}
	if err := t.link(aside); err != nil {
		return err
	}
	err = rename.NoReplace(aside, target)
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	return rename.Exchange(aside, target)
}

// empty removes what was moved out of sight. What a program in the sandbox has open stays readable.
func (f *Folder) empty() error {
	entries, err := os.ReadDir(f.stage())
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		errs = append(errs, os.RemoveAll(filepath.Join(f.stage(), e.Name())))
	}
	return errors.Join(errs...)
}

// Close waits for a Show that goes on; none comes after it. The folder stays on disk.
func (f *Folder) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gone = true
}

// link makes a folder with hard links to the tree's files.
func (t Tree) link(to string) error {
	files := t.files
	if files == nil {
		var err error
		if files, err = treeFiles(t.Dir); err != nil {
			return err
		}
	}
	from, err := unix.Open(t.Dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer unix.Close(from) //nolint:errcheck // nothing is written through it
	if err := unix.Mkdir(to, 0o755); err != nil {
		return err
	}
	made := map[string]bool{".": true}
	for _, f := range files {
		if t.hides(f.Path) {
			continue
		}
		if err := folderFor(to, path.Dir(f.Path), made); err != nil {
			return err
		}
		if err := linkFile(from, t.Dir, to, f); err != nil {
			return fmt.Errorf("%s: %w", f.Path, err)
		}
	}
	return nil
}

// isAt says whether a folder holds links to the files of the tree, and no other files. A copy counts as another
// file.
func (t Tree) isAt(target string) bool {
	files := t.files
	if files == nil {
		var err error
		if files, err = treeFiles(t.Dir); err != nil {
			return false
		}
	}
	want := map[string]bool{}
	for _, f := range files {
		if !t.hides(f.Path) {
			want[f.Path] = true
		}
	}
	err := filepath.WalkDir(target, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(target, p)
		if err != nil {
			return err
		}
		here, e1 := os.Lstat(p)
		there, e2 := os.Lstat(filepath.Join(t.Dir, rel))
		if !want[filepath.ToSlash(rel)] || e1 != nil || e2 != nil || !os.SameFile(here, there) {
			return errOther
		}
		delete(want, filepath.ToSlash(rel))
		return nil
	})
	return err == nil && len(want) == 0
}

var errOther = errors.New("another file")

func (t Tree) hides(p string) bool {
	return slices.ContainsFunc(t.Without, func(w string) bool { return p == w || strings.HasPrefix(p, w+"/") })
}

func folderFor(to, dir string, made map[string]bool) error {
	if made[dir] {
		return nil
	}
	if err := folderFor(to, path.Dir(dir), made); err != nil {
		return err
	}
	made[dir] = true
	return unix.Mkdir(filepath.Join(to, dir), 0o755)
}

// linkFile links one file, or copies it where a link cannot be: to another file system, or to a file that has as
// many as the file system allows.
func linkFile(from int, dir, to string, f format.File) error {
	target := filepath.Join(to, f.Path)
	err := unix.Linkat(from, f.Path, unix.AT_FDCWD, target, 0)
	if !errors.Is(err, unix.EXDEV) && !errors.Is(err, unix.EMLINK) {
		return err
	}
	return copyOver(dir, target, f)
}

func copyOver(dir, target string, f format.File) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // it was read
	in, err := root.Open(f.Path)
	if err != nil {
		return err
	}
	defer in.Close() //nolint:errcheck // it was read
	mode := sandbox.SkillFileMode(f.Exec)
	out, err := os.OpenFile(target, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Chmod(mode), out.Close())
}

// maxTreeFiles bounds what is linked of a plugin.
const maxTreeFiles = 20_000

// treeFiles lists the regular files below a folder.
func treeFiles(dir string) ([]format.File, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close() //nolint:errcheck // it was read
	files := []format.File{}
	err = fs.WalkDir(root.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		if len(files) == maxTreeFiles {
			return fmt.Errorf("more than %d files", maxTreeFiles)
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		files = append(files, format.File{SkillFile: sandbox.SkillFile{Path: p, Bytes: info.Size()}, Exec: info.Mode()&0o111 != 0})
		return nil
	})
	return files, err
}
