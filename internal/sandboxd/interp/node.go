package interp

import (
	"fmt"
	"os"
	"sync"
	"time"
)

// version of node: major and minor.
type version struct{ major, minor int }

func (v version) String() string { return fmt.Sprintf("%d.%d", v.major, v.minor) }

// stripsTypes: with a flag at first, by itself later.
func (v version) stripsTypes() bool { return v.major > 22 || v.major == 22 && v.minor >= 6 }

// needsFlag, of a version that strips types.
func (v version) needsFlag() bool {
	return v.major == 22 && v.minor < 18 || v.major == 23 && v.minor < 6
}

// stripsByCall: module.stripTypeScriptTypes is there.
func (v version) stripsByCall() bool {
	return v.major > 23 || v.major == 23 && v.minor >= 2 || v.major == 22 && v.minor >= 13
}

// nodeVersions remembers what a node said of itself, as long as its file does not change.
type nodeVersions struct {
	mu       sync.Mutex
	path     string
	modified time.Time
	known    version
}

func (n *nodeVersions) version(path string, ask func(string) (string, error)) (version, error) {
	info, err := os.Stat(path)
	if err != nil {
		return version{}, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.path == path && n.modified.Equal(info.ModTime()) {
		return n.known, nil
	}
	out, err := ask(path)
	if err != nil {
		return version{}, err
	}
	var v version
	if _, err := fmt.Sscanf(out, "v%d.%d.", &v.major, &v.minor); err != nil {
		return version{}, fmt.Errorf("node says %.40q: %w", out, err)
	}
	n.path, n.modified, n.known = path, info.ModTime(), v
	return v, nil
}
