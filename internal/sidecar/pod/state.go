package pod

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/skerry-sandbox/skerry/internal/platform/lockedfile"
)

// stateFile lies in the run folder, which the sandbox can only read: what must outlive this process, which is started
// again when it ends.
const (
	stateFile     = ".bridge.json"
	maxStateBytes = 64 << 10
)

// state is what was promised.
type state struct {
	Token      int64    `json:"token"` // the highest that was seen
	Attachment string   `json:"attachment"`
	Anchored   bool     `json:"anchored,omitempty"` // PID 1 of the sandbox has come: a process that comes now is another one
	Filled     []string `json:"filled"`             // targets of mounts that were pushed as a whole: what is missing there was taken away
}

func readState(run string) (s state, err error) {
	_, text, err := lockedfile.Read(filepath.Join(run, stateFile), maxStateBytes)
	if errors.Is(err, fs.ErrNotExist) || err == nil && text == nil {
		return s, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		return s, fmt.Errorf("state: %w", err)
	}
	return s, nil
}

func (s state) write(run string) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return lockedfile.Replace(filepath.Join(run, stateFile), text)
}

func (p *sidecar) filled(m *mount) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if slices.Contains(p.state.Filled, m.Target) {
		return true
	}
	_, err := os.Lstat(m.mark())
	return m.Kept && err == nil
}

// mark is the file that says of what is kept that it was pushed as a whole. Its folder is not the sandbox's.
func (m *mount) mark() string { return m.Folder + ".filled" }

func (p *sidecar) fill(m *mount) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if slices.Contains(p.state.Filled, m.Target) {
		return nil
	}
	if m.Kept {
		if err := lockedfile.Replace(m.mark(), []byte("all that was there is in it\n")); err != nil {
			return fmt.Errorf("mount %s: %w", m.Target, err)
		}
	}
	next := p.state
	next.Filled = append(slices.Clone(next.Filled), m.Target)
	return p.keep(next)
}
