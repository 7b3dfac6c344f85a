package nest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/sidecar/pod"
)

// Names in the private folder.
const (
	OrderFile   = "order.json"
	DaemonFile  = "skerry-sandboxd"
	BridgeFile  = "skerry-bridge"
	CertsFolder = "certs"
	SocketFile  = "bridge.sock" // where the sidecar listens
	runFolder   = "run"         // the sockets of the sandbox
	treesFolder = "trees"
	rootFolder  = "root" // where the sandbox's root is made
	etcFolder   = "etc"
)

// maxOrder bounds an order: the system call filter in its command line has a few kilobytes.
const maxOrder = 1 << 20

// Order says what sandbox to start.
type Order struct {
	// UID is the uid and the gid of the sandbox, as it sees itself. Outside it is the user who starts it.
	UID int `json:"uid"`
	// Argv is the command line of the first process. It begins with sandbox.DaemonPath.
	Argv []string `json:"argv"`
	// Tmpfs are its file systems in memory.
	Tmpfs []Tmpfs `json:"tmpfs"`
	// Etc are the files that take the place of those of the machine in /etc.
	Etc map[string]string `json:"etc"`
}

// Tmpfs is a file system in memory.
type Tmpfs struct {
	Target  string `json:"target"`
	Options string `json:"options"`
}

// Read reads the order of a private folder.
func Read(dir string) (Order, error) {
	var o Order
	info, err := os.Stat(filepath.Join(dir, OrderFile))
	if err != nil {
		return o, err
	}
	if info.Size() > maxOrder {
		return o, fmt.Errorf("%s has %d bytes, at most %d", OrderFile, info.Size(), maxOrder)
	}
	text, err := os.ReadFile(filepath.Join(dir, OrderFile))
	if err == nil {
		err = json.Unmarshal(text, &o)
	}
	switch {
	case err != nil:
		return o, fmt.Errorf("%s: %w", OrderFile, err)
	case o.UID < 1 || len(o.Argv) == 0 || o.Argv[0] != sandbox.DaemonPath:
		return o, fmt.Errorf("%s: want a uid above 0, and a command line of %s", OrderFile, sandbox.DaemonPath)
	}
	return o, nil
}

// Mounts are the trees of every sandbox, below a private folder.
func Mounts(dir string) []pod.Mount {
	at := func(target string, writable bool) pod.Mount {
		return pod.Mount{Target: target, Folder: filepath.Join(dir, treesFolder, filepath.Base(target)), Writable: writable}
	}
	return []pod.Mount{at(sandbox.UserDataDir, true), at(sandbox.SkillsDir, false), at(sandbox.PluginsDir, false), at(sandbox.CodeAPIDir, false)}
}

// Run is the folder of the sockets below a private one.
func Run(dir string) string { return filepath.Join(dir, runFolder) }

// prepare makes the folders of a sandbox, and its files of /etc.
func prepare(dir string, o Order) error {
	for _, name := range []string{runFolder, treesFolder, rootFolder, etcFolder} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil { //nolint:gosec // its parent is closed
			return err
		}
	}
	for name, text := range o.Etc {
		if name != filepath.Base(name) {
			return fmt.Errorf("%.80q is no name of a file in /etc", name)
		}
		if err := os.WriteFile(filepath.Join(dir, etcFolder, name), []byte(text), 0o644); err != nil { //nolint:gosec // as above
			return err
		}
	}
	return pod.MakeFolders(Mounts(dir))
}
