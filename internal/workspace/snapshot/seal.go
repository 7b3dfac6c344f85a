package snapshot

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"errors"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// keyring has the keys of tenants.
type keyring struct{ *Snapshots }

// Packs are encrypted with AES-256-GCM, each with a key of its own, made of its name and the store's key. That one lies in
// the store, sealed: when the key file is rotated, it is sealed anew, and no pack is written again.

const (
	keyName    = ".key"
	keyPurpose = "key of snapshots"
	keyBytes   = 32
)

// sealedMagic begins an encrypted pack.
var sealedMagic = []byte("skerry sealed 1\n")

// readKey returns the store's key, its object, and that one's version; NotFound: there is none.
func (s keyring) readKey(ctx context.Context) (key, sealed []byte, version string, err error) {
	if s.o.Sealer == nil {
		return nil, nil, "", sandbox.Errorf(sandbox.Unavailable, "%s is encrypted, and this server has no key", s.o.Objects.Name())
	}
	if sealed, version, err = s.o.Objects.Read(ctx, keyName, 1<<16); err != nil {
		return nil, nil, "", err
	}
	key, err = s.o.Sealer.Open(keyPurpose, sealed)
	if err == nil && len(key) != keyBytes {
		err = errors.New("it is no key")
	}
	if err != nil {
		return nil, nil, "", sandbox.Wrap(sandbox.Unavailable, err, "%s/%s cannot be read: %v; it needs the key file (secrets.key_file) of the server that wrote it", s.o.Objects.Name(), keyName, err)
	}
	return key, sealed, version, nil
}

// storeKey returns the store's key, which is read once.
func (s keyring) storeKey(ctx context.Context) ([]byte, error) {
	s.mu.Lock()
	key := s.key
	s.mu.Unlock()
	if key != nil {
		return key, nil
	}
	key, _, _, err := s.readKey(ctx)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.key = key
	return key, nil
}

// makeKey makes the store's key when there is none.
func (s keyring) makeKey(ctx context.Context) error {
	_, err := s.storeKey(ctx)
	if !errors.Is(err, sandbox.NotFound) {
		return err
	}
	key := make([]byte, keyBytes)
	rand.Read(key) //nolint:errcheck // never fails
	sealed, err := s.o.Sealer.Seal(keyPurpose, key)
	if err != nil {
		return err
	}
	if _, err := s.o.Objects.Replace(ctx, keyName, sealed, ""); err != nil && !errors.Is(err, sandbox.Conflict) {
		return err
	}
	_, err = s.storeKey(ctx) // another server may have made it
	return err
}

// Renew seals the store's key for the newest key of the key file. changed is 1 when it was another one.
func (s *Snapshots) Renew(ctx context.Context) (changed int, err error) {
	for range saveTries {
		key, sealed, version, err := keyring{s}.readKey(ctx)
		if errors.Is(err, sandbox.NotFound) {
			return 0, nil
		}
		if err != nil || !s.o.Sealer.Stale(keyPurpose, sealed) {
			return 0, err
		}
		if sealed, err = s.o.Sealer.Seal(keyPurpose, key); err == nil {
			_, err = s.o.Objects.Replace(ctx, keyName, sealed, version)
		}
		if !errors.Is(err, sandbox.Conflict) {
			return 1, err
		}
	}
	return 0, sandbox.Errorf(sandbox.Conflict, "other servers change %s/%s at the same time; try again", s.o.Objects.Name(), keyName)
}

// cipherOf returns the cipher of one pack. Its key seals nothing else, so that the nonce may be zero.
func (s keyring) cipherOf(ctx context.Context, t sandbox.Thread, id string) (cipher.AEAD, error) {
	key, err := s.storeKey(ctx)
	if err != nil {
		return nil, err
	}
	own, err := hkdf.Key(sha256.New, key, nil, packName(t, id), keyBytes)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(own)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// seal encrypts what is packed, when that is wanted.
func (s keyring) seal(ctx context.Context, t sandbox.Thread, id string, data []byte) ([]byte, error) {
	if !s.o.Encrypt {
		return data, nil
	}
	c, err := s.cipherOf(ctx, t, id)
	if err != nil {
		return nil, err
	}
	return c.Seal(bytes.Clone(sealedMagic), make([]byte, c.NonceSize()), data, nil), nil
}

// unseal returns what was packed.
func (s keyring) unseal(ctx context.Context, t sandbox.Thread, id string, data []byte) ([]byte, error) {
	text, ok := bytes.CutPrefix(data, sealedMagic)
	if !ok {
		return data, nil
	}
	c, err := s.cipherOf(ctx, t, id)
	if err != nil {
		return nil, err
	}
	out, err := c.Open(nil, make([]byte, c.NonceSize()), text, nil)
	if err != nil {
		return nil, broken(s.o.Objects.Name(), packName(t, id), err)
	}
	return out, nil
}
