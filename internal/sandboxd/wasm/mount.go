package wasm

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/experimental/sysfs"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// mountPoint is a folder that a module sees under the same path.
type mountPoint struct {
	Path     string
	ReadOnly bool
}

// threadFiles are the files of a thread. A folder that is not there is left out.
var threadFiles = []mountPoint{{Path: sandbox.UserDataDir}, {Path: sandbox.SkillsDir, ReadOnly: true}, {Path: sandbox.PluginsDir, ReadOnly: true}}

const (
	guestTemp = "/tmp"
	guestRoot = "/" // what relative paths of C and Rust are relative to
)

// files are the folders of one run.
type files struct {
	trees []*tree
	names []string // of each tree, for the module
	temp  string   // "" = none
}

// mount opens the folders of a module. The working folder is its root when it is in one of them; else it has no root. A
// new folder in temp is its /tmp: that of the sandbox has files of other execs.
func mount(mounts []mountPoint, cwd, temp string) (*files, error) {
	f := &files{}
	for _, m := range mounts {
		root, err := os.OpenRoot(m.Path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			f.close()
			return nil, fmt.Errorf("files: %w", err)
		}
		f.add(root, m.Path, m.ReadOnly)
		below, err := filepath.Rel(m.Path, cwd)
		if err != nil || below == ".." || strings.HasPrefix(below, "../") {
			continue
		}
		inside, err := root.OpenRoot(below)
		if err != nil {
			f.close()
			return nil, fmt.Errorf("the working folder: %w", err)
		}
		f.add(inside, guestRoot, m.ReadOnly)
	}
	if dir, err := os.MkdirTemp(temp, "wasm-"); err == nil { // a full /tmp is no reason not to run
		f.temp = dir
		root, err := os.OpenRoot(dir)
		if err != nil {
			f.close()
			return nil, fmt.Errorf("files: %w", err)
		}
		f.add(root, guestTemp, false)
	}
	return f, nil
}

func (f *files) add(root *os.Root, name string, readOnly bool) {
	f.trees, f.names = append(f.trees, &tree{root: root, readOnly: readOnly}), append(f.names, name)
}

func (f *files) config() wazero.FSConfig {
	config := wazero.NewFSConfig()
	for i, tree := range f.trees {
		config = config.(sysfs.FSConfig).WithSysFSMount(tree, f.names[i])
	}
	return config
}

func (f *files) close() {
	for _, tree := range f.trees {
		_ = tree.root.Close()
	}
	if f.temp != "" {
		_ = os.RemoveAll(f.temp)
	}
}
