package mounted

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/platform/deadline"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/skills"
	"github.com/skerry-sandbox/skerry/internal/store"
)

const (
	// skillsEvery is how often it is looked for what other processes changed: each look costs a few stats
	// a user, and a change must be in running sandboxes within a second.
	skillsEvery = 250 * time.Millisecond
	// sweepEvery is how often unused files are looked for: far more often than the hour after which they go.
	sweepEvery = 10 * time.Minute
	// skillsShare: with so many users that a look takes long, looks become rarer: a twentieth of the time goes
	// there at most. Before an exec its own thread is looked at anyway.
	skillsShare = 20
	// spareEvery is how often it is looked whether a spare folder was used.
	spareEvery = time.Second
	// changeTimeout bounds a change that has begun.
	changeTimeout = 10 * time.Second
	// maxAllowed is how many skills a thread's list may name.
	maxAllowed = 1000
)

// Switches is what is needed of package extensions. The zero Owner stands for all users.
type Switches interface {
	SetEnabled(ctx context.Context, o sandbox.Owner, section, name string, enabled bool) error
	Forget(ctx context.Context, o sandbox.Owner, section, name string) error
}

// Copies are what sandboxes with disks of their own have of the server's files.
type Copies interface {
	// Await waits a moment at most until the instances have what changed.
	Await(ctx context.Context, which func(*instance.Instance) bool)
}

// Records are those of threads.
type Records interface {
	// Ensure makes the thread's files and its record when they are missing.
	Ensure(ctx context.Context, t sandbox.Thread) (uid int, err error)
	// ChangeRecord changes the record alone, which it makes when it is missing. change may be called again.
	ChangeRecord(ctx context.Context, t sandbox.Thread, change func(*sandbox.ThreadInfo)) (sandbox.ThreadInfo, error)
}

// Options are the parts that Skills work with.
type Options struct {
	Library  *skills.Library
	Views    *skills.Views
	Switches Switches // the library reads them, too
	Virtuals *skills.Virtuals
	Live     *instance.Map
	Copies   Copies
	Threads  Records
	Store    *store.Store
	Audit    *audit.Log
	Log      *slog.Logger
}

// Skills are those of users and threads, as this server's sandboxes show them.
type Skills struct {
	o   Options
	ctx context.Context // ends with the server
	// Threads is what agents do with the skills of their thread.
	Threads *ThreadSkills
}

// New returns the skills of a server that has no sandboxes yet.
func New(ctx context.Context, o Options) *Skills {
	k := &Skills{o: o, ctx: ctx}
	k.Threads = &ThreadSkills{k: k}
	return k
}

// skillsSection is where the switches of skills are.
const skillsSection = "skills"

// Of returns the skills that a thread has now, whether or not it has a sandbox.
func (k *Skills) Of(ctx context.Context, t sandbox.Thread) (*skills.View, error) {
	if inst := k.o.Live.Find(t); inst != nil && inst.IsReady() {
		return k.ofInstance(inst)
	}
	only, err := k.allowList(ctx, t)
	if err != nil {
		return nil, err
	}
	set, err := k.o.Library.Set(t.Owner)
	if err != nil {
		return nil, err
	}
	return set.View(only, k.o.Virtuals.Of(t)), nil
}

// allowList is the list that a thread was narrowed to, nil when it was not.
func (k *Skills) allowList(ctx context.Context, t sandbox.Thread) ([]string, error) {
	info, err := k.o.Store.Thread(ctx, t)
	if err != nil && !errors.Is(err, sandbox.NotFound) {
		return nil, err
	}
	return info.Skills, nil
}

// ofInstance returns the skills of an instance's thread. As long as nothing changes it is the same pointer.
func (k *Skills) ofInstance(inst *instance.Instance) (*skills.View, error) {
	set, err := k.o.Library.Set(inst.Thread.Owner)
	if err != nil {
		return nil, err
	}
	return k.view(inst, set), nil
}

// view returns what an instance's thread has of a set.
func (k *Skills) view(inst *instance.Instance, set *skills.Set) *skills.View {
	virtual := k.o.Virtuals.Of(inst.Thread)
	inst.Skills.Mu.Lock()
	defer inst.Skills.Mu.Unlock()
	s := &inst.Skills
	if s.View == nil || s.Set != set || !SameList(s.From, s.Only) || !slices.Equal(s.Virtual, virtual) {
		s.View, s.Set, s.From, s.Virtual = set.View(s.Only, virtual), set, s.Only, virtual
	}
	return s.View
}

// SameList also tells no list from an empty one.
func SameList(a, b []string) bool { return (a == nil) == (b == nil) && slices.Equal(a, b) }

// Refresh updates an instance's folder. It costs a few stats when nothing has changed.
func (k *Skills) Refresh(inst *instance.Instance) error {
	view, err := k.ofInstance(inst)
	if err != nil {
		return err
	}
	return inst.Show(view)
}

