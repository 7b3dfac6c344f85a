package snapshot

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/gob"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/skerry-sandbox/skerry/internal/platform/lockedfile"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// indexes are what this server remembers of snapshots.
type indexes struct{ *Snapshots }

// index is what this data folder knows of what is kept of a thread: so a look at the files says what changed since. It
// may be lost: then all files are read again.
type index struct {
	Where   string // the store that it is about
	Version string // of the head
	Head    head   // without About
	About   sum
	Entries []seen
	Garbage []garbage
	Count   int // snapshots since the last sweep
}

// garbage is a pack that no snapshot refers to since a time.
type garbage struct {
	Pack  string
	Since time.Time
}

// maxIndex bounds the file: a million entries with names as long as can be are more, and are read anew each time.
const maxIndex = 1 << 30

// state is the folder of what this data folder knows of a thread.
func (s indexes) state(t sandbox.Thread) string {
	return filepath.Join(s.o.Dir, t.Tenant, t.User, t.ID)
}

func (s indexes) indexFile(t sandbox.Thread) string { return filepath.Join(s.state(t), "index") }

// lock keeps others of this data folder from keeping, restoring or deleting the thread.
func (s indexes) lock(ctx context.Context, t sandbox.Thread) (unlock func(), err error) {
	dir := s.state(t)
	for {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, sandbox.Wrap(sandbox.Internal, err, "the state of the thread's snapshots cannot be used")
		}
		before, err := os.Stat(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			unlock, err = lockedfile.Lock(ctx, dir)
		}
		switch {
		case errors.Is(err, lockedfile.ErrBusy):
			return nil, sandbox.Wrap(sandbox.Timeout, err, "the thread's files are being kept or restored for too long")
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return nil, sandbox.Wrap(sandbox.Internal, err, "the state of the thread's snapshots cannot be used")
		}
		// It may have been taken away and made anew in between.
		if after, err := os.Stat(dir); err == nil && os.SameFile(before, after) {
			return unlock, nil
		}
		unlock()
	}
}

// cached is an index with the stamp of the file that it is in.
type cached struct {
	at   lockedfile.Stamp
	idx  *index
	cost int
}

// mostCached bounds what all indexes in memory take, in bytes.
const mostCached = 96 << 20

// What an entry and a chunk of an index take in memory, besides paths and targets.
const (
	entryCost = 160
	chunkCost = 96
)

// cost is what an index takes in memory. Code in a sandbox chooses how long paths are, and how many parts a
// file has.
func (x *index) cost() int {
	sum := entryCost
	for i := range x.Entries {
		e := &x.Entries[i].Entry
		sum += entryCost + len(e.Path) + len(e.Target) + chunkCost*len(e.Chunks)
	}
	return sum
}

// waitIfLarge waits for the turn of a thread whose index takes much memory, or has to be read from a large file.
func (s indexes) waitIfLarge(l *largeThread, t sandbox.Thread) error {
	info, err := os.Stat(s.indexFile(t))
	if err != nil || info.Size() < manyBytes {
		return nil // what it takes is little, or it is read as if it were not there
	}
	return l.wait()
}

// readBrief is readIndex without the entries. The caller holds the lock.
func (s indexes) readBrief(ctx context.Context, t sandbox.Thread) (*index, error) {
	large := s.largeThread(ctx)
	defer large.done()
	if err := s.waitIfLarge(large, t); err != nil {
		return nil, err
	}
	idx := s.readIndex(t)
	if idx == nil {
		return nil, nil //nolint:nilnil // there is none
	}
	brief := *idx
	brief.Entries = nil
	return &brief, nil
}

// readIndex returns the index of a thread, nil when there is none. The caller holds the lock.
func (s indexes) readIndex(t sandbox.Thread) *index {
	path := s.indexFile(t)
	at, err := lockedfile.Stat(path)
	if err != nil || at == (lockedfile.Stamp{}) {
		return nil
	}
	s.mu.Lock()
	c := s.cache[t]
	s.mu.Unlock()
	if c.idx != nil && c.at == at {
		return c.idx
	}
	at, text, err := lockedfile.Read(path, maxIndex)
	if err != nil || len(text) < sha256.Size {
		return nil
	}
	text, is := text[sha256.Size:], sum(text[:sha256.Size])
	var idx index
	if sha256.Sum256(text) != is || gob.NewDecoder(bytes.NewReader(text)).Decode(&idx) != nil || idx.Where != s.o.Objects.Name() {
		return nil
	}
	s.remember(t, cached{at, &idx, idx.cost()})
	return &idx
}

// writeIndex replaces it. It need not be durable: a torn or older one is detected.
func (s indexes) writeIndex(t sandbox.Thread, idx *index) error {
	idx.Where, idx.Head.About = s.o.Objects.Name(), nil
	var text bytes.Buffer
	text.Write(make([]byte, sha256.Size)) //nolint:errcheck // a buffer never fails
	if err := gob.NewEncoder(&text).Encode(idx); err != nil {
		return err
	}
	is := sha256.Sum256(text.Bytes()[sha256.Size:])
	copy(text.Bytes(), is[:])
	path := s.indexFile(t)
	if err := lockedfile.Swap(path, text.Bytes(), 0o600); err != nil {
		return err
	}
	at, err := lockedfile.Stat(path)
	if err == nil {
		s.remember(t, cached{at, idx, idx.cost()})
	}
	return err
}

// remember keeps an index in memory, in the place of any others when there is no room.
func (s indexes) remember(t sandbox.Thread, c cached) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetCached(t)
	for other := range s.cache {
		if s.cachedBytes+c.cost <= mostCached {
			break
		}
		s.forgetCached(other)
	}
	if c.cost > mostCached {
		return
	}
	s.cache[t] = c
	s.cachedBytes += c.cost
}

// forgetCached takes an index out of memory. The caller holds mu.
func (s indexes) forgetCached(t sandbox.Thread) {
	if c, ok := s.cache[t]; ok {
		s.cachedBytes -= c.cost
		delete(s.cache, t)
	}
}

// dropIndex takes the index away: the disk has nothing of the thread that counts.
func (s indexes) dropIndex(t sandbox.Thread) error {
	s.mu.Lock()
	s.forgetCached(t)
	s.mu.Unlock()
	for _, path := range []string{s.indexFile(t), s.intentFile(t)} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return sandbox.Wrap(sandbox.Internal, err, "the state of the thread's snapshots cannot be used")
		}
	}
	return nil
}

func (s indexes) intentFile(t sandbox.Thread) string { return filepath.Join(s.state(t), "next") }

// intend notes the id of a snapshot before it becomes what is kept, and returns the id that was noted before.
func (s indexes) intend(t sandbox.Thread, id string) (former string, err error) {
	_, text, err := lockedfile.Read(s.intentFile(t), 100)
	if err == nil {
		err = os.WriteFile(s.intentFile(t), []byte(id), 0o600)
	}
	if err != nil {
		return "", sandbox.Wrap(sandbox.Internal, err, "the state of the thread's snapshots cannot be used")
	}
	return string(text), nil
}

// vouches reports whether the files on this disk are those of a snapshot, or newer: it was made of them, or they of it. A
// disk that came back from an older copy has another state, and one after a power failure may have.
func (s indexes) vouches(t sandbox.Thread, idx *index, h *head) bool {
	if idx != nil && idx.Head.ID == h.ID {
		return true
	}
	_, next, err := lockedfile.Read(s.intentFile(t), 100)
	return err == nil && string(next) == h.ID
}
