package signing

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/skerry-sandbox/skerry/internal/audit/record"
	"github.com/skerry-sandbox/skerry/internal/platform/lockedfile"
)

// Heads signs the heads of a log's writers, and keeps the last one of each beside the key, outside the data folder: so
// an end that is cut off in the data folder is found by a reader of that place.
type Heads struct {
	key  Key
	dir  string // of the log
	keep string // folder of the last heads; "" = they are not kept

	mu       sync.Mutex
	enrolled string // the key that was found at the end of the list, or put there
}

// NewHeads makes one for the log in dir.
func NewHeads(key Key, dir, keep string) *Heads { return &Heads{key: key, dir: dir, keep: keep} }

// KeptBeside is the folder of the last heads that belongs to a key file.
func KeptBeside(keyFile string) string { return strings.TrimSuffix(keyFile, ".pem") + ".heads" }

// Sign signs a head.
func (s *Heads) Sign(ctx context.Context, h record.Head) (record.Head, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f, ok := s.key.(*File); ok {
		if err := f.Refresh(); err != nil {
			return h, err
		}
	}
	h.Signer = record.KeyID(s.key.Public())
	if h.Signer != s.enrolled {
		// A key that an operator replaced by hand is enrolled too, without the former key's word.
		if _, err := Enrol(ctx, s.dir, s.key, nil); err != nil {
			return h, err
		}
		s.enrolled = h.Signer
	}
	var err error
	if h.Signature, err = s.key.Sign(ctx, h.Text()); err != nil {
		return h, err
	}
	return h, s.remember(h)
}

// kept is the last head of a writer.
type kept struct {
	Dir  string      `json:"dir"` // of the log
	Head record.Head `json:"head"`
}

func (s *Heads) remember(h record.Head) error {
	if s.keep == "" {
		return nil
	}
	text, err := json.Marshal(kept{s.dir, h})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(s.keep, 0o700); err != nil {
		return err
	}
	// It is written each second, and not synced: after a power cut the one before is as good.
	return lockedfile.Swap(filepath.Join(s.keep, h.Writer+".json"), text, 0o600)
}

// Tidy forgets the heads of logs whose folder no longer exists.
func Tidy(keep string) error {
	paths, err := filepath.Glob(filepath.Join(keep, "*.json"))
	if keep == "" || err != nil {
		return err
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		var k kept
		if err != nil || json.Unmarshal(text, &k) != nil || k.Dir == "" {
			continue
		}
		if _, err := os.Stat(k.Dir); errors.Is(err, fs.ErrNotExist) {
			if err := ignoreMissing(os.Remove(path)); err != nil {
				return err
			}
		}
	}
	return nil
}

// Kept returns the heads that are kept for the log in dir. A file that cannot be read is passed over: a power cut may
// leave one empty.
func Kept(keep, dir string) ([]record.Head, error) {
	entries, err := os.ReadDir(keep)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var heads []record.Head
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(keep, e.Name()))
		var k kept
		if err != nil || !strings.HasSuffix(e.Name(), ".json") || json.Unmarshal(text, &k) != nil || k.Dir != dir {
			continue
		}
		heads = append(heads, k.Head)
	}
	return heads, nil
}
