package snapshot

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/secrets"
)

func keys(t *testing.T) *secrets.Keys {
	t.Helper()
	k, err := secrets.TemporaryKeys()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// TestSealed: nothing of a thread's files can be read in the store without the key, and packs cannot be exchanged.
func TestSealed(t *testing.T) {
	t.Parallel()
	o, k := NewFolder(t.TempDir()), keys(t)
	a := newServer(t, o, k)
	put(t, a.make(thread1), "workspace/secret-name", []byte("secret content"))
	a.mustKeep(thread1)
	packs := filepath.Join(o.dir, place(thread1), "packs")
	err := filepath.WalkDir(o.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if bytes.Contains(data, []byte("secret")) || filepath.Dir(path) == packs && !bytes.HasPrefix(data, sealedMagic) {
			t.Errorf("%s can be read", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := newServer(t, o, nil).restoreIt(thread1, true); !errors.Is(err, sandbox.Unavailable) {
		t.Errorf("without the key: %v", err)
	}
	s, err := Open(t.Context(), Options{Objects: o, Dir: t.TempDir(), Holder: "x", Sealer: keys(t), Encrypt: true})
	if !errors.Is(err, sandbox.Unavailable) {
		t.Errorf("with another key: %v", err)
		s.Close()
	}
	b := newServer(t, o, k)
	b.mustRestore(thread1, true)
	sameTree(t, tree(t, a.dir(thread1)), tree(t, b.dir(thread1)))
	// Of two servers, one does not encrypt: the other one reads both kinds.
	c := newServer(t, o, k)
	c.o.Encrypt = false
	other := thread1
	other.ID = "t-2"
	put(t, c.make(other), "workspace/plain", []byte("x"))
	c.mustKeep(other)
	b.mustRestore(other, true)
	put(t, b.dir(other), "workspace/sealed", []byte("y"))
	b.mustKeep(other)
	c.mustRestore(other, true)
	sameTree(t, tree(t, b.dir(other)), tree(t, c.dir(other)))
	// A pack in the place of another one.
	list, err := os.ReadDir(packs)
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	foreign, err := filepath.Glob(filepath.Join(o.dir, place(other), "packs", "*"))
	if err != nil || len(foreign) == 0 {
		t.Fatal(err)
	}
	text, err := os.ReadFile(foreign[len(foreign)-1])
	if err != nil || !bytes.HasPrefix(text, sealedMagic) {
		t.Fatal("the newest pack is not encrypted", err)
	}
	if err := os.WriteFile(filepath.Join(packs, list[0].Name()), text, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := newServer(t, o, k).restoreIt(thread1, true); !errors.Is(err, sandbox.Unavailable) {
		t.Errorf("with the pack of another thread: %v", err)
	}
}

// stale plays keys that were rotated.
type stale struct{ *secrets.Keys }

func (stale) Stale(string, []byte) bool { return true }

// TestRenew: after a rotation of the key file all is read as before, and no pack is written again.
func TestRenew(t *testing.T) {
	t.Parallel()
	o, k := NewFolder(t.TempDir()), keys(t)
	a := newServer(t, o, stale{k})
	put(t, a.make(thread1), "workspace/a", []byte("x"))
	a.mustKeep(thread1)
	before, _, err := o.Read(t.Context(), keyName, 1<<16)
	if err != nil {
		t.Fatal(err)
	}
	writes := a.store.writes.Load()
	if n, err := a.Renew(t.Context()); n != 1 || err != nil || a.store.writes.Load() != writes+1 {
		t.Errorf("%d, %v, %d writes", n, err, a.store.writes.Load()-writes)
	}
	if after, _, err := o.Read(t.Context(), keyName, 1<<16); err != nil || bytes.Equal(before, after) {
		t.Errorf("the key is sealed as before: %v", err)
	}
	b := newServer(t, o, k)
	b.mustRestore(thread1, true)
	sameTree(t, tree(t, a.dir(thread1)), tree(t, b.dir(thread1)))
	if n, err := newServer(t, NewFolder(t.TempDir()), nil).Renew(t.Context()); n != 0 || err == nil {
		t.Errorf("without keys: %d, %v", n, err)
	}
}
