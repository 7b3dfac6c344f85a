package lockedfile

import (
	"bytes"
	"sync"
	"time"
)

// Follower follows what one file says. A look costs one stat while the file stays as it is.
type Follower[T any] struct {
	Path  string
	Limit int64                        // Parse gets at most one byte more
	Parse func(text []byte) (T, error) // of no text, when there is no file

	mu   sync.Mutex
	seen Stamp
	racy bool // the file may change without another stamp
	read bool // at seen; an error of reading is looked at again
	good bool // now is what text says
	text []byte
	now  T
	err  error
}

// Current returns what the file said when it was last in order, and the error of the file as it is now. The value
// is the same one as long as the text is. The zero value was never in order.
func (f *Follower[T]) Current() (T, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if s, err := Stat(f.Path); f.read && err == nil && s == f.seen && !f.racy {
		return f.now, f.err
	}
	s, text, err := Read(f.Path, f.Limit)
	f.seen, f.racy, f.read = s, s.Racy(now), err == nil
	if err == nil && (!f.good || !bytes.Equal(text, f.text)) {
		var next T
		if next, err = f.Parse(text); err == nil {
			f.now, f.text, f.good = next, text, true
		}
	}
	f.err = err
	return f.now, f.err
}
