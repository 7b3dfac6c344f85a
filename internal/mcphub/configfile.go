package mcphub

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// configFile follows extensions_config.json. A look costs one stat while the file stays as it is.
type configFile struct {
	path string
	log  *slog.Logger

	mu     sync.Mutex
	seen   stamp
	racy   bool // the file was written so shortly before it was read that its stamp proves little
	text   []byte
	config *config // the last one that was good
	err    error   // why the file as it is now is not in force
}

// stamp changes when a file does.
type stamp struct {
	exists  bool
	inode   uint64
	size    int64
	changed time.Time
}

// racyTime is the resolution of a file's times that is surely not exceeded.
const racyTime = 50 * time.Millisecond

// check looks at the file. changed says that the configuration is another one than at the last look.
func (f *configFile) check(now time.Time) (cfg *config, changed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.config == nil {
		f.config = noServers
	} else if s, err := stat(f.path); err == nil && s == f.seen && !f.racy {
		return f.config, false
	}
	return f.read(now)
}

func (f *configFile) read(now time.Time) (cfg *config, changed bool) {
	before := f.err
	s, text, err := readStamped(f.path)
	f.seen, f.racy = s, now.Sub(s.changed) < racyTime
	if err == nil && f.err == nil && bytes.Equal(text, f.text) {
		return f.config, false
	}
	var parsed *config
	if err == nil {
		parsed, err = parseConfig(text)
	}
	if err != nil {
		f.err = sandbox.Wrap(sandbox.Invalid, err, "%s: %s", filepath.Base(f.path), reason(err))
		if before == nil || before.Error() != f.err.Error() {
			f.log.Error("MCP servers: the configuration is broken; the last good one stays in force", "file", f.path, "error", err)
		}
		return f.config, false
	}
	f.err, f.text, f.config = nil, text, parsed
	for _, s := range parsed.servers {
		if s.err != nil {
			f.log.Warn("MCP server: wrong configuration", "server", s.name, "error", s.err)
		}
	}
	return parsed, true
}

// reason is err without host paths.
func reason(err error) string {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err.Error()
	}
	return err.Error()
}

func (f *configFile) problem() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// stat gives the stamp of a file, the zero stamp for one that is not there.
func stat(path string) (stamp, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return stamp{}, nil
	}
	if err != nil {
		return stamp{}, err
	}
	return stampOf(info), nil
}

func stampOf(info fs.FileInfo) stamp {
	s := stamp{exists: true, size: info.Size(), changed: info.ModTime()}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		s.inode = sys.Ino
		s.changed = time.Unix(sys.Ctim.Unix())
	}
	return s
}

// readStamped reads a file and its stamp, which is taken first: a change in between is seen next time.
func readStamped(path string) (stamp, []byte, error) {
	// Non-blocking: a FIFO in its place must not stop the server.
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return stamp{}, nil, nil
	}
	if err != nil {
		s, _ := stat(path) // what cannot be opened can often still be seen to change
		return s, nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return stamp{}, nil, err
	}
	if !info.Mode().IsRegular() {
		return stampOf(info), nil, errors.New("not a regular file")
	}
	text, err := io.ReadAll(io.LimitReader(file, maxConfigBytes+1))
	return stampOf(info), text, err
}

// edit changes the file: change gets its text and gives the new one. The file is replaced as a whole or
// not at all. A file that is broken is not touched.
func (f *configFile) edit(change func(text []byte, cfg *config) ([]byte, error)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, text, err := readStamped(f.path)
	if err != nil {
		return sandbox.Wrap(sandbox.Unavailable, err, "%s cannot be read", filepath.Base(f.path))
	}
	cfg, err := parseConfig(text)
	if err != nil {
		return sandbox.Wrap(sandbox.Conflict, err, "%s is broken, mend it first: %s", filepath.Base(f.path), reason(err))
	}
	out, err := change(text, cfg)
	if err != nil {
		return err
	}
	if _, err := parseConfig(out); err != nil {
		return sandbox.Wrap(sandbox.Invalid, err, "the configuration would be wrong: %s", reason(err))
	}
	if err := replaceFile(f.path, out); err != nil {
		return sandbox.Wrap(sandbox.Unavailable, err, "%s cannot be written", filepath.Base(f.path))
	}
	return nil
}

// replaceFile writes a file anew, durably, with the owner and the mode of the one that it replaces.
func replaceFile(path string, text []byte) error {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	dir := filepath.Dir(path)
	temp, err := os.CreateTemp(dir, "."+filepath.Base(path)+".new-")
	if err != nil {
		return err
	}
	err = fillTemp(temp, path, text)
	if e := temp.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temp.Name()))
	}
	return syncDir(dir)
}

func fillTemp(temp *os.File, path string, text []byte) error {
	if info, err := os.Stat(path); err == nil {
		if err := temp.Chmod(info.Mode().Perm()); err != nil {
			return err
		}
		if sys, ok := info.Sys().(*syscall.Stat_t); ok && os.Geteuid() == 0 {
			if err := temp.Chown(int(sys.Uid), int(sys.Gid)); err != nil {
				return err
			}
		}
	}
	if _, err := temp.Write(text); err != nil {
		return err
	}
	return temp.Sync()
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := dir.Sync(); err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	return nil
}
