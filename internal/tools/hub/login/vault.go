package login

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/skerry-sandbox/skerry/internal/platform/lockedfile"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// maxRecord is the size of a file of tokens.
const maxRecord = 256 << 10

// record is what is kept of one login, encrypted, in a file that only the owner of the process may read.
type record struct {
	Server  string `json:"server"` // for people who look; the file's name says whose it is
	Issuer  string `json:"issuer,omitempty"`
	Access  string `json:"access_token,omitempty"`
	Refresh string `json:"refresh_token,omitempty"`

	Expiry   time.Time `json:"expiry,omitzero"` // zero: it was not told
	Scopes   []string  `json:"scopes,omitempty"`
	Resource string    `json:"resource,omitempty"`
	TokenURL string    `json:"token_url,omitempty"`
	Revoke   string    `json:"revocation_url,omitempty"`
	Client   client    `json:"client,omitzero"` // to which the tokens were given
	Since    time.Time `json:"since,omitzero"`

	// Registered are the clients that authorization servers made for us, by issuer: what one of them gave
	// is never sent to another.
	Registered map[string]client `json:"registered,omitempty"`
}

// client is how we are known to an authorization server. A secret of the configuration is not kept.
type client struct {
	ID       string    `json:"id"`
	Secret   string    `json:"secret,omitempty"`
	Method   string    `json:"method,omitempty"`
	Redirect string    `json:"redirect,omitempty"`
	Expiry   time.Time `json:"expiry,omitzero"` // of the secret; zero: never
}

// expired: a token that ends within a request is as good as ended.
func (r *record) expired() bool {
	return !r.Expiry.IsZero() && time.Until(r.Expiry) < 10*time.Second
}

// Sealer encrypts records. Only with the same purpose one is opened again.
type Sealer interface {
	Seal(purpose string, plain []byte) ([]byte, error)
	Open(purpose string, sealed []byte) ([]byte, error)
}

// Vault is the folder of logins. Several processes may use it at once.
type Vault struct {
	dir   string
	seal  Sealer // nil: records are kept as they are
	mu    sync.Mutex
	slots map[string]*slot
}

// OpenVault returns the vault at dir, a folder that is made when it is needed and that no other user of the machine may enter. With a
// nil seal its records are not encrypted.
func OpenVault(dir string, seal Sealer) *Vault {
	return &Vault{dir: dir, seal: seal, slots: map[string]*slot{}}
}

// purpose binds a record to its file.
func purpose(name string) string { return "login " + name }

// open reads the text of a file. One of a time before records were encrypted is read as it is.
func (v *Vault) open(name string, text []byte) (*record, error) {
	if v.seal != nil && !bytes.HasPrefix(text, []byte("{")) {
		var err error
		if text, err = v.seal.Open(purpose(name), text); err != nil {
			return nil, err
		}
	}
	var r record
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, errors.New("not a record") // its text may hold tokens
	}
	return &r, nil
}

// Renew encrypts again what is stored in plain text, or encrypted so that stale says it. It handles one
// record at a time, while no other process gets tokens for it. It leaves a record that it cannot read alone,
// and counts it.
func (v *Vault) Renew(ctx context.Context, stale func(purpose string, sealed []byte) bool) (changed, unreadable int, err error) {
	files, err := filepath.Glob(filepath.Join(v.dir, "*.json"))
	if err != nil || v.seal == nil {
		return 0, 0, err
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		did, err := v.renew(ctx, name, stale)
		switch {
		case errors.Is(err, errUnreadable):
			unreadable++
		case err != nil:
			return changed, unreadable, err
		case did:
			changed++
		}
	}
	return changed, unreadable, nil
}

var errUnreadable = errors.New("unreadable")

