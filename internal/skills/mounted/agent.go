package mounted

import (
	"cmp"
	"context"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/skills"
	"github.com/skerry-sandbox/skerry/internal/skills/format"
	"github.com/skerry-sandbox/skerry/internal/tools/search"
)

// ThreadSkills is what agents do with the skills of their thread: they find, activate and read them, and have some of their
// own.
type ThreadSkills struct {
	k       *Skills
	indexes indexes
}

// ofThread returns the skills of the caller's thread.
func (a *ThreadSkills) ofThread(ctx context.Context, c sandbox.Caller, id string) (*skills.View, error) {
	t, err := c.Thread(id)
	if err != nil {
		return nil, err
	}
	return a.k.Of(ctx, t)
}

// ThreadSkills lists the skills of a thread, as skills.InOrder sorts them. Callers must not change it.
func (a *ThreadSkills) ThreadSkills(ctx context.Context, c sandbox.Caller, id string) ([]sandbox.Skill, error) {
	view, err := a.ofThread(ctx, c, id)
	if err != nil {
		return nil, err
	}
	return view.List(), nil
}

// SkillManifest returns one skill of a thread with its files. NotFound when the thread has none of that name.
func (a *ThreadSkills) SkillManifest(ctx context.Context, c sandbox.Caller, id, name string) (sandbox.SkillManifest, error) {
	view, err := a.ofThread(ctx, c, id)
	if err != nil {
		return sandbox.SkillManifest{}, err
	}
	return view.Manifest(name)
}

// ActivateSkill returns the instructions of one of the thread's skills, and records that the agent took them.
// ${CLAUDE_SKILL_DIR} in them is the skill's folder. NotFound when the thread has none of that name.
func (a *ThreadSkills) ActivateSkill(ctx context.Context, c sandbox.Caller, id, name string) (sandbox.ActiveSkill, error) {
	view, err := a.ofThread(ctx, c, id)
	if err != nil {
		return sandbox.ActiveSkill{}, err
	}
	m, err := view.Manifest(name)
	if err != nil {
		return sandbox.ActiveSkill{}, err
	}
	sk, err := view.Get(m.Name)
	if err != nil {
		return sandbox.ActiveSkill{}, err
	}
	text, err := view.ReadFile(m.Name, "SKILL.md")
	if err != nil {
		return sandbox.ActiveSkill{}, err
	}
	front, _, err := format.ReadFront(text)
	if err != nil { // it loaded before; what can be told apart is the body
		a.k.o.Log.Debug("frontmatter of an activated skill", "skill", m.Name, "error", err)
	}
	rec := audit.About(c, sandbox.Thread{Owner: c.Owner, ID: id}, audit.ActionSkillActivate, audit.PhaseResult)
	rec.Subject, rec.Outcome = m.Name, "ok"
	if err := a.k.o.Audit.AppendResult(ctx, rec); err != nil {
		return sandbox.ActiveSkill{}, err
	}
	active := sandbox.ActiveSkill{
		Name: m.Name, Location: m.Location, Resources: []string{}, AllowedTools: sk.AllowedTools,
		Body: strings.ReplaceAll(string(front.Body), "${CLAUDE_SKILL_DIR}", path.Dir(m.Location)),
	}
	for _, f := range m.Files {
		if f.Path != "SKILL.md" {
			active.Resources = append(active.Resources, f.Path)
		}
	}
	return active, nil
}

// mostSkills is how many skills a search returns at most.
const mostSkills = 15

// SearchSkills finds skills of a thread by what they do, at most 15, best first, and says how many fit at
// all. For an empty query it returns the first ones of the list.
func (a *ThreadSkills) SearchSkills(ctx context.Context, c sandbox.Caller, id, query string) (found []sandbox.SkillFound, matches int, err error) {
	view, err := a.ofThread(ctx, c, id)
	if err != nil {
		return nil, 0, err
	}
	list := slices.DeleteFunc(slices.Clone(view.List()), func(sk sandbox.Skill) bool { return sk.Hidden })
	found, matches = []sandbox.SkillFound{}, len(list)
	order := make([]int, 0, mostSkills)
	if strings.TrimSpace(query) == "" {
		for i := range min(len(list), mostSkills) {
			order = append(order, i)
		}
	} else {
		var hits []search.Hit
		hits, matches = a.indexes.of(view, list).Find(query, mostSkills, nil)
		for _, h := range hits {
			order = append(order, h.Tool)
		}
	}
	for _, i := range order {
		found = append(found, sandbox.SkillFound{Name: list[i].Name, Description: list[i].Description, Location: list[i].Location})
	}
	return found, matches, nil
}