// First fills the folder of an instance that starts, or is adopted, before any code sees it. When it
// cannot be known what the thread may have, it has none.
func (k *Skills) First(ctx context.Context, inst *instance.Instance) error {
	if err := k.readAllowList(ctx, inst); err != nil {
		return err
	}
	if _, err := k.ofInstance(inst); err != nil {
		k.o.Log.Error("the sandbox starts without skills", "thread", inst.Thread.String(), "error", err)
		return inst.Show(skills.NoView())
	}
	return k.Refresh(inst)
}

// ShowEverybody fills the folder of an instance that has no thread yet with what most users see.
func (k *Skills) ShowEverybody(inst *instance.Instance) error {
	return inst.Show(k.o.Library.Everybody())
}

// readAllowList takes the thread's list from the store. narrowSkills writes it there first, so that the later of the
// two has it right.
func (k *Skills) readAllowList(ctx context.Context, inst *instance.Instance) (err error) {
	inst.Skills.Mu.Lock()
	defer inst.Skills.Mu.Unlock()
	inst.Skills.Only, err = k.allowList(ctx, inst.Thread)
	return err
}

// End lets go of an instance's folder. That of a sandbox that is surely gone is used again.
func (k *Skills) End(inst *instance.Instance, removed bool) {
	if inst.Skills.Folder == nil {
		return
	}
	inst.Skills.Folder.Close()
	if !removed {
		return
	}
	if err := k.o.Views.Return(inst.Skills.Folder); err != nil {
		k.o.Log.Warn("folder of skills not kept", "error", err)
	}
}

// Narrow remembers the list that a thread is narrowed to, and shows it in a sandbox that runs.
func (k *Skills) Narrow(ctx context.Context, t sandbox.Thread, only []string) error {
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
	} else if err := k.checkNames(t, only); err != nil {
		return err
	}
	// Not its folders: with them it could not have a sandbox of the pool.
	if _, err := k.o.Threads.ChangeRecord(ctx, t, func(info *sandbox.ThreadInfo) { info.Skills = only }); err != nil {
		return err
	}
	all := k.o.Live.Seconds(t)
	if own := k.o.Live.Find(t); own != nil {
		all = append(all, own)
	}
	for _, inst := range all {
		// A starting one may have read the list before: it is brought up to date by the next round. The list comes from
		// the store, because two requests may come here in another order than their writes did.
		if err := k.readAllowList(ctx, inst); err != nil {
			return err
		}
		if inst.IsReady() {
			k.ShowNow(ctx, inst)
		}
	}
	return nil
}

// checkNames refuses names that nothing has: they are typing errors, and would leave the thread without the skill.
func (k *Skills) checkNames(t sandbox.Thread, only []string) error {
	set, err := k.o.Library.Set(t.Owner)
	if err != nil {
		return err
	}
	virtual := k.o.Virtuals.Of(t)
	for _, name := range only {
		own := slices.ContainsFunc(virtual, func(m *skills.Member) bool { return m.Skill.Name == name })
		if _, err := set.Get(name); err != nil && !own {
			return sandbox.Errorf(sandbox.Invalid, "skills: there is no skill %.80q; GET /api/skills lists them", name)
		}
	}
	return nil
}

func (k *Skills) show(inst *instance.Instance) {
	if err := k.Refresh(inst); err != nil && k.ctx.Err() == nil && inst.Ending() == "" {
		k.o.Log.Warn("a change of skills did not reach a sandbox; it is tried again", "thread", inst.Thread.String(), "error", err)
	}
}

// ShowNow is show for a caller who waits, for a moment at most, until the sandbox has it.
func (k *Skills) ShowNow(ctx context.Context, inst *instance.Instance) {
	k.show(inst)
	k.o.Copies.Await(ctx, func(other *instance.Instance) bool { return other == inst })
}

// Push writes each change of skills into all sandboxes, until the orchestrator is closed: what this process
// changed at once, what others did at the next look.
func (k *Skills) Push() {
	tick := time.NewTimer(skillsEvery)
	defer tick.Stop()
	swept := time.Now()
	k.sweep(swept)
	for {
		if now := time.Now(); now.Sub(swept) > sweepEvery {
			swept = now
			k.sweep(now)
		}
		changed := k.o.Library.Changed() // before the look, so that no change falls between
		began := time.Now()
		k.Look()
		tick.Reset(max(skillsEvery, skillsShare*time.Since(began)))
		select {
		case <-k.ctx.Done():
			return
		case <-tick.C:
		case <-changed:
		}
	}
}

// sweep removes files of skills that no user and no thread has. Virtual skills of other servers are kept by those.
func (k *Skills) sweep(now time.Time) {
	err := k.o.Virtuals.Keep(now)
	if err == nil {
		err = k.o.Library.Sweep()
	}
	if err != nil {
		k.o.Log.Warn("unused skills are kept", "error", err)
	}
}

