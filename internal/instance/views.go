package instance

import (
	"sync"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/skills"
)

// ToolsView is what an instance's /mnt/code-api shows.
type ToolsView struct {
	Mu      sync.Mutex
	Caller  sandbox.Caller // whose tools it shows: who ran something here last
	Version uint64         // of the hub, when it was written
	Whole   bool           // no server was still waited for then
	Written bool
	Set     sandbox.ToolSet

	disk sync.Mutex // held while the folder is written; never while an MCP server is waited for
	gone bool       // the folder goes, and must not come back
}

// SkillsView is what an instance's /mnt/skills and /mnt/plugins show.
type SkillsView struct {
	Folder *skills.Folder

	Mu      sync.Mutex
	Only    []string // the thread's list; nil = all
	Set     *skills.Set
	From    []string // only, as it was when view was made
	Virtual []*skills.Member
	View    *skills.View // made of the three above; nil before the first
}

// Write has the folder written, unless the sandbox is gone.
func (v *ToolsView) Write(materialize func() error) error {
	v.disk.Lock()
	defer v.disk.Unlock()
	if v.gone {
		return sandbox.Errorf(sandbox.Unavailable, "the sandbox has ended")
	}
	return materialize()
}

// Forbid waits for a write that goes on; none comes after it.
func (v *ToolsView) Forbid() {
	v.disk.Lock()
	defer v.disk.Unlock()
	v.gone = true
}