// indexes remembers the indexes of the views that were searched last: as long as nothing changes, a
// running sandbox has the same view.
type indexes struct {
	mu    sync.Mutex
	byOne map[*skills.View]*search.Index
}

const maxSkillIndexes = 16

func (x *indexes) of(view *skills.View, list []sandbox.Skill) *search.Index {
	x.mu.Lock()
	ix := x.byOne[view]
	x.mu.Unlock()
	if ix != nil {
		return ix
	}
	tools := make([]sandbox.Tool, 0, len(list))
	for _, sk := range list {
		tools = append(tools, sandbox.Tool{Name: sk.Name, Printed: sk.Name, Description: cmp.Or(sk.Title, sk.Name) + ". " + sk.Description})
	}
	ix = search.New(tools)
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.byOne == nil || len(x.byOne) >= maxSkillIndexes {
		x.byOne = map[*skills.View]*search.Index{}
	}
	x.byOne[view] = ix
	return ix
}

// AddVirtualSkill adds a skill to a thread, in memory only; a running sandbox shows it when this
// returns. Errors as skill.Virtuals.Add says.
func (a *ThreadSkills) AddVirtualSkill(ctx context.Context, c sandbox.Caller, id string, sk sandbox.VirtualSkill) (sandbox.Skill, error) {
	t, err := c.Thread(id)
	if err != nil {
		return sandbox.Skill{}, err
	}
	if _, err := a.k.o.Threads.Ensure(ctx, t); err != nil {
		return sandbox.Skill{}, err
	}
	var made sandbox.Skill
	err = a.changeVirtual(ctx, c, t, audit.ActionSkillWrite, sk.Name, func() error {
		var err error
		made, err = a.k.o.Virtuals.Add(t, sk)
		return err
	})
	return made, err
}

// RemoveVirtualSkill takes a virtual skill away again. NotFound when the thread has none of that name.
func (a *ThreadSkills) RemoveVirtualSkill(ctx context.Context, c sandbox.Caller, id, name string) error {
	t, err := c.Thread(id)
	if err != nil {
		return err
	}
	return a.changeVirtual(ctx, c, t, audit.ActionSkillDelete, name, func() error { return a.k.o.Virtuals.Remove(t, name) })
}

// SkillsChanged returns a channel that is closed when the skills of any thread may have changed by an act of this
// process.
func (a *ThreadSkills) SkillsChanged() <-chan struct{} { return a.k.o.Library.Changed() }

// changeVirtual makes a change, shows it in the thread's sandbox, and records what came of it.
func (a *ThreadSkills) changeVirtual(ctx context.Context, c sandbox.Caller, t sandbox.Thread, action, name string, change func() error) error {
	err := change()
	if err == nil {
		if inst := a.k.o.Live.Find(t); inst != nil && inst.IsReady() {
			a.k.ShowNow(ctx, inst)
		}
		a.k.o.Library.Notify()
	}
	rec := audit.About(c, t, action, audit.PhaseResult)
	rec.Subject, rec.Detail, rec.Outcome = name, "virtual", "ok"
	if err != nil {
		rec.Outcome, rec.Detail = "error", "virtual: "+string(sandbox.KindOf(err))
	}
	if len(rec.Subject) > 200 {
		rec.Subject = strings.ToValidUTF8(rec.Subject[:200], "")
	}
	if e := a.k.o.Audit.AppendResult(ctx, rec); e != nil {
		return e
	}
	return err
}

// SkillFile returns one file of one of the thread's skills; path is relative to the skill's folder.
func (a *ThreadSkills) SkillFile(ctx context.Context, c sandbox.Caller, id, skill, path string) ([]byte, error) {
	t, err := c.Thread(id)
	if err != nil {
		return nil, err
	}
	view, err := a.k.Of(ctx, t)
	if err != nil {
		return nil, err
	}
	return view.ReadFile(skill, path)
}
