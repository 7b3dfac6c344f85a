package pod

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/skerry-sandbox/skerry/internal/lockedfile"
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
	Anchored   bool     `json:"anchored,omitempty"` // PID 1 of the sandbox has come: whoever comes now is not it
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

func (p *sidecar) filled(target string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Contains(p.state.Filled, target)
}

func (p *sidecar) fill(target string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if slices.Contains(p.state.Filled, target) {
		return nil
	}
	next := p.state
	next.Filled = append(slices.Clone(next.Filled), target)
	return p.keep(next)
}
