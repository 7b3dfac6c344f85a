package orchestrator

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/platform/deadline"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/skills"
)

const (
	// skillsEvery is how often it is looked for what other processes changed: each look costs a few stats
	// a user, and a change must be in running sandboxes within a second.
	skillsEvery = 250 * time.Millisecond
	// skillsShare: with so many users that a look takes long, looks become rarer: a twentieth of the time goes
	// there at most. Before an exec its own thread is looked at anyway.
	skillsShare = 20
	// spareEvery is how often it is looked whether a spare folder was used.
	spareEvery = time.Second
	// maxAllowed is how many skills a thread's list may name.
	maxAllowed = 1000
)

// skillSwitches is what the orchestrator needs of package extensions. The zero Owner stands for everybody.
type skillSwitches interface {
	SetEnabled(ctx context.Context, o sandbox.Owner, section, name string, enabled bool) error
	Forget(ctx context.Context, o sandbox.Owner, section, name string) error
}

// skillsSection is where the switches of skills are.
const skillsSection = "skills"

// skillsOf returns the skills that a thread has now, whether or not it has a sandbox.
func (r *Orchestrator) skillsOf(ctx context.Context, t sandbox.Thread) (*skills.View, error) {
	if inst := r.find(t); inst != nil && inst.IsReady() {
		return r.boxSkills(inst)
	}
	only, err := r.allowList(ctx, t)
	if err != nil {
		return nil, err
	}
	set, err := r.o.Skills.Set(t.Owner)
	if err != nil {
		return nil, err
	}
	return set.View(only, r.virtuals.Of(t)), nil
}

// allowList is the list that a thread was narrowed to, nil when it was not.
func (r *Orchestrator) allowList(ctx context.Context, t sandbox.Thread) ([]string, error) {
	info, err := r.o.Store.Thread(ctx, t)
	if err != nil && !errors.Is(err, sandbox.NotFound) {
		return nil, err
	}
	return info.Skills, nil
}

// boxSkills returns the skills of an instance's thread. As long as nothing changes it is the same pointer.
func (r *Orchestrator) boxSkills(inst *instance.Instance) (*skills.View, error) {
	set, err := r.o.Skills.Set(inst.Thread.Owner)
	if err != nil {
		return nil, err
	}
	return r.boxView(inst, set), nil
}

// boxView returns what an instance's thread has of a set.
func (r *Orchestrator) boxView(inst *instance.Instance, set *skills.Set) *skills.View {
	virtual := r.virtuals.Of(inst.Thread)
	inst.Skills.Mu.Lock()
	defer inst.Skills.Mu.Unlock()
	s := &inst.Skills
	if s.View == nil || s.Set != set || !sameList(s.From, s.Only) || !slices.Equal(s.Virtual, virtual) {
		s.View, s.Set, s.From, s.Virtual = set.View(s.Only, virtual), set, s.Only, virtual
	}
	return s.View
}

// sameList also tells no list from an empty one.
func sameList(a, b []string) bool { return (a == nil) == (b == nil) && slices.Equal(a, b) }

// refreshSkills brings an instance's folder up to date. It costs a few stats when nothing has changed.
func (r *Orchestrator) refreshSkills(inst *instance.Instance) error {
	view, err := r.boxSkills(inst)
	if err != nil {
		return err
	}
	return inst.Show(view)
}

// firstSkills fills the folder of an instance that starts, or is adopted, before any code sees it. When it
// cannot be known what the thread may have, it has none.
func (r *Orchestrator) firstSkills(ctx context.Context, inst *instance.Instance) error {
	if err := r.readAllowList(ctx, inst); err != nil {
		return err
	}
	if _, err := r.boxSkills(inst); err != nil {
		r.o.Log.Error("the sandbox starts without skills", "thread", inst.Thread.String(), "error", err)
		return inst.Show(skills.NoView())
	}
	return r.refreshSkills(inst)
}

// readAllowList takes the thread's list from the store. narrowSkills writes it there first, so that the later of the
// two has it right.
func (r *Orchestrator) readAllowList(ctx context.Context, inst *instance.Instance) (err error) {
	inst.Skills.Mu.Lock()
	defer inst.Skills.Mu.Unlock()
	inst.Skills.Only, err = r.allowList(ctx, inst.Thread)
	return err
}

// endSkills lets go of an instance's folder. That of a sandbox that is surely gone is used again.
func (r *Orchestrator) endSkills(inst *instance.Instance, removed bool) {
	if inst.Skills.Folder == nil {
		return
	}
	inst.Skills.Folder.Close()
	if !removed {
		return
	}
	if err := r.o.Views.Return(inst.Skills.Folder); err != nil {
		r.o.Log.Warn("folder of skills not kept", "error", err)
	}
}

