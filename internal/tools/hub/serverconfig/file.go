package serverconfig

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/config/extensions"
	"github.com/skerry-sandbox/skerry/internal/platform/lockedfile"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// File follows extensions_config.json. A look costs one stat while the file stays as it is.
type File struct {
	path  string
	files *extensions.Files // writes it
	log   *slog.Logger

	mu     sync.Mutex
	seen   lockedfile.Stamp
	again  bool // the next look reads the file even if its stamp is the same
	text   []byte
	config *Set  // the last good one
	err    error // why the file as it is now is not in force
}

// writeTime is how long an empty file may be one that is being written: who writes in place empties it first, and may
// then wait for a core.
const writeTime = 2 * time.Second

// NewFile follows the file at a path, whose writer is files.
func NewFile(path string, files *extensions.Files, log *slog.Logger) *File {
	return &File{path: path, files: files, log: log}
}

// Check looks at the file. changed says that the configuration is another one than at the last look.
func (f *File) Check(now time.Time) (cfg *Set, changed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.config == nil {
		f.config = noServers
	} else if s, err := lockedfile.Stat(f.path); err == nil && s == f.seen && !f.again {
		return f.config, false
	}
	return f.read(now)
}

func (f *File) read(now time.Time) (cfg *Set, changed bool) {
	before := f.err
	s, text, err := lockedfile.Read(f.path, MaxBytes)
	f.seen, f.again = s, s.Racy(now)
	if err == nil && f.err == nil && bytes.Equal(text, f.text) {
		return f.config, false
	}
	if err == nil && s.ChangedWithin(writeTime, now) && len(bytes.TrimSpace(text)) == 0 && len(f.config.List) > 0 {
		f.again = true
		return f.config, false
	}
	var parsed *Set
	if err == nil {
		parsed, err = Parse(text)
	}
	if err != nil {
		f.err = sandbox.Wrap(sandbox.Invalid, err, "%s: %s", filepath.Base(f.path), reason(err))
		if before == nil || before.Error() != f.err.Error() {
			f.log.Error("MCP servers: the configuration is broken; the last good one stays in force", "file", f.path, "error", err)
		}
		return f.config, false
	}
	f.err, f.text, f.config = nil, text, parsed
	for _, s := range parsed.List {
		if s.Err != nil {
			f.log.Warn("MCP server: wrong configuration", "server", s.Name, "error", s.Err)
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

// Problem says why the file as it is now is not in force, or nil.
func (f *File) Problem() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// Edit changes the file: change gets its text and returns the new one. The file is replaced as a whole or
// not at all. A file that is broken is not touched.
func (f *File) Edit(ctx context.Context, change func(text []byte, cfg *Set) ([]byte, error)) error {
	name := filepath.Base(f.path)
	return f.files.Edit(ctx, sandbox.Owner{}, func(text []byte) ([]byte, error) {
		cfg, err := Parse(text)
		if err != nil {
			return nil, sandbox.Wrap(sandbox.Conflict, err, "%s is broken, mend it first: %s", name, reason(err))
		}
		out, err := change(text, cfg)
		if err != nil {
			return nil, err
		}
		if _, err := Parse(out); err != nil {
			return nil, sandbox.Wrap(sandbox.Invalid, err, "the configuration would be wrong: %s", reason(err))
		}
		return out, nil
	})
}
