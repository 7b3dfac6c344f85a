package nest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/sidecar/pod"
)

// hidden are the folders of the machine's root of which the sandbox sees nothing. What has files of the machine's user
// is among them, and what has sockets of its services.
var hidden = []string{"/home", "/mnt", "/run", "/tmp", "/root", "/srv", "/media", "/boot", "/lost+found"}

// rootOptions are those of the root itself: it holds folders and links, and is read-only in the end.
const rootOptions = "size=4m,nr_inodes=16k,mode=0755"

// root is the new root of a sandbox while it is made.
type root struct {
	dir string // the private folder
	at  string // where the root is
}

// makeRoot makes the root of the sandbox and changes to it: the machine's own programs, read-only, and the mounts.
func makeRoot(dir string, o Order) error {
	r := root{dir: dir, at: filepath.Join(dir, rootFolder)}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("mounts: %w", err)
	}
	if err := unix.Mount("tmpfs", r.at, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, rootOptions); err != nil {
		return fmt.Errorf("root: %w", err)
	}
	for _, step := range []func(Order) error{r.machine, r.daemon, r.trees, r.tmpfs, r.etc} {
		if err := step(o); err != nil {
			return err
		}
	}
	if err := r.readOnly(""); err != nil {
		return err
	}
	return r.enter()
}

// machine shows what the machine has, but for what is hidden and where something of the sandbox's own comes.
func (r root) machine(Order) error {
	for _, dir := range []string{"/", filepath.Dir(filepath.Dir(sandbox.DaemonPath))} {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := os.MkdirAll(filepath.Join(r.at, dir), 0o755); err != nil {
			return err
		}
		for _, e := range entries {
			if err := r.show(filepath.Join(dir, e.Name()), e); err != nil {
				return err
			}
		}
	}
	return nil
}

// show shows one entry at its own path.
func (r root) show(path string, e fs.DirEntry) error {
	own := func(p string) bool { return p == path || strings.HasPrefix(p, path+"/") }
	if slices.Contains(hidden, path) || own(sandbox.DaemonPath) || own(r.dir) {
		return nil // a folder of which a part is the sandbox's own is made by what makes that
	}
	switch {
	case e.Type()&fs.ModeSymlink != 0:
		to, err := os.Readlink(path)
		if err != nil {
			return err
		}
		return os.Symlink(to, filepath.Join(r.at, path))
	case e.IsDir():
		if err := os.MkdirAll(filepath.Join(r.at, path), 0o755); err != nil {
			return err
		}
		return r.bind(path, path, false)
	}
	return nil
}

// bind mounts what is at from at a path of the root that is there.
func (r root) bind(from, to string, readOnly bool) error {
	if err := unix.Mount(from, filepath.Join(r.at, to), "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("mount %s: %w", to, err)
	}
	if !readOnly {
		return nil
	}
	return r.readOnly(to)
}

// readOnly makes a mount read-only. Flags that the mount has already it keeps: a user namespace may not take them away.
func (r root) readOnly(at string) error {
	path := filepath.Join(r.at, at)
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return err
	}
	flags := uintptr(unix.MS_REMOUNT | unix.MS_BIND | unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV)
	for have, flag := range map[int64]uintptr{
		unix.ST_NOEXEC: unix.MS_NOEXEC, unix.ST_NOATIME: unix.MS_NOATIME, unix.ST_NODIRATIME: unix.MS_NODIRATIME, unix.ST_RELATIME: unix.MS_RELATIME,
	} {
		if st.Flags&have != 0 {
			flags |= flag
		}
	}
	if err := unix.Mount("", path, "", flags, ""); err != nil {
		return fmt.Errorf("mount /%s read-only: %w", strings.TrimPrefix(at, "/"), err)
	}
	return nil
}

// file makes an empty file to mount one at.
func (r root) file(path string) error {
	if err := os.MkdirAll(filepath.Dir(filepath.Join(r.at, path)), 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.at, path), nil, 0o644)
}

// daemon shows the first program of the sandbox.
func (r root) daemon(Order) error {
	if err := r.file(sandbox.DaemonPath); err != nil {
		return err
	}
	return r.bind(filepath.Join(r.dir, DaemonFile), sandbox.DaemonPath, true)
}

// trees shows the mounts and the sockets. Of the thread's files each folder is a mount, so that nothing is made beside them.
func (r root) trees(Order) error {
	show := func(from, to string, readOnly bool) error {
		if err := os.MkdirAll(filepath.Join(r.at, to), 0o755); err != nil {
			return err
		}
		return r.bind(from, to, readOnly)
	}
	for _, m := range Mounts(r.dir) {
		names := pod.Only(m.Target)
		if names == nil {
			names = []string{""}
		}
		for _, name := range names {
			if err := show(filepath.Join(m.Folder, name), filepath.Join(m.Target, name), !m.Writable); err != nil {
				return err
			}
		}
	}
	return show(Run(r.dir), sandbox.RunDir, true)
}

func (r root) tmpfs(o Order) error {
	for _, t := range o.Tmpfs {
		path := filepath.Join(r.at, t.Target)
		if err := os.MkdirAll(path, 0o755); err != nil {
			return err
		}
		if err := unix.Mount("tmpfs", path, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, t.Options); err != nil {
			return fmt.Errorf("tmpfs at %s: %w", t.Target, err)
		}
	}
	return nil
}

// etc puts files in the place of those of the machine. What the machine does not have cannot be mounted over.
func (r root) etc(o Order) error {
	for name := range o.Etc {
		path := filepath.Join("/etc", name)
		if info, err := os.Lstat(filepath.Join(r.at, path)); err != nil || !info.Mode().IsRegular() {
			continue
		}
		if err := r.bind(filepath.Join(r.dir, etcFolder, name), path, true); err != nil {
			return err
		}
	}
	return nil
}

// enter changes to the new root, and lets go of the old one.
func (r root) enter() error {
	if err := unix.Chdir(r.at); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot_root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("the machine's root: %w", err)
	}
	return unix.Chdir("/")
}
