package channels

import (
	"context"
	"maps"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/skills/upstream"
)

// Threads keep the records of threads.
type Threads interface {
	Records
	// ChangeRecord changes the thread's record. change may be called again when another request was faster.
	ChangeRecord(ctx context.Context, t sandbox.Thread, change func(*sandbox.ThreadInfo)) (sandbox.ThreadInfo, error)
}

// Guard knows who may use which tools.
type Guard interface {
	// Visible takes out of a list what the caller must not know of.
	Visible(ctx context.Context, c sandbox.Caller, t sandbox.Thread, tools []sandbox.Tool) ([]sandbox.Tool, error)
}

// Skills are those of threads, with their channels.
type Skills struct {
	*upstream.Skills
	channels *Channels
	threads  Threads
	guard    Guard
}

// Over puts channels over the skills of threads.
func (c *Channels) Over(s *upstream.Skills, t Threads, g Guard) *Skills { return &Skills{s, c, t, g} }

// maxStale is how many channels of processes that have ended a thread's record keeps, so that a skill which comes back is
// active as before.
const maxStale = 50

// AttachSkill gives the thread a skill whose tools a program provides with the key. Errors as AddVirtualSkill; NotSupported:
// the server takes no packs.
func (s *Skills) AttachSkill(ctx context.Context, c sandbox.Caller, thread string, sk sandbox.VirtualSkill) (sandbox.Skill, sandbox.SkillKey, error) {
	none := sandbox.SkillKey{}
	if s.channels.o.Packs == nil {
		return sandbox.Skill{}, none, sandbox.Errorf(sandbox.NotSupported, "this server takes no tools of programs: packs.enabled switches them on")
	}
	if err := checkName(sk.Name); err != nil {
		return sandbox.Skill{}, none, err
	}
	t, err := c.Thread(thread)
	if err != nil {
		return sandbox.Skill{}, none, err
	}
	key, ch, err := newKey(t, sk.Name)
	if err != nil {
		return sandbox.Skill{}, none, err
	}
	made, err := s.Skills.AddVirtualSkill(ctx, c, thread, sk)
	if err != nil {
		return made, none, err
	}
	ch.Server, ch.Digest = s.channels.o.Server, made.Digest
	if err := s.record(ctx, t, sk.Name, ch); err != nil { // a skill whose tools never come would mislead the agent
		s.channels.drop(t, sk.Name)
		_ = s.Skills.RemoveVirtualSkill(ctx, c, thread, sk.Name) // the first error is what the caller is told
		return made, none, err
	}
	s.tell(t)
	return made, sandbox.SkillKey{PackID: sk.Name, Key: key}, nil
}

// record notes the channel of a skill, in the thread's record and here.
func (s *Skills) record(ctx context.Context, t sandbox.Thread, skill string, ch sandbox.SkillChannel) error {
	s.channels.recording.Lock()
	defer s.channels.recording.Unlock()
	_, err := s.threads.ChangeRecord(ctx, t, func(info *sandbox.ThreadInfo) {
		before := info.Channels[skill]
		ch.Active = before.Active && before.Digest == ch.Digest
		info.Channels = s.living(info.Channels)
		info.Channels[skill] = ch
	})
	if err == nil {
		s.channels.put(t, skill, ch)
	}
	return err
}

// living is a copy of the channels of a record. When they are many, those of processes that have ended are left out.
func (s *Skills) living(all map[string]sandbox.SkillChannel) map[string]sandbox.SkillChannel {
	all = maps.Clone(all)
	if all == nil {
		return map[string]sandbox.SkillChannel{}
	}
	if len(all) >= maxStale {
		maps.DeleteFunc(all, func(_ string, c sandbox.SkillChannel) bool { return !s.channels.o.Alive(c.Server) })
	}
	return all
}

// AddVirtualSkill gives the thread a skill without a channel.
func (s *Skills) AddVirtualSkill(ctx context.Context, c sandbox.Caller, thread string, sk sandbox.VirtualSkill) (sandbox.Skill, error) {
	made, err := s.Skills.AddVirtualSkill(ctx, c, thread, sk)
	if err != nil {
		return made, err
	}
	return made, s.end(ctx, c, thread, sk.Name)
}

// RemoveVirtualSkill takes a skill away, with its channel.
func (s *Skills) RemoveVirtualSkill(ctx context.Context, c sandbox.Caller, thread, name string) error {
	if err := s.Skills.RemoveVirtualSkill(ctx, c, thread, name); err != nil {
		return err
	}
	return s.end(ctx, c, thread, name)
}

// end ends the channel of a skill that a thread has no longer.
func (s *Skills) end(ctx context.Context, c sandbox.Caller, thread, name string) error {
	t, err := c.Thread(thread)
	if err != nil {
		return err
	}
	s.channels.recording.Lock()
	defer s.channels.recording.Unlock()
	if !s.channels.drop(t, name) {
		return nil
	}
	_, err = s.threads.ChangeRecord(ctx, t, func(info *sandbox.ThreadInfo) {
		info.Channels = maps.Clone(info.Channels)
		delete(info.Channels, name)
	})
	s.tell(t)
	return err
}

// ActivateSkill returns the instructions of a skill, with the tools of its channel, which can be called from then on.
func (s *Skills) ActivateSkill(ctx context.Context, c sandbox.Caller, thread, name string) (sandbox.ActiveSkill, error) {
	active, err := s.Skills.ActivateSkill(ctx, c, thread, name)
	if err != nil {
		return active, err
	}
	t, err := c.Thread(thread)
	if err != nil {
		return active, err
	}
	if has, _ := s.channels.has(t, active.Name); !has {
		return active, nil
	}
	if active.Tools, active.Away, err = s.activate(ctx, t, active.Name); err != nil {
		return active, err
	}
	s.tell(t)
	active.Tools, err = s.guard.Visible(ctx, c, t, active.Tools)
	return active, err
}

// activate notes it in the thread's record and here.
func (s *Skills) activate(ctx context.Context, t sandbox.Thread, skill string) (tools []sandbox.Tool, away, err error) {
	s.channels.recording.Lock()
	defer s.channels.recording.Unlock()
	_, err = s.threads.ChangeRecord(ctx, t, func(info *sandbox.ThreadInfo) {
		if ch, ok := info.Channels[skill]; ok {
			ch.Active = true
			info.Channels = maps.Clone(info.Channels)
			info.Channels[skill] = ch
		}
	})
	if err != nil {
		return nil, nil, err
	}
	tools, away = s.channels.activate(t, skill)
	return tools, away, nil
}

// tell has the wrappers in the thread's sandbox follow.
func (s *Skills) tell(t sandbox.Thread) {
	if s.channels.changed != nil {
		s.channels.changed(t)
	}
}
