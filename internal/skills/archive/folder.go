package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Folder is a folder that is filled file by file under the rules that archives are unpacked by: what is not
// a ZIP archive, but a tar, a commit or a user's folder, is made one with it. It is for one goroutine.
type Folder struct {
	staged Staged
	root   *os.Root
	limits Limits
	names  *nameSet
	left   int64
}

// NewFolder makes an empty folder below parent, which must exist. Its owner calls Done or Remove.
func NewFolder(parent string, l Limits) (*Folder, error) {
	dir, err := os.MkdirTemp(parent, ".folder-")
	if err != nil {
		return nil, fmt.Errorf("folder: %w", err)
	}
	f := &Folder{staged: Staged{Dir: dir}, limits: l, names: newNameSet(), left: l.Bytes}
	err = os.Chmod(dir, 0o755) //nolint:gosec // any uid in a sandbox reads it
	if err == nil {
		f.root, err = os.OpenRoot(dir)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("folder: %w", err), os.RemoveAll(dir))
	}
	return f, nil
}

// Dir is the folder on the host.
func (f *Folder) Dir() string { return f.staged.Dir }

// Add writes a file, whose path has slashes. It is executable when exec says so or when it begins with #!. Errors are
// as those of Unpack; what reading answers comes back as it is.
func (f *Folder) Add(ctx context.Context, name string, exec bool, r io.Reader) error {
	clean, err := checkName(name, f.limits)
	if err != nil {
		return err
	}
	switch {
	case strings.HasSuffix(name, "/"):
		return refuse(PathForm, name, "is the name of a folder")
	case strings.Count(clean, "/") >= f.limits.Depth:
		return refuse(TooDeep, name, "is deeper than %d folders", f.limits.Depth)
	case f.staged.Files == f.limits.Files:
		return refuse(TooManyFiles, "", "has more than %d files", f.limits.Files)
	}
	if err := f.names.add(clean, false); err != nil {
		return err
	}
	if err := mkdirAll(f.root, path.Dir(clean)); err != nil {
		return err
	}
	out, err := f.root.OpenFile(clean, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("folder: %w", err)
	}
	exec, err = f.copy(ctx, out, r, name, exec)
	if e := errors.Join(out.Chmod(sandbox.SkillFileMode(exec)), out.Close()); err == nil && e != nil {
		err = fmt.Errorf("folder: %w", e)
	}
	f.staged.Files++
	return err
}

func (f *Folder) copy(ctx context.Context, out io.Writer, r io.Reader, name string, exec bool) (bool, error) {
	buf := make([]byte, 64<<10)
	for first := true; ; first = false {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		n, err := io.ReadFull(r, buf)
		if f.left -= int64(n); f.left < 0 {
			return false, refuse(TooManyBytes, name, "the files hold more than %d bytes together", f.limits.Bytes)
		}
		if first {
			if kind := machineCode(buf[:n]); kind != "" && !f.limits.Executables {
				return false, refuse(Executable, name, "is a program (%s)", kind)
			}
			exec = exec || n > 2 && buf[0] == '#' && buf[1] == '!'
		}
		if _, e := out.Write(buf[:n]); e != nil {
			return false, fmt.Errorf("folder: %w", e)
		}
		switch {
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			return exec, nil
		case err != nil:
			return false, err
		}
	}
}

// Done releases the folder.
func (f *Folder) Done() (*Staged, error) {
	f.staged.Bytes = f.limits.Bytes - f.left
	return &f.staged, f.root.Close()
}

// Remove deletes the folder. It does no harm after Done and a rename.
func (f *Folder) Remove() error { return errors.Join(f.root.Close(), os.RemoveAll(f.staged.Dir)) }