// narrowSkills remembers the list that a thread is narrowed to, and shows it in a sandbox that runs.
func (r *Orchestrator) narrowSkills(ctx context.Context, t sandbox.Thread, only []string) error {
	if only == nil {
		return nil
	}
	if len(only) > maxAllowed {
		return sandbox.Errorf(sandbox.Invalid, "skills: %d names, at most %d", len(only), maxAllowed)
	}
	only = append([]string{}, only...) // never nil: an empty list is not none
	slices.Sort(only)
	only = slices.Compact(only)
	if slices.Contains(only, sandbox.AllSkills) {
		only = nil
	} else if err := r.checkNames(t, only); err != nil {
		return err
	}
	info, err := r.ensureRecord(ctx, t) // not its folders: with them it could not have a sandbox of the pool
	if err != nil {
		return err
	}
	if !sameList(info.Skills, only) {
		info.Skills = only
		if err := r.o.Store.PutThread(ctx, info); err != nil {
			return err
		}
	}
	inst := r.find(t)
	if inst == nil {
		return nil
	}
	// One that is starting may have read the list before: it is brought up to date by the next round.
	inst.Skills.Mu.Lock()
	inst.Skills.Only = info.Skills
	inst.Skills.Mu.Unlock()
	if inst.IsReady() {
		r.showSkillsNow(ctx, inst)
	}
	return nil
}

// checkNames refuses names that nothing has: they are typing errors, and would leave the thread without the skill.
func (r *Orchestrator) checkNames(t sandbox.Thread, only []string) error {
	set, err := r.o.Skills.Set(t.Owner)
	if err != nil {
		return err
	}
	virtual := r.virtuals.Of(t)
	for _, name := range only {
		own := slices.ContainsFunc(virtual, func(m *skills.Member) bool { return m.Skill.Name == name })
		if _, err := set.Get(name); err != nil && !own {
			return sandbox.Errorf(sandbox.Invalid, "skills: there is no skill %.80q; GET /api/skills lists them", name)
		}
	}
	return nil
}

func (r *Orchestrator) showSkills(inst *instance.Instance) {
	if err := r.refreshSkills(inst); err != nil && r.ctx.Err() == nil && inst.Ending() == "" {
		r.o.Log.Warn("a change of skills did not reach a sandbox; it is tried again", "thread", inst.Thread.String(), "error", err)
	}
}

// showSkillsNow is showSkills for somebody who waits, for a moment at most, until the sandbox has it.
func (r *Orchestrator) showSkillsNow(ctx context.Context, inst *instance.Instance) {
	r.showSkills(inst)
	r.awaitPushes(ctx, func(other *instance.Instance) bool { return other == inst })
}

// pushSkills brings each change of skills into all sandboxes, until the orchestrator is closed: what this process
// changed at once, what others did at the next look.
func (r *Orchestrator) pushSkills() {
	tick := time.NewTimer(skillsEvery)
	defer tick.Stop()
	if err := r.o.Skills.Sweep(); err != nil {
		r.o.Log.Warn("skills that nobody uses are kept", "error", err)
	}
	for {
		changed := r.o.Skills.Changed() // before the look, so that no change falls between
		began := time.Now()
		r.lookAtSkills()
		tick.Reset(max(skillsEvery, skillsShare*time.Since(began)))
		select {
		case <-r.ctx.Done():
			return
		case <-tick.C:
		case <-changed:
		}
	}
}

// lookAtSkills is one round of pushSkills. The files of each user are looked at once, however many sandboxes the
// user has, and nothing is done for those that show what they should.
func (r *Orchestrator) lookAtSkills() {
	r.o.Skills.Refresh()
	sets := map[sandbox.Owner]*skills.Set{}
	r.eachInstance(func(inst *instance.Instance) bool {
		set, seen := sets[inst.Thread.Owner]
		if !seen {
			set, _ = r.o.Skills.Set(inst.Thread.Owner) //nolint:errcheck // showSkills says what is wrong
			sets[inst.Thread.Owner] = set
		}
		return set == nil || !inst.Skills.Folder.Shows(r.boxView(inst, set))
	}, r.showSkills)
}

