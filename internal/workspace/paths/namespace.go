package paths

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sort"
	"sync"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Mount shows the host folder Host at the virtual path Virtual, which is one of /mnt/user-data,
// /mnt/skills, /mnt/plugins and /mnt/code-api, or lies in one. A later mount may lie inside an
// earlier one. A host folder that does not exist, or is "", is an empty folder.
//
// Only /mnt/user-data can be Writable. That means its workspace, uploads and outputs, each of which
// is a folder of Host: the top itself never changes.
type Mount struct {
	Virtual  string
	Host     string
	Writable bool
}

// namespace is what virtual paths mean on the host: the mounts of one thread, and the folders that exist only
// because of them. It creates nothing itself: how.parents does.
type namespace struct {
	mounts map[string]*mount   // by virtual path
	inner  map[string][]string // names that mounts make in a folder, by its virtual path
	mask   *masker
}

// mount is one Mount, opened when it is first needed.
type mount struct {
	virtual  string
	host     string
	writable bool
	data     bool   // one of fixedDirs: Usage and Snapshot are about these
	parent   *mount // for a folder inside another mount's host folder: opened relative to it
	name     string // in parent

	once sync.Once
	root *os.Root // nil when the host folder does not exist
	err  error
}

// fixedDirs are the entries of /mnt/user-data.
var fixedDirs = []string{"workspace", "uploads", "outputs"}

func newNamespace(mounts []Mount) (*namespace, error) {
	n := &namespace{mounts: map[string]*mount{}, inner: map[string][]string{}}
	for _, m := range mounts {
		clean, err := Clean(m.Virtual)
		if err != nil {
			return nil, err
		}
		if err := n.add(clean, m); err != nil {
			return nil, err
		}
	}
	n.linkInner()
	n.mask = newMasker(n.mounts)
	return n, nil
}

// add adds a Mount at a clean virtual path, and opens nothing.
func (n *namespace) add(clean string, m Mount) error {
	if m.Host != "" && !filepath.IsAbs(m.Host) {
		return sandbox.Errorf(sandbox.Invalid, "mount %s: the host folder is not absolute", clean)
	}
	if m.Writable && clean != sandbox.UserDataDir {
		return sandbox.Errorf(sandbox.Invalid, "mount %s: only %s can be writable", clean, sandbox.UserDataDir)
	}
	top := &mount{virtual: clean}
	if m.Host != "" {
		top.host = filepath.Clean(m.Host)
	}
	n.mounts[clean] = top
	if clean != sandbox.UserDataDir || m.Host == "" {
		return nil
	}
	for _, name := range fixedDirs {
		v := path.Join(clean, name)
		n.mounts[v] = &mount{virtual: v, host: filepath.Join(top.host, name), writable: m.Writable, data: true, parent: top, name: name}
	}
	return nil
}

// linkInner notes the names of inner mounts and roots. It does so for every folder that exists only because
// a mount or root lies in it, and for every mount with another one inside.
func (n *namespace) linkInner() {
	seen := map[string]bool{}
	add := func(v string) {
		for v != "/" && !seen[v] {
			seen[v] = true
			dir := path.Dir(v)
			n.inner[dir] = append(n.inner[dir], path.Base(v))
			v = dir
		}
	}
	for _, r := range roots {
		add(r)
		if n.inner[r] == nil {
			n.inner[r] = []string{} // a root is there also when nothing is mounted
		}
	}
	for v := range n.mounts {
		add(v)
	}
	for _, names := range n.inner {
		sort.Strings(names)
	}
}

// close closes all open folders.
func (n *namespace) close() error {
	var errs []error
	for _, m := range n.mounts {
		m.once.Do(func() { m.err = fs.ErrClosed })
		if m.root != nil {
			errs = append(errs, m.root.Close())
		}
	}
	return errors.Join(errs...)
}

// open returns the mount's folder, or nil when the host has none.
func (m *mount) open() (*os.Root, error) {
	m.once.Do(func() {
		if m.host == "" {
			return
		}
		if m.parent == nil {
			m.root, m.err = os.OpenRoot(m.host)
		} else if up, err := m.parent.open(); err != nil || up == nil {
			m.err = err
		} else {
			m.root, m.err = openDir(up, m.name)
		}
		if errors.Is(m.err, fs.ErrNotExist) {
			m.err = nil
		}
		if m.err != nil {
			m.root = nil
		}
	})
	if m.err != nil {
		return nil, fail(m.err, m.virtual)
	}
	return m.root, nil
}

// openDir opens a folder by one name. The "/." makes os.Root open it with O_DIRECTORY: without, it
// would wait forever on a FIFO that was swapped in.
func openDir(parent *os.Root, name string) (*os.Root, error) {
	if name == "." {
		return parent.OpenRoot(".")
	}
	return parent.OpenRoot(name + "/.")
}
