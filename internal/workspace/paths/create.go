package paths

import (
	"cmp"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// creator makes files and folders that belong to the thread's user, within the limits of the kernel. It works
// in open folders, and looks up no path.
type creator struct {
	uid  int                      // Options.UID
	hold func(func() error) error // Options.Hold
}

// limited calls do so that the kernel's limits hold what it writes.
func (c *creator) limited(do func() error) error {
	if c.hold == nil {
		return do()
	}
	return c.hold(do)
}

// file makes a new file that belongs to the thread's user from the beginning. So each block of it counts for
// the thread when it is written.
func (c *creator) file(dir *os.Root, name string) (file *os.File, err error) {
	err = c.limited(func() error {
		if file, err = dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
			return err
		}
		if err = c.chown(file); err != nil {
			_ = file.Close()
			_ = dir.Remove(name)
		}
		return err
	})
	return file, err
}

// writer returns a writer to the file that the kernel's limits hold.
func (c *creator) writer(file *os.File) io.Writer {
	if c.hold == nil {
		return file
	}
	return heldWriter{file: file, hold: c.hold}
}

type heldWriter struct {
	file *os.File
	hold func(func() error) error
}

func (w heldWriter) Write(p []byte) (n int, err error) {
	err = w.hold(func() error {
		n, err = w.file.Write(p)
		return err
	})
	return n, err
}

// chown makes the thread's user the owner of a file or folder that this process has just made. It works on
// the descriptor, and leaves alone what is not ours: what was swapped in belongs to the thread, or
// is none of our business.
func (c *creator) chown(file *os.File) error {
	if c.uid <= 0 {
		return nil
	}
	info, err := file.Stat()
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || int(st.Uid) != os.Geteuid() {
		return nil
	}
	if info.Mode().IsRegular() && st.Nlink > 1 {
		return sandbox.Errorf(sandbox.Conflict, "the file was linked while it was written")
	}
	return file.Chown(c.uid, c.uid)
}

// mkdir makes one folder that belongs to the thread's user. A folder that is there already stays as
// it is.
func (c *creator) mkdir(dir *os.Root, name string) error {
	return c.limited(func() error { return c.mkdirOwned(dir, name) })
}

func (c *creator) mkdirOwned(dir *os.Root, name string) error {
	if err := dir.Mkdir(name, 0o755); err != nil {
		if os.IsExist(err) {
			return nil
		}
		return err
	}
	made, err := dir.OpenFile(name+"/.", os.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer made.Close() //nolint:errcheck // read-only
	if err := c.chown(made); err != nil {
		_ = dir.Remove(name) // only when it is empty
		return err
	}
	return nil
}

// replace writes a new file in the stage and renames it over the place. The file gets the mode of the file
// that was there, or else mode, and is described as the caller says. tag is the new file's ETag.
func (c *creator) replace(p *place, body io.Reader, mode os.FileMode, described map[string]string) (n int64, tag string, err error) {
	stage, err := p.m.stage()
	if err != nil {
		return 0, "", fail(err, p.virtual)
	}
	defer stage.Close() //nolint:errcheck // read-only
	temp := rand.Text()
	file, err := c.file(stage, temp)
	if err != nil {
		return 0, "", fail(err, p.virtual)
	}
	defer func() {
		if err != nil {
			_ = file.Close()
			_ = stage.Remove(temp)
			err = fail(err, p.virtual)
		}
	}()
	if n, err = io.Copy(c.writer(file), body); err != nil {
		return 0, "", err
	}
	if p.info != nil {
		mode = p.info.Mode().Perm()
	}
	err = cmp.Or(file.Chmod(mode), describe(file, described))
	made, serr := file.Stat()
	if err = cmp.Or(err, serr, file.Close()); err != nil {
		return 0, "", err
	}
	if err = inFolders(stage, p.dir, func(from, to int) error { return unix.Renameat(from, temp, to, p.base) }); err != nil {
		return 0, "", err
	}
	return n, p.tagOf(made), nil
}

// stage opens the folder where files of a writable mount are made before they take their place.
func (m *mount) stage() (*os.Root, error) {
	top, err := m.parent.open()
	if err == nil && top == nil {
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, err
	}
	if err := top.Mkdir(StageDir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return openDir(top, StageDir)
}

// inFolders calls rename with descriptors of two folders, which may be of different roots.
func inFolders(from, to *os.Root, rename func(from, to int) error) error {
	a, err := from.Open(".")
	if err != nil {
		return err
	}
	defer a.Close() //nolint:errcheck // read-only
	b, err := to.Open(".")
	if err != nil {
		return err
	}
	defer b.Close() //nolint:errcheck // read-only
	return rename(int(a.Fd()), int(b.Fd()))
}

// add writes to the end of a file that is there.
func (c *creator) add(p *place, body io.Reader) (Written, error) {
	file, info, err := p.open(os.O_WRONLY | os.O_APPEND)
	if err != nil {
		return Written{}, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if ok && c.uid > 0 && int(st.Uid) != c.uid {
		_ = file.Close()
		return Written{}, sandbox.Errorf(sandbox.Forbidden, "%s: permission denied", p.virtual)
	}
	n, err := io.Copy(c.writer(file), body)
	if err != nil {
		_ = file.Truncate(info.Size()) // best effort: the error tells that the write failed
	}
	now, serr := file.Stat()
	if err = cmp.Or(err, serr, file.Close()); err != nil {
		return Written{}, fail(err, p.virtual)
	}
	return Written{Path: p.virtual, Bytes: info.Size() + n, Added: n, ETag: etag(now)}, nil
}
