package orchestrator

import (
	"context"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// SkillFile returns one file of one of the thread's skills; path is relative to the skill's folder.
func (r *Orchestrator) SkillFile(ctx context.Context, c sandbox.Caller, id, skill, path string) ([]byte, error) {
	t, err := c.Thread(id)
	if err != nil {
		return nil, err
	}
	view, err := r.skillsOf(ctx, t)
	if err != nil {
		return nil, err
	}
	return view.ReadFile(skill, path)
}
