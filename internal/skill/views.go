package skill

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

const (
	// spareTrees is from how many trees on a view is worth keeping: making a folder costs a tenth of a
	// millisecond on a journaled file system, so that thousands of skills cost more than the sandbox.
	spareTrees = 64
	maxSpares  = 4
	// maxShared is how many views are kept for threads without a sandbox; one that was used within
	// sharedTime may have readers, and is kept longer.
	maxShared  = 16
	sharedTime = time.Minute
)

// Views makes folders that show views: one for each sandbox, and one for all threads without a sandbox that have the
// same view. All methods may be called at the same time.
type Views struct {
	dir string // spare/ and views/ in it

	mu     sync.Mutex
	count  int
	spares []*Folder
	shared map[string]*sharedView // by hash
}

type sharedView struct {
	once sync.Once
	dir  string
	err  error
	used time.Time
}

// NewViews makes folders below dir. What a former process left there is removed.
func NewViews(dir string) (*Views, error) {
	v := &Views{dir: dir, shared: map[string]*sharedView{}}
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return nil, fmt.Errorf("skills: %w", err)
	}
	for _, name := range []string{"spare", "views"} {
		p := filepath.Join(dir, name)
		if err := errors.Join(os.RemoveAll(p), os.Mkdir(p, 0o711)); err != nil {
			return nil, fmt.Errorf("skills: %w", err)
		}
	}
	return v, nil
}

// Folder makes the folder of a sandbox at dir, which is not there yet and on the same file system. It shows
// something, or nothing: Show comes next, before the sandbox starts.
func (v *Views) Folder(dir string) (*Folder, error) {
	v.mu.Lock()
	var spare *Folder
	if n := len(v.spares); n > 0 {
		spare, v.spares = v.spares[n-1], v.spares[:n-1]
	}
	v.mu.Unlock()
	if spare != nil {
		if err := os.Rename(spare.dir, dir); err == nil {
			return &Folder{dir: dir, have: spare.have}, nil
		}
		if err := os.RemoveAll(spare.dir); err != nil {
			return nil, err
		}
	}
	return OpenFolder(dir)
}

// Return takes the folder of a sandbox that is surely gone, to be changed into that of another one. One that
// is not worth it stays where it is, for the caller to remove.
func (v *Views) Return(f *Folder) error {
	f.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.view == nil {
		return nil // nobody knows what is in it
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
	v.spares = append(v.spares, &Folder{dir: to, have: have})
	return nil
}

// Prepare makes a spare folder for a view, unless there is one or the view is small.
func (v *Views) Prepare(view *View) error {
	v.mu.Lock()
	needed := len(v.spares) == 0 && len(view.trees) >= spareTrees
	v.count++
	dir := filepath.Join(v.dir, "spare", fmt.Sprint(v.count))
	v.mu.Unlock()
	if !needed {
		return nil
	}
	f, err := OpenFolder(dir)
	if err == nil {
		err = f.Show(view)
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.spares = append(v.spares, &Folder{dir: dir, have: f.have})
	return nil
}

// Shared gives the host folders of a view for threads that have no sandbox, to be read only, and soon.
func (v *Views) Shared(view *View) (skills, plugins string, err error) {
	hash := view.hashed()
	v.mu.Lock()
	s := v.shared[hash]
	if s == nil {
		s = &sharedView{dir: filepath.Join(v.dir, "views", hash)}
		v.shared[hash] = s
	}
	s.used = time.Now()
	old := v.forget()
	v.mu.Unlock()
	if old != "" {
		_ = os.RemoveAll(old) //nolint:errcheck // what stays goes with the next start
	}
	s.once.Do(func() {
		f, err := OpenFolder(s.dir)
		if err == nil {
			err = f.Show(view)
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

// forget gives the folder of the view that was not used for the longest time when there are too many, under a
// new name: the same view may be wanted again. v.mu is held.
func (v *Views) forget() string {
	oldest := ""
	for hash, s := range v.shared {
		if oldest == "" || s.used.Before(v.shared[oldest].used) {
			oldest = hash
		}
	}
	if len(v.shared) <= maxShared || time.Since(v.shared[oldest].used) < sharedTime && len(v.shared) < 4*maxShared {
		return ""
	}
	dir := v.shared[oldest].dir
	delete(v.shared, oldest)
	v.count++
	old := filepath.Join(v.dir, "spare", fmt.Sprintf("old-%d", v.count))
	if os.Rename(dir, old) != nil {
		return ""
	}
	return old
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
