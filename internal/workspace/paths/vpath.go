package paths

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strings"
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

// Options say what New shows.
type Options struct {
	Mounts []Mount
	// UID owns (as user and as group) what is made in writable mounts. 0 or less: no change of
	// owner, for a server that does not run as root.
	UID int
	// Hold calls a function that makes or writes a file so that the kernel's limits hold it, although
	// the server is root. nil: it is called as it is.
	Hold func(write func() error) error
	// Body is given what a Write reads from a sender that may be slow, before anything else is done, and returns what is
	// read instead. nil: that itself is read.
	Body func(r io.Reader) (*os.File, error)
	// Spool is the host folder where an archive is kept until all of it is checked, unless Body keeps it. "": that of the system.
	Spool string
	// Changing is told of each path, free of symbolic links, that is about to be made, replaced or removed: what is
	// below it, too. nil: none is.
	Changing func(path string)
	// DiskBytes is the most that workspace, uploads and outputs together may hold after a write. 0: no
	// limit.
	DiskBytes int64
}

// FS is a view of one thread's files. It may be used by many goroutines at once, and holds open
// folders until Close.
type FS struct {
	opts   Options
	mounts map[string]*mount // by virtual path
	inner  map[string][]string
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

// New makes a view. It opens nothing yet: a host folder that cannot be opened fails the call that
// needs it. An error means that a Mount is wrong.
func New(o Options) (*FS, error) {
	f := &FS{opts: o, mounts: map[string]*mount{}, inner: map[string][]string{}}
	for _, m := range o.Mounts {
		clean, err := Clean(m.Virtual)
		if err != nil {
			return nil, err
		}
		if err := f.mount(clean, m); err != nil {
			return nil, err
		}
	}
	f.linkInner()
	f.mask = newMasker(f.mounts)
	return f, nil
}

func (f *FS) mount(clean string, m Mount) error {
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
	f.mounts[clean] = top
	if clean != sandbox.UserDataDir || m.Host == "" {
		return nil
	}
	for _, name := range fixedDirs {
		v := path.Join(clean, name)
		f.mounts[v] = &mount{virtual: v, host: filepath.Join(top.host, name), writable: m.Writable, data: true, parent: top, name: name}
	}
	return nil
}

// linkInner notes for every folder that exists only because a mount or root lies in it, and for
// every mount with another one inside, the names of those.
func (f *FS) linkInner() {
	seen := map[string]bool{}
	add := func(v string) {
		for v != "/" && !seen[v] {
			seen[v] = true
			dir := path.Dir(v)
			f.inner[dir] = append(f.inner[dir], path.Base(v))
			v = dir
		}
	}
	for _, r := range roots {
		add(r)
		if f.inner[r] == nil {
			f.inner[r] = []string{} // a root is there also when nothing is mounted
		}
	}
	for v := range f.mounts {
		add(v)
	}
	for _, names := range f.inner {
		sort.Strings(names)
	}
}

func (f *FS) changing(path string) {
	if f.opts.Changing != nil {
		f.opts.Changing(path)
	}
}

// Close closes all open folders. Files from Open stay usable.
func (f *FS) Close() error {
	var errs []error
	for _, m := range f.mounts {
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

// MaskHostPaths puts virtual paths in the place of the host folders of this view.
func (f *FS) MaskHostPaths(text string) string { return f.mask.replace(text) }

type masker struct{ from, to []string }

func newMasker(mounts map[string]*mount) *masker {
	all := make([]*mount, 0, len(mounts))
	for _, m := range mounts {
		if m.host != "/" && m.host != "" {
			all = append(all, m)
		}
	}
	// The longest first: a mount may lie inside another one.
	sort.Slice(all, func(i, j int) bool {
		if len(all[i].host) != len(all[j].host) {
			return len(all[i].host) > len(all[j].host)
		}
		return all[i].virtual < all[j].virtual
	})
	k := &masker{}
	for _, m := range all {
		k.from = append(k.from, m.host)
		k.to = append(k.to, m.virtual)
	}
	return k
}

func (k *masker) replace(text string) string {
	for i, from := range k.from {
		if strings.Contains(text, from) {
			text = replacePath(text, from, k.to[i])
		}
	}
	return text
}

// replacePath replaces from where it is a whole path or the beginning of one, so that /data/ab
// stays when /data/a is replaced.
func replacePath(text, from, to string) string {
	var b strings.Builder
	for {
		i := strings.Index(text, from)
		if i < 0 {
			b.WriteString(text)
			return b.String()
		}
		end := i + len(from)
		b.WriteString(text[:i])
		if end < len(text) && nameByte(text[end]) {
			b.WriteString(from)
		} else {
			b.WriteString(to)
		}
		text = text[end:]
	}
}

func nameByte(c byte) bool {
	return c == '_' || c == '-' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}