// prepareSpares has a folder ready for the next sandbox, with what most users see, until the orchestrator is
// closed.
func (r *Orchestrator) prepareSpares() {
	tick := time.NewTicker(spareEvery)
	defer tick.Stop()
	for {
		if err := errors.Join(r.o.Views.Prepare(r.o.Skills.Everybody()), r.o.Views.Clean()); err != nil {
			r.o.Log.Warn("no spare folder of skills", "error", err)
		}
		select {
		case <-r.ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// eachInstance calls do for all instances that are ready and wanted, some side by side, and waits for all.
func (r *Orchestrator) eachInstance(wanted func(*instance.Instance) bool, do func(*instance.Instance)) {
	var wg sync.WaitGroup
	defer wg.Wait()
	free := make(chan struct{}, pushParallel)
	for _, inst := range r.all() {
		if !inst.IsReady() || inst.Ending() != "" || !wanted(inst) {
			continue
		}
		free <- struct{}{}
		wg.Go(func() {
			defer func() { <-free }()
			do(inst)
		})
	}
}

// UserSkills lists all skills of the caller, sorted by name, also those that are off or do not load.
func (r *Orchestrator) UserSkills(_ context.Context, c sandbox.Caller) ([]sandbox.Skill, error) {
	set, err := r.o.Skills.Set(c.Owner)
	if err != nil {
		return nil, err
	}
	return set.List(), nil
}

// UserSkill returns one skill of the caller. NotFound when there is none of that name.
func (r *Orchestrator) UserSkill(_ context.Context, c sandbox.Caller, name string) (sandbox.Skill, error) {
	set, err := r.o.Skills.Set(c.Owner)
	if err != nil {
		return sandbox.Skill{}, err
	}
	return set.Get(name)
}

// SwitchSkill switches a skill on or off for the caller, or for everybody who did not choose otherwise,
// which only an operator may. When it returns, the caller's sandboxes show it.
func (r *Orchestrator) SwitchSkill(ctx context.Context, c sandbox.Caller, name string, enabled, everybody bool) (sandbox.Skill, error) {
	sk, err := r.UserSkill(ctx, c, name)
	if err != nil {
		return sk, err
	}
	owner := c.Owner
	if everybody {
		if !c.Operator { // of all tenants
			return sk, sandbox.Errorf(sandbox.Forbidden, "only an operator switches skills for everybody: an administrator of the operators' tenant")
		}
		owner = sandbox.Owner{}
	}
	what := map[bool]string{true: "on", false: "off"}[enabled]
	if everybody {
		what += " for everybody"
	}
	err = r.skillChange(ctx, c, audit.ActionSkillSwitch, sk.Name, what, func(ctx context.Context) error {
		return r.o.Switches.SetEnabled(ctx, owner, skillsSection, sk.Name, enabled)
	})
	if err != nil {
		return sk, err
	}
	return r.UserSkill(ctx, c, sk.Name)
}

// SkillText returns the SKILL.md of one of the caller's own skills. NotFound when it is none.
func (r *Orchestrator) SkillText(_ context.Context, c sandbox.Caller, name string) ([]byte, error) {
	return r.o.Skills.Text(c.Owner, name)
}

// WriteSkillText replaces the SKILL.md of one of the caller's own skills, and keeps its other files.
// NotFound, Invalid and Conflict as skills.Library.SetText says.
func (r *Orchestrator) WriteSkillText(ctx context.Context, c sandbox.Caller, name string, text []byte) (sandbox.Skill, error) {
	err := r.skillChange(ctx, c, audit.ActionSkillWrite, name, "", func(ctx context.Context) error {
		_, err := r.o.Skills.SetText(ctx, c.Owner, name, text)
		return err
	})
	if err != nil {
		return sandbox.Skill{}, err
	}
	return r.UserSkill(ctx, c, name)
}

// DeleteSkill takes one of the caller's own skills away, and forgets whether it was on. NotFound when it
// is none.
func (r *Orchestrator) DeleteSkill(ctx context.Context, c sandbox.Caller, name string) error {
	return r.skillChange(ctx, c, audit.ActionSkillDelete, name, "", func(ctx context.Context) error {
		if err := r.o.Skills.Remove(ctx, c.Owner, name); err != nil {
			return err
		}
		return r.o.Switches.Forget(ctx, c.Owner, skillsSection, name)
	})
}

// skillChange makes a change between the record of the attempt and that of its outcome, and shows it in the
// caller's sandboxes. It is finished once begun.
func (r *Orchestrator) skillChange(ctx context.Context, c sandbox.Caller, action, name, detail string, change func(context.Context) error) error {
	rec := audit.About(c, sandbox.Thread{Owner: c.Owner}, action, audit.PhaseAttempt)
	rec.Subject, rec.Detail = name, detail
	return r.o.Audit.Do(ctx, rec, func(*audit.Record) error {
		ctx, cancel := deadline.Detached(ctx, cleanupTimeout)
		defer cancel()
		if err := change(ctx); err != nil {
			return err
		}
		r.eachInstance(func(inst *instance.Instance) bool { return inst.Thread.Owner == c.Owner }, r.showSkills)
		r.awaitPushes(ctx, func(inst *instance.Instance) bool { return inst.Thread.Owner == c.Owner })
		r.o.Skills.Notify()
		return nil
	})
}