func (v *Vault) renew(ctx context.Context, name string, stale func(purpose string, sealed []byte) bool) (bool, error) {
	s := v.use(name)
	defer s.leave()
	ctx, cancel := context.WithTimeout(ctx, renewTime)
	defer cancel()
	unlock, err := s.lock(ctx)
	if err != nil {
		return false, err
	}
	defer unlock()
	text, err := os.ReadFile(s.path(".json"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, errKept(err)
	}
	if !bytes.HasPrefix(text, []byte("{")) && !stale(purpose(name), text) {
		return false, nil
	}
	r, err := v.open(name, text)
	if err != nil {
		return false, errUnreadable
	}
	return true, s.put(r)
}

// renewTime is how long the lock of one record is waited for: a token is got in less.
const renewTime = 30 * time.Second

// slot is the one place in this process for the login of one owner at one server.
type slot struct {
	vault *Vault
	name  string
	turn  chan struct{} // held while tokens are got: a refresh token is good for once

	mu     sync.Mutex
	seen   os.FileInfo
	record *record   // as it is in the file; not changed, but replaced
	memory *record   // of a machine's grant, which is in no file
	wanted challenge // what the server said last
	failed error     // why a machine got no token, at the time since
	since  time.Time
	users  int // guarded by the vault's mu
}

// slot returns the place for a login. The URL is part of its name: tokens for one server are not sent to
// another server that has taken over its name.
func (v *Vault) slot(server, url, client string, o sandbox.Owner) *slot {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q %q", server, url, client, o.Tenant, o.User))
	return v.use(hex.EncodeToString(sum[:16]))
}

// use returns the slot of a name, until leave.
func (v *Vault) use(name string) *slot {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.slots[name]
	if s == nil {
		s = &slot{vault: v, name: name, turn: make(chan struct{}, 1)}
		v.slots[name] = s
	}
	s.users++
	return s
}

// leave ends the use of a slot by one client.
func (s *slot) leave() {
	s.vault.mu.Lock()
	defer s.vault.mu.Unlock()
	if s.users--; s.users == 0 {
		delete(s.vault.slots, s.name)
	}
}

func (s *slot) path(kind string) string { return filepath.Join(s.vault.dir, s.name+kind) }

// current returns what is kept, never nil. It is not to be changed.
func (s *slot) current() (*record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.memory != nil {
		return s.memory, nil
	}
	info, err := os.Stat(s.path(".json"))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		s.seen, s.record = nil, nil
		return &record{}, nil
	case err != nil:
		return nil, errKept(err)
	case s.record != nil && os.SameFile(info, s.seen) && info.ModTime().Equal(s.seen.ModTime()):
		return s.record, nil
	}
	f, err := os.OpenFile(s.path(".json"), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, errKept(err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxRecord))
	if err != nil {
		return nil, errKept(err)
	}
	r, err := s.vault.open(s.name, text)
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Unavailable, err, "the login that is kept cannot be read; log in again")
	}
	s.seen, s.record = info, r
	return r, nil
}

func errKept(err error) error {
	return sandbox.Wrap(sandbox.Unavailable, err, "the logins that are kept cannot be read or written")
}

// put keeps a record in the file, durably and as a whole.
func (s *slot) put(r *record) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return errKept(err)
	}
	text = append(text, '\n')
	if s.vault.seal != nil {
		if text, err = s.vault.seal.Seal(purpose(s.name), text); err != nil {
			return errKept(err)
		}
	}
	if err := s.vault.write(s.path(".json"), text); err != nil {
		return errKept(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen, s.record = nil, nil
	return nil
}

func (v *Vault) write(path string, text []byte) error {
	if err := v.make(); err != nil {
		return err
	}
	return lockedfile.ReplaceAs(path, text, 0o600)
}

func (v *Vault) make() error {
	if err := os.MkdirAll(v.dir, 0o700); err != nil {
		return err
	}
	return os.Chmod(v.dir, 0o700)
}

// keep keeps a machine's tokens for as long as the slot is used.
func (s *slot) keep(r *record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.memory, s.failed = r, nil
}

// failedLately returns why a machine's token was refused a moment ago; fail notes it. Asking at once again
// would get the same answer, or the client blocked.
func (s *slot) failedLately() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.since) < pause {
		return s.failed
	}
	return nil
}

func (s *slot) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed, s.since = err, time.Now()
}

// forget removes what is kept.
func (s *slot) forget() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.memory, s.seen, s.record, s.wanted, s.failed = nil, nil, nil, challenge{}, nil
	if err := os.Remove(s.path(".json")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return errKept(err)
	}
	return nil
}

// challenged notes what the server wants; noted returns it.
func (s *slot) challenged(ch challenge) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wanted = ch
}

func (s *slot) noted() challenge {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wanted
}

// ForgetServer removes all logins at servers of a name, of all users. Their authorization servers
// are not told.
func (v *Vault) ForgetServer(server string) error {
	files, err := filepath.Glob(filepath.Join(v.dir, "*.json"))
	if err != nil {
		return errKept(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it went meanwhile
		}
		if r, err := v.open(strings.TrimSuffix(filepath.Base(file), ".json"), text); err != nil || r.Server != server {
			continue // it has no owner
		}
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return errKept(err)
		}
	}
	return nil
}

// lock waits for the turn to get tokens, in this process and among processes.
func (s *slot) lock(ctx context.Context) (unlock func(), err error) {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, errBusy(ctx.Err())
	}
	release := func() { <-s.turn }
	if err := s.vault.make(); err != nil {
		release()
		return nil, errKept(err)
	}
	file, err := lockedfile.WaitLock(ctx, s.path(".lock"))
	if err != nil {
		release()
		if errors.Is(err, lockedfile.ErrBusy) {
			return nil, errBusy(err)
		}
		return nil, errKept(err)
	}
	return func() {
		_ = file.Unlock()
		release()
	}, nil
}

func errBusy(err error) error {
	return sandbox.Wrap(sandbox.Unavailable, err, "another login at this server goes on")
}
