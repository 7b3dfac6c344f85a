package link

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"github.com/skerry-sandbox/skerry/internal/platform/lockedfile"
)

// secretFile is the secret of one sandbox on the host's disk. It must lie outside of every folder
// that is mounted into a sandbox.
type secretFile struct {
	path string

	mu        sync.Mutex
	secret    string
	handedOut bool
}

type secretContent struct {
	Secret    string `json:"secret"`
	HandedOut bool   `json:"handed_out"`
}

// openSecret reads the file, or makes it with a new secret when there is none.
func openSecret(path string) (*secretFile, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		var b [secretBytes]byte
		if _, err := rand.Read(b[:]); err != nil {
			return nil, err
		}
		s := &secretFile{path: path, secret: hex.EncodeToString(b[:])}
		return s, s.store(secretContent{Secret: s.secret})
	}
	if err != nil {
		return nil, err
	}
	var c secretContent
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, fmt.Errorf("secret file: %w", err)
	}
	if !isSecret(c.Secret) {
		return nil, errors.New("secret file: no secret in it")
	}
	return &secretFile{path: path, secret: c.Secret, handedOut: c.HandedOut}, nil
}

// check says whether a hello with this secret may have the connection, and marks the secret as
// handed out when it is the first. refused is fit to be told to the peer.
func (s *secretFile) check(presented string) (refused string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if presented == "" {
		if s.handedOut {
			return "a secret is needed: this is not the first connection of the sandbox", nil
		}
		if err := s.store(secretContent{Secret: s.secret, HandedOut: true}); err != nil {
			return "the server cannot write its state", err
		}
		s.handedOut = true
		return "", nil
	}
	if subtle.ConstantTimeCompare([]byte(presented), []byte(s.secret)) != 1 || !s.handedOut {
		return "wrong secret", nil
	}
	return "", nil
}

// store replaces the file in one step and waits for the disk: a secret that was handed out must
// never be handed out again, whatever dies.
func (s *secretFile) store(c secretContent) error {
	data, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return lockedfile.Replace(s.path, data)
}
