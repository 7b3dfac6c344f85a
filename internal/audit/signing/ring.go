package signing

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit/record"
	"github.com/skerry-sandbox/skerry/internal/audit/verify"
	"github.com/skerry-sandbox/skerry/internal/platform/lockedfile"
)

// ringFile lists, in the folder of the log, the keys that sign and signed it: a line of JSON each, the oldest first.
const (
	ringFile = "keys.jsonl"
	maxRing  = 1 << 20
)

// Entry is a key of the list. Both signatures are of Text.
type Entry struct {
	ID     string            `json:"id"`     // record.KeyID
	Public ed25519.PublicKey `json:"public"` // base64
	Since  time.Time         `json:"since"`
	// Former is the key before it, "" for the first one.
	Former       string            `json:"former,omitempty"`
	FormerPublic ed25519.PublicKey `json:"former_public,omitempty"`
	// Own is the signature of this key, by which it vouches for the former one; Handed that of the former one, by
	// which it vouches for this one. Handed is missing when the former key was lost.
	Own    []byte `json:"own"`
	Handed []byte `json:"handed,omitempty"`
}

// Text is what is signed: six lines, of which the last two are empty for the first key.
func (e Entry) Text() []byte {
	former := ""
	if len(e.FormerPublic) > 0 {
		former = fmt.Sprintf("%x", []byte(e.FormerPublic))
	}
	return fmt.Appendf(nil, "skerry audit key v1\n%s\n%x\n%s\n%s\n%s\n", e.ID, []byte(e.Public), e.Since.UTC().Format(time.RFC3339Nano), e.Former, former)
}

// List reads the list of a log's folder.
func List(dir string) ([]Entry, error) {
	_, text, err := lockedfile.Read(filepath.Join(dir, ringFile), maxRing)
	if err != nil {
		return nil, fmt.Errorf("keys of the audit log: %w", err)
	}
	return parse(text)
}

func parse(text []byte) ([]Entry, error) {
	if len(text) > maxRing {
		return nil, fmt.Errorf("keys of the audit log: %s is longer than %d bytes", ringFile, maxRing)
	}
	var list []Entry
	for n, line := range bytes.Split(text, []byte("\n")) {
		if len(line) == 0 {
			continue
		}
		var e Entry
		if err := json.Unmarshal(line, &e); err != nil || len(e.Public) != ed25519.PublicKeySize || e.ID != record.KeyID(e.Public) {
			return nil, fmt.Errorf("keys of the audit log: line %d of %s is no key", n+1, ringFile)
		}
		if !ed25519.Verify(e.Public, e.Text(), e.Own) {
			return nil, fmt.Errorf("keys of the audit log: line %d of %s is not signed by its own key", n+1, ringFile)
		}
		list = append(list, e)
	}
	return list, nil
}

// Trusted returns those keys of a list that may be believed when one is: the ones before it that each vouches for, and
// the ones behind it that each is vouched for by. Without anchor it is all of them, which proves nothing against
// a person who can write to the folder of the list.
func Trusted(list []Entry, anchor ed25519.PublicKey) []verify.PublicKey {
	from, to := 0, len(list)
	if anchor != nil {
		at := slices.IndexFunc(list, func(e Entry) bool { return e.Public.Equal(anchor) })
		if at < 0 {
			return []verify.PublicKey{{ID: record.KeyID(anchor), Key: anchor}}
		}
		for from = at; from > 0 && list[from].FormerPublic.Equal(list[from-1].Public); from-- {
		}
		for to = at + 1; to < len(list) && handed(list[to-1], list[to]); to++ {
		}
	}
	var keys []verify.PublicKey
	for _, e := range list[from:to] {
		keys = append(keys, verify.PublicKey{ID: e.ID, Key: e.Public})
	}
	return keys
}

// handed reports whether a key vouches for the next one.
func handed(former, e Entry) bool {
	return e.FormerPublic.Equal(former.Public) && ed25519.Verify(former.Public, e.Text(), e.Handed)
}

// Enrol puts a key at the end of the list, unless it is there. handed: nil, or the key before it, which vouches for it.
// lost: there is one before it that does not.
func Enrol(ctx context.Context, dir string, key, former Key) (lost bool, err error) {
	err = lockedfile.Edit(ctx, filepath.Join(dir, ringFile), maxRing, func(text []byte) ([]byte, error) {
		list, err := parse(text)
		if err != nil {
			return nil, err
		}
		e := Entry{ID: record.KeyID(key.Public()), Public: key.Public(), Since: time.Now().UTC()}
		if at := slices.IndexFunc(list, func(o Entry) bool { return o.ID == e.ID }); at >= 0 {
			if at < len(list)-1 {
				return nil, fmt.Errorf("the key %s was replaced by %s: it signs no more", e.ID, list[at+1].ID)
			}
			return nil, nil
		}
		if n := len(list); n > 0 {
			e.Former, e.FormerPublic = list[n-1].ID, list[n-1].Public
			if lost = former == nil || !former.Public().Equal(e.FormerPublic); !lost {
				if e.Handed, err = former.Sign(ctx, e.Text()); err != nil {
					return nil, err
				}
			}
		}
		if e.Own, err = key.Sign(ctx, e.Text()); err != nil {
			return nil, err
		}
		line, err := json.Marshal(e)
		if err != nil {
			return nil, err
		}
		if len(text) > 0 && text[len(text)-1] != '\n' {
			text = append(text, '\n')
		}
		return append(append(text, line...), '\n'), nil
	})
	return lost, err
}

// Rotate puts a new key into the file of a key, after the old one vouched for it in the list. Servers that sign with the
// file take the new one by themselves. The old private key is gone then.
func Rotate(ctx context.Context, path, data, dir string) (old, fresh string, err error) {
	f, made, err := OpenFile(path, data)
	if err != nil {
		return "", "", err
	}
	if made {
		return "", "", fmt.Errorf("there was no key in %s; one was made just now", path)
	}
	if _, err := Enrol(ctx, dir, f, nil); err != nil {
		return "", "", err
	}
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return "", "", err
	}
	next := path + ".next"
	if err := errors.Join(ignoreMissing(os.Remove(next)), writeNew(next, key)); err != nil {
		return "", "", err
	}
	defer os.Remove(PublicPath(next)) //nolint:errcheck // the one beside path is written below
	if _, err := Enrol(ctx, dir, private{key}, f); err != nil {
		return "", "", errors.Join(err, os.Remove(next))
	}
	if err := os.Rename(next, path); err != nil {
		return "", "", err
	}
	return record.KeyID(f.Public()), record.KeyID(private{key}.Public()), errors.Join(lockedfile.SyncDir(filepath.Dir(path)), writePublic(path, private{key}.Public()))
}

func ignoreMissing(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