// Look is one round of pushSkills. It looks at the files of each user once, however many sandboxes the user
// has. It does nothing for sandboxes that show what they should.
func (k *Skills) Look() {
	k.o.Library.Refresh()
	sets := map[sandbox.Owner]*skills.Set{}
	instance.Each(k.o.Live.All(), func(inst *instance.Instance) bool {
		set, seen := sets[inst.Thread.Owner]
		if !seen {
			set, _ = k.o.Library.Set(inst.Thread.Owner) //nolint:errcheck // show says what is wrong
			sets[inst.Thread.Owner] = set
		}
		return set == nil || !inst.Skills.Folder.Shows(k.view(inst, set))
	}, k.show)
}

// PrepareSpares has a folder ready for the next sandbox, with what most users see, until the orchestrator is
// closed.
func (k *Skills) PrepareSpares() {
	tick := time.NewTicker(spareEvery)
	defer tick.Stop()
	for {
		if err := errors.Join(k.o.Views.Prepare(k.o.Library.Everybody()), k.o.Views.Clean()); err != nil {
			k.o.Log.Warn("no spare folder of skills", "error", err)
		}
		select {
		case <-k.ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// UserSkills lists all skills of the caller, sorted by name, also skills that are off or do not load.
func (k *Skills) UserSkills(_ context.Context, c sandbox.Caller) ([]sandbox.Skill, error) {
	set, err := k.o.Library.Set(c.Owner)
	if err != nil {
		return nil, err
	}
	return set.List(), nil
}

// UserSkill returns one skill of the caller. NotFound when there is none of that name.
func (k *Skills) UserSkill(_ context.Context, c sandbox.Caller, name string) (sandbox.Skill, error) {
	set, err := k.o.Library.Set(c.Owner)
	if err != nil {
		return sandbox.Skill{}, err
	}
	return set.Get(name)
}

// SwitchSkill switches a skill on or off for the caller, or for all users who did not choose otherwise,
// which only an operator may. When it returns, the caller's sandboxes show it.
func (k *Skills) SwitchSkill(ctx context.Context, c sandbox.Caller, name string, enabled, everybody bool) (sandbox.Skill, error) {
	sk, err := k.UserSkill(ctx, c, name)
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
	err = k.change(ctx, c, audit.ActionSkillSwitch, sk.Name, what, func(ctx context.Context) error {
		return k.o.Switches.SetEnabled(ctx, owner, skillsSection, sk.Name, enabled)
	})
	if err != nil {
		return sk, err
	}
	return k.UserSkill(ctx, c, sk.Name)
}

// SkillText returns the SKILL.md of one of the caller's own skills. NotFound when it is none.
func (k *Skills) SkillText(_ context.Context, c sandbox.Caller, name string) ([]byte, error) {
	return k.o.Library.Text(c.Owner, name)
}

// ReadSkill returns the SKILL.md of any skill of the caller, also of one that is off. NotFound when there is none, or it cannot
// be read.
func (k *Skills) ReadSkill(_ context.Context, c sandbox.Caller, name string) ([]byte, error) {
	set, err := k.o.Library.Set(c.Owner)
	if err != nil {
		return nil, err
	}
	return set.Text(name)
}

// WriteSkillText replaces the SKILL.md of one of the caller's own skills, and keeps its other files.
// NotFound, Invalid and Conflict as skills.Library.SetText says.
func (k *Skills) WriteSkillText(ctx context.Context, c sandbox.Caller, name string, text []byte) (sandbox.Skill, error) {
	err := k.change(ctx, c, audit.ActionSkillWrite, name, "", func(ctx context.Context) error {
		_, err := k.o.Library.SetText(ctx, c.Owner, name, text)
		return err
	})
	if err != nil {
		return sandbox.Skill{}, err
	}
	return k.UserSkill(ctx, c, name)
}

// DeleteSkill takes one of the caller's own skills away, and forgets whether it was on. NotFound when it
// is none.
func (k *Skills) DeleteSkill(ctx context.Context, c sandbox.Caller, name string) error {
	return k.change(ctx, c, audit.ActionSkillDelete, name, "", func(ctx context.Context) error {
		if err := k.o.Library.Remove(ctx, c.Owner, name); err != nil {
			return err
		}
		return k.o.Switches.Forget(ctx, c.Owner, skillsSection, name)
	})
}

// change makes a change between the record of the attempt and that of its outcome, and shows it in the
// caller's sandboxes. It is finished once begun.
func (k *Skills) change(ctx context.Context, c sandbox.Caller, action, name, detail string, change func(context.Context) error) error {
	rec := audit.About(c, sandbox.Thread{Owner: c.Owner}, action, audit.PhaseAttempt)
	rec.Subject, rec.Detail = name, detail
	return k.o.Audit.Do(ctx, rec, func(*audit.Record) error {
		ctx, cancel := deadline.Detached(ctx, changeTimeout)
		defer cancel()
		if err := change(ctx); err != nil {
			return err
		}
		instance.Each(k.o.Live.All(), func(inst *instance.Instance) bool { return inst.Thread.Owner == c.Owner }, k.show)
		k.o.Copies.Await(ctx, func(inst *instance.Instance) bool { return inst.Thread.Owner == c.Owner })
		k.o.Library.Notify()
		return nil
	})
}
