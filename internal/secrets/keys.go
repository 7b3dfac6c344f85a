package secrets

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"filippo.io/age"

	"github.com/skerry-sandbox/skerry/internal/platform/keyfile"
	"github.com/skerry-sandbox/skerry/internal/platform/lockedfile"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Keys is the file of age identities by which values are kept: one a line, as age-keygen writes them. What is
// sealed is sealed for the first; what was sealed for any of them can be opened. The file is read again
// when it changes, because another server may rotate it. All methods may be called at the same time.
type Keys struct {
	path string

	mu   sync.Mutex
	seen lockedfile.Stamp
	racy bool
	ids  []*age.X25519Identity
}

const (
	maxKeyFile = 64 << 10
	// maxSealed bounds what is opened: the largest is the environment of a sandbox.
	maxSealed = 512 << 20
)

// OpenKeys opens the file of identities, which is made with one when it is not there, and its folder with it. It
// refuses a key file in the data folder: a reader of that folder, as of a backup, would have the key with the
// lock. It also refuses a file that others than its owner may read.
func OpenKeys(path, data string) (*Keys, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // others may pass; the file is closed to them
		return nil, fmt.Errorf("secrets.key_file: its folder cannot be made: %w", err)
	}
	if err := keyfile.Outside(path, data); err != nil {
		return nil, fmt.Errorf("secrets.key_file: %w", err)
	}
	k := &Keys{path: path}
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		if err := k.change(context.Background(), func(ids []*age.X25519Identity) ([]*age.X25519Identity, error) {
			if len(ids) > 0 {
				return ids, nil // of another server, which begins at the same time
			}
			id, err := age.GenerateX25519Identity()
			return []*age.X25519Identity{id}, err
		}); err != nil {
			return nil, fmt.Errorf("secrets.key_file: %s cannot be made: %w", path, err)
		}
	}
	_, err := k.identities()
	return k, err
}

// TemporaryKeys are in no file: what they seal is lost with them.
func TemporaryKeys() (*Keys, error) {
	id, err := age.GenerateX25519Identity()
	return &Keys{ids: []*age.X25519Identity{id}}, err
}

// identities returns what the file holds now, the newest first.
func (k *Keys) identities() ([]*age.X25519Identity, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.path == "" {
		return k.ids, nil
	}
	if s, err := lockedfile.Stat(k.path); k.ids != nil && err == nil && s == k.seen && !k.racy {
		return k.ids, nil
	}
	if err := keyfile.Private(k.path); err != nil {
		return nil, errKeys(err)
	}
	now := time.Now()
	seen, text, err := lockedfile.Read(k.path, maxKeyFile)
	if err != nil {
		return nil, errKeys(err)
	}
	ids, err := parseKeys(text)
	if err != nil {
		return nil, errKeys(err)
	}
	if len(ids) == 0 {
		return nil, errKeys(errors.New("it has no line AGE-SECRET-KEY-1…"))
	}
	k.seen, k.racy, k.ids = seen, seen.Racy(now), ids
	return ids, nil
}

func errKeys(err error) error {
	return sandbox.Wrap(sandbox.Unavailable, fmt.Errorf("secrets.key_file: %w", err), "the key of the secrets cannot be used; the server's log says why")
}

// parseKeys reads the lines. An error never repeats one.
func parseKeys(text []byte) ([]*age.X25519Identity, error) {
	if len(text) > maxKeyFile {
		return nil, fmt.Errorf("more than %d bytes", maxKeyFile)
	}
	var ids []*age.X25519Identity
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		id, err := age.ParseX25519Identity(line)
		if err != nil {
			return nil, fmt.Errorf("line %d is not an age identity of X25519 (AGE-SECRET-KEY-1…)", n)
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// change writes the file anew while no other process does.
func (k *Keys) change(ctx context.Context, edit func([]*age.X25519Identity) ([]*age.X25519Identity, error)) error {
	return lockedfile.Edit(ctx, k.path, maxKeyFile, func(text []byte) ([]byte, error) {
		ids, err := parseKeys(text)
		if err != nil {
			return nil, err
		}
		if ids, err = edit(ids); err != nil {
			return nil, err
		}
		out := []byte("# Skerry seals secrets for the first of these age identities. Keep a copy elsewhere: without it they are lost.\n")
		for _, id := range ids {
			out = fmt.Appendf(out, "# public key: %s\n%s\n", id.Recipient(), id)
		}
		return out, nil
	})
}

// Seal encrypts a text for the newest identity. purpose says what it is; only with the same one is it opened
// again, so that a writer of the store cannot have one text opened in place of another.
func (k *Keys) Seal(purpose string, plain []byte) ([]byte, error) {
	ids, err := k.identities()
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	w, err := age.Encrypt(&out, ids[0].Recipient())
	if err == nil {
		_, err = fmt.Fprintf(w, "%s\x00", purpose)
	}
	if err == nil {
		_, err = w.Write(plain)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Internal, err, "a value cannot be encrypted")
	}
	return out.Bytes(), nil
}

// Open returns what Seal got. Unavailable when no identity of the file opens it, or it was sealed as something else.
func (k *Keys) Open(purpose string, sealed []byte) ([]byte, error) {
	ids, err := k.identities()
	if err != nil {
		return nil, err
	}
	return open(purpose, sealed, ids)
}

func open(purpose string, sealed []byte, ids []*age.X25519Identity) ([]byte, error) {
	list := make([]age.Identity, len(ids))
	for i, id := range ids {
		list[i] = id
	}
	r, err := age.Decrypt(bytes.NewReader(sealed), list...)
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Unavailable, err, "it is encrypted for a key that the key file does not have")
	}
	text, err := io.ReadAll(io.LimitReader(r, maxSealed))
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Unavailable, err, "it is damaged")
	}
	plain, ok := bytes.CutPrefix(text, append([]byte(purpose), 0))
	if !ok {
		return nil, sandbox.Errorf(sandbox.Unavailable, "it was encrypted as something else")
	}
	return plain, nil
}

// Renew seals a text for the newest identity; changed is false when it is so already.
func (k *Keys) Renew(purpose string, sealed []byte) (out []byte, changed bool, err error) {
	ids, err := k.identities()
	if err != nil {
		return nil, false, err
	}
	if _, err := open(purpose, sealed, ids[:1]); err == nil {
		return sealed, false, nil
	}
	plain, err := open(purpose, sealed, ids)
	if err != nil {
		return nil, false, err
	}
	out, err = k.Seal(purpose, plain)
	return out, true, err
}

// Stale reports whether a text is sealed for an older identity than the newest.
func (k *Keys) Stale(purpose string, sealed []byte) bool {
	ids, err := k.identities()
	if err != nil {
		return false
	}
	_, err = open(purpose, sealed, ids[:1])
	return err != nil
}

// begin puts a new identity before those there are, end leaves the newest alone.
func (k *Keys) begin(ctx context.Context) error {
	return k.change(ctx, func(ids []*age.X25519Identity) ([]*age.X25519Identity, error) {
		id, err := age.GenerateX25519Identity()
		return append([]*age.X25519Identity{id}, ids...), err
	})
}

func (k *Keys) end(ctx context.Context) error {
	return k.change(ctx, func(ids []*age.X25519Identity) ([]*age.X25519Identity, error) { return ids[:1], nil })
}
