// Package ownerrecord is the book of which server process owns which thread, on the disk of the host where
// the sandboxes run. A lease (package store) says who may take a thread; the owner record says who did. It does
// not get lost with Redis, and what must not happen twice to a sandbox happens with its page locked: so
// that a process that was stopped for a minute finds out that its sandbox is another one's now before it
// can do any harm.
package ownerrecord

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/platform/lockedfile"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

const (
	pageSuffix = ".json"
	lockSuffix = ".lock"
	maxPage    = 4 << 10
)

// OwnerRecord says which replica holds a thread. It is comparable.
type OwnerRecord struct {
	Tenant  string `json:"tenant"`
	User    string `json:"user"`
	ID      string `json:"thread"`
	Replica string `json:"replica"`
	// Token is the fencing token of the lease by which it was taken.
	Token int64 `json:"token"`
	// Sandbox is the thread's, "" while it has none. It may not be there yet, or not any more.
	Sandbox sandbox.ID `json:"sandbox,omitempty"`
}

// Of makes an owner record of a thread.
func Of(t sandbox.Thread, replica string, token int64, id sandbox.ID) OwnerRecord {
	return OwnerRecord{Tenant: t.Tenant, User: t.User, ID: t.ID, Replica: replica, Token: token, Sandbox: id}
}

// Thread is the thread that is claimed.
func (c OwnerRecord) Thread() sandbox.Thread {
	return sandbox.Thread{Owner: sandbox.Owner{Tenant: c.Tenant, User: c.User}, ID: c.ID}
}

// Book is the owner records of one data folder. Its methods may be called concurrently, also by many processes.
type Book struct{ dir string }

// Open makes the folder when there is none.
func Open(dir string) (*Book, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("claims: %w", err)
	}
	return &Book{dir: dir}, nil
}

func (b *Book) path(t sandbox.Thread, suffix string) string {
	sum := sha256.Sum256([]byte(t.Tenant + "\x00" + t.User + "\x00" + t.ID))
	return filepath.Join(b.dir, hex.EncodeToString(sum[:16])+suffix)
}

// Read returns the owner record of a thread as it is now; ok is false when there is none.
func (b *Book) Read(t sandbox.Thread) (c OwnerRecord, ok bool, err error) {
	return readPage(b.path(t, pageSuffix))
}

func readPage(path string) (c OwnerRecord, ok bool, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return OwnerRecord{}, false, nil
	}
	if err == nil && len(text) == 0 { // a power cut came before its text was on the disk: all sandboxes went with it
		return OwnerRecord{}, false, nil
	}
	if err == nil && len(text) > maxPage {
		err = errors.New("too long")
	}
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	if err != nil {
		return OwnerRecord{}, false, fmt.Errorf("claim: %w", err)
	}
	return c, true, nil
}

// Stamp changes when the owner record of a thread does. The zero Stamp: there is none.
func (b *Book) Stamp(t sandbox.Thread) (lockedfile.Stamp, error) {
	return lockedfile.Stat(b.path(t, pageSuffix))
}

// All returns every owner record of this moment.
func (b *Book) All() ([]OwnerRecord, error) {
	entries, err := os.ReadDir(b.dir)
	if err != nil {
		return nil, fmt.Errorf("claims: %w", err)
	}
	var all []OwnerRecord
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), pageSuffix) {
			continue
		}
		c, ok, err := readPage(filepath.Join(b.dir, e.Name()))
		if err != nil {
			return nil, err
		}
		if ok { // else it was erased meanwhile
			all = append(all, c)
		}
	}
	return all, nil
}

// Page is the owner record of one thread while no other process can change it.
type Page struct {
	book *Book
	t    sandbox.Thread
	lock *lockedfile.FileLock
}

// Lock waits until no other process has the page of a thread, or until ctx ends (Unavailable). The caller
// closes the page soon: others wait for it.
func (b *Book) Lock(ctx context.Context, t sandbox.Thread) (*Page, error) {
	lock, err := lockedfile.WaitLock(ctx, b.path(t, lockSuffix))
	if errors.Is(err, lockedfile.ErrBusy) {
		return nil, sandbox.Wrap(sandbox.Unavailable, ctx.Err(), "another server is busy with the thread; try again")
	}
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Internal, err, "the owner record of the thread cannot be opened")
	}
	return &Page{book: b, t: t, lock: lock}, nil
}

// Record returns what the page says; ok is false when it is empty.
func (p *Page) Record() (c OwnerRecord, ok bool, err error) { return p.book.Read(p.t) }

// Write replaces what the page says. Readers see the old owner record or the new one.
func (p *Page) Write(c OwnerRecord) error {
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	if err := lockedfile.Swap(p.book.path(p.t, pageSuffix), text, 0o600); err != nil {
		return fmt.Errorf("claim: %w", err)
	}
	return nil
}

// Erase empties the page.
func (p *Page) Erase() error {
	err := os.Remove(p.book.path(p.t, pageSuffix))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("claim: %w", err)
	}
	return nil
}

// Close releases the page. An empty one leaves nothing behind. It may be called twice.
func (p *Page) Close() {
	if p.lock == nil {
		return
	}
	if _, ok, err := p.Record(); err == nil && !ok {
		_ = os.Remove(p.book.path(p.t, lockSuffix)) // a process that waits for the lock sees that, and makes another file
	}
	_ = p.lock.Unlock()
	p.lock = nil
}
