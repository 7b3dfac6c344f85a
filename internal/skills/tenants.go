package skills

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/skerry-sandbox/skerry/internal/platform/rename"
)

// storeTenant is the tenant whose sandboxes have the files of the store themselves. It is that of a server without
// tenants, and of sandboxes that no thread has yet.
const storeTenant = "default"

// tenantCopies are the files of skills and plugins once more for each other tenant. Hard links share an inode, and code
// sees by inotify who opens it, and by flock who locks it: links of two tenants must not lead to the same one.
type tenantCopies struct {
	dir string // <boot>/<tenant>/<tree>: after a crash of the machine, files may be half written
}

const (
	// copiesDir is below the folder of views.
	copiesDir = "tenants"
	// copyAge is how long a copy stays that is not used.
	copyAge = 7 * 24 * time.Hour
	// usedEvery is how exactly the time of the last use is known.
	usedEvery = time.Hour
)

// openTenantCopies returns those of this boot of the machine, below dir, and removes old ones.
func openTenantCopies(dir string) (*tenantCopies, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return nil, err
	}
	c := &tenantCopies{dir: filepath.Join(dir, copiesDir, strings.TrimSpace(string(boot)))}
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return nil, err
	}
	return c, c.sweep(time.Now())
}

// sweep removes copies of former boots, and those that were not used for long. A server that uses one at this moment
// makes it again.
func (c *tenantCopies) sweep(now time.Time) error {
	boots, err := os.ReadDir(filepath.Dir(c.dir))
	errs := []error{err}
	for _, b := range boots {
		if b.Name() != filepath.Base(c.dir) {
			errs = append(errs, os.RemoveAll(filepath.Join(filepath.Dir(c.dir), b.Name())))
		}
	}
	old, err := filepath.Glob(filepath.Join(c.dir, "*", "*"))
	errs = append(errs, err)
	for _, p := range old {
		if info, err := os.Stat(p); err == nil && now.Sub(info.ModTime()) > copyAge {
			errs = append(errs, os.RemoveAll(p))
		}
	}
	return errors.Join(errs...)
}

// isStores reports whether a tenant has the files of the store themselves.
func (c *tenantCopies) isStores(tenant string) bool {
	return c == nil || tenant == "" || tenant == storeTenant
}

// key names the contents of a tree for a tenant: its inodes are other ones for each.
func (c *tenantCopies) key(tenant string, t Tree) string {
	if c.isStores(tenant) {
		return t.Key
	}
	return tenant + " " + t.Key
}

// of returns a tree whose files are the tenant's own. It copies them when they are not there.
func (c *tenantCopies) of(tenant string, t Tree) (Tree, error) {
	if c.isStores(tenant) {
		return t, nil
	}
	dir := filepath.Join(c.dir, hashOf(tenant), hashOf(t.Key+"\x00"+t.Dir))
	now := time.Now()
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = copyTree(t, dir)
	case err == nil && now.Sub(info.ModTime()) > usedEvery:
		err = os.Chtimes(dir, now, now)
	}
	if err != nil {
		return t, fmt.Errorf("the tenant's copy of %s: %w", t.Path, err)
	}
	t.Dir = dir
	return t, nil
}

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}

// copyTree copies the files of a tree into a folder that appears whole.
func copyTree(t Tree, to string) error {
	files := t.files
	if files == nil {
		var err error
		if files, err = treeFiles(t.Dir); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	aside, err := os.MkdirTemp(filepath.Dir(to), stagePrefix)
	if err != nil {
		return err
	}
	defer os.RemoveAll(aside) //nolint:errcheck // it was moved, or the sweep takes it
	made := map[string]bool{".": true}
	for _, f := range files {
		if err := folderFor(aside, path.Dir(f.Path), made); err != nil {
			return err
		}
		if err := copyOver(t.Dir, filepath.Join(aside, f.Path), f); err != nil {
			return fmt.Errorf("%s: %w", f.Path, err)
		}
	}
	if err := rename.NoReplace(aside, to); !errors.Is(err, fs.ErrExist) { // another goroutine or server was faster
		return err
	}
	return nil
}
