package skills

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

const (
	// spareTrees is from how many trees on a view is worth keeping: making a folder costs a tenth of a
	// millisecond on a journaled file system, so that thousands of skills cost more than the sandbox.
	spareTrees = 64
	maxSpares  = 4
	// maxShared is how many views are kept for threads without a sandbox; a view that was used within
	// sharedTime may have readers, and is kept longer.
	maxShared  = 16
	sharedTime = time.Minute
)

// Views makes folders that show views: one for each sandbox, and one for all threads without a sandbox that have the
// same view. All methods may be called at the same time.
type Views struct {
	dir    string // spare/, views/ and tenants/ in it
	copies *tenantCopies

	prepare sync.Mutex // held while a spare is made

	mu     sync.Mutex
	count  int64
	spares []*Folder
	shared map[string]*sharedView // by hash
}

type sharedView struct {
	once sync.Once
	dir  string
	err  error
	used time.Time
}

// NewViews makes folders below dir. The spares of a former process are used again; Clean removes what else it left.
func NewViews(dir string) (*Views, error) {
	v := &Views{dir: dir, shared: map[string]*sharedView{}, count: time.Now().UnixNano()}
	for _, name := range []string{"spare", "views"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o711); err != nil {
			return nil, fmt.Errorf("skills: %w", err)
		}
	}
	var err error
	if v.copies, err = openTenantCopies(dir); err != nil {
		return nil, fmt.Errorf("skills: %w", err)
	}
	for _, name := range []string{"spare", "views"} {
		entries, err := os.ReadDir(filepath.Join(dir, name))
		if err != nil {
			return nil, fmt.Errorf("skills: %w", err)
		}
		for _, e := range entries {
			p := filepath.Join(dir, name, e.Name())
			if name == "spare" && len(v.spares) < maxSpares && !strings.HasPrefix(e.Name(), oldPrefix) {
				if f, err := v.Open(p); err == nil {
					v.spares = append(v.spares, f)
					continue
				}
			}
			// Thousands of folders take seconds to remove; a name is free at once.
			if err := os.Rename(p, v.old()); err != nil {
				return nil, fmt.Errorf("skills: %w", err)
			}
		}
	}
	return v, nil
}

// oldPrefix begins the names of folders that go.
const oldPrefix = "old-"

// old is a name for a folder that goes.
func (v *Views) old() string {
	v.count++
	return filepath.Join(v.dir, "spare", oldPrefix+fmt.Sprint(v.count))
}

// Clean removes folders that are not used any more. It may take seconds.
func (v *Views) Clean() error {
	entries, err := os.ReadDir(filepath.Join(v.dir, "spare"))
	if err != nil {
		return fmt.Errorf("skills: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), oldPrefix) {
			errs = append(errs, os.RemoveAll(filepath.Join(v.dir, "spare", e.Name())))
		}
	}
	return errors.Join(errs...)
}

// Folder makes the folder of a sandbox at dir, which is not there yet and on the same file system. It shows
// something, or nothing: Show comes next, before the sandbox starts.
func (v *Views) Folder(dir string) (*Folder, error) {
	spare := v.takeSpare()
	if spare == nil {
		// A view in the making is there sooner than another one would be.
		v.prepare.Lock()
		v.prepare.Unlock() //nolint:staticcheck // it was only waited for
		spare = v.takeSpare()
	}
	if spare != nil {
		if err := os.Rename(spare.dir, dir); err == nil {
			return &Folder{dir: dir, copies: v.copies, have: spare.have}, nil
		}
		if err := os.RemoveAll(spare.dir); err != nil {
			return nil, err
		}
	}
	return v.Open(dir)
}

func (v *Views) takeSpare() *Folder {
	v.mu.Lock()
	defer v.mu.Unlock()
	n := len(v.spares)
	if n == 0 {
		return nil
	}
	spare := v.spares[n-1]
	v.spares = v.spares[:n-1]
	return spare
}

// Return takes the folder of a sandbox that is surely gone, to be changed into that of another one. A folder that
// is not worth it stays where it is, for the caller to remove.
func (v *Views) Return(f *Folder) error {
	f.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.view == nil {
		return nil // what is in it is unknown
	}
	return v.keep(f.dir, f.have)
}

func (v *Views) keep(dir string, have map[string]string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(have) < spareTrees || len(v.spares) >= maxSpares {
		return nil
	}
	v.count++
	to := filepath.Join(v.dir, "spare", fmt.Sprint(v.count))
	if err := os.Rename(dir, to); err != nil {
		return err
	}
	v.spares = append(v.spares, &Folder{dir: to, copies: v.copies, have: have})
	return nil
}

// Prepare makes a spare folder for a view, unless there is one or the view is small. It also looks through a
// folder that a former process left.
func (v *Views) Prepare(view *View) error {
	v.prepare.Lock()
	defer v.prepare.Unlock()
	v.mu.Lock()
	if len(view.trees) < spareTrees || len(v.spares) > 0 && v.spares[len(v.spares)-1].known() {
		v.mu.Unlock()
		return nil
	}
	var f *Folder
	if n := len(v.spares); n > 0 {
		f, v.spares = v.spares[n-1], v.spares[:n-1]
	}
	v.count++
	dir := filepath.Join(v.dir, "spare", fmt.Sprint(v.count))
	v.mu.Unlock()
	var err error
	if f == nil {
		f, err = v.Open(dir)
	}
	if err == nil {
		err = f.Show("", view)
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.spares = append(v.spares, &Folder{dir: f.dir, copies: v.copies, have: f.have})
	return nil
}

// known says whether it is known what is in the folder.
func (f *Folder) known() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, key := range f.have {
		if key == unknown {
			return false
		}
	}
	return true
}

// Shared returns the host folders of a view for threads that have no sandbox, to be read only, and soon.
func (v *Views) Shared(view *View) (skills, plugins string, err error) {
	hash := view.hashed()
	v.mu.Lock()
	s := v.shared[hash]
	if s == nil {
		s = &sharedView{dir: filepath.Join(v.dir, "views", hash)}
		v.shared[hash] = s
	}
	s.used = time.Now()
	v.forget()
	v.mu.Unlock()
	s.once.Do(func() {
		f, err := v.Open(s.dir)
		if err == nil {
			err = f.Show("", view)
		}
		s.err = err
	})
	if s.err != nil {
		v.mu.Lock()
		delete(v.shared, hash) // the next one tries again
		v.mu.Unlock()
	}
	return filepath.Join(s.dir, "skills"), filepath.Join(s.dir, "plugins"), s.err
}

// forget drops the least recently used view when there are too many. Its name is free at once: the same
// view may be wanted again. v.mu is held.
func (v *Views) forget() {
	oldest := ""
	for hash, s := range v.shared {
		if oldest == "" || s.used.Before(v.shared[oldest].used) {
			oldest = hash
		}
	}
	if len(v.shared) <= maxShared || time.Since(v.shared[oldest].used) < sharedTime && len(v.shared) < 4*maxShared {
		return
	}
	_ = os.Rename(v.shared[oldest].dir, v.old()) //nolint:errcheck // it may never have been made
	delete(v.shared, oldest)
}

// hashed names what a view shows.
func (v *View) hashed() string {
	v.once.Do(func() {
		sum := sha256.New()
		for _, t := range v.trees {
			fmt.Fprintf(sum, "%q %q\n", t.Path, t.Key)
		}
		v.hash = hex.EncodeToString(sum.Sum(nil)[:16])
	})
	return v.hash
}
