package upstream

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/skills"
	"github.com/skerry-sandbox/skerry/internal/skills/format"
	"github.com/skerry-sandbox/skerry/internal/tools/search"
)

// Servers is what MCP servers offer to threads.
type Servers interface {
	Upstream(ctx context.Context, c sandbox.Caller, thread string, kind sandbox.UpstreamKind, server string) ([]sandbox.UpstreamItem, error)
	// AskUpstream sends a request to a server and records it.
	AskUpstream(ctx context.Context, c sandbox.Caller, thread string, r sandbox.UpstreamRequest) (json.RawMessage, error)
}

// Threads is the skills that threads have.
type Threads interface {
	ThreadSkills(ctx context.Context, c sandbox.Caller, thread string) ([]sandbox.Skill, error)
	SkillManifest(ctx context.Context, c sandbox.Caller, thread, name string) (sandbox.SkillManifest, error)
	SkillFile(ctx context.Context, c sandbox.Caller, thread, skill, path string) ([]byte, error)
	ActivateSkill(ctx context.Context, c sandbox.Caller, thread, name string) (sandbox.ActiveSkill, error)
	SearchSkills(ctx context.Context, c sandbox.Caller, thread, query string) (found []sandbox.SkillFound, matches int, err error)
	AddVirtualSkill(ctx context.Context, c sandbox.Caller, thread string, sk sandbox.VirtualSkill) (sandbox.Skill, error)
	RemoveVirtualSkill(ctx context.Context, c sandbox.Caller, thread, name string) error
	SkillsChanged() <-chan struct{}
}

// listedFor is how long the lists of the servers of a thread are used: a prompt and a search follow each
// other closely.
const listedFor = 30 * time.Second

// maxListed bounds the lists that are remembered, and mostFound what a search returns.
const (
	maxListed = 1000
	mostFound = 15
)

// Skills are those of threads with those of their MCP servers. All methods may be called at the same time.
type Skills struct {
	Threads
	servers Servers

	mu     sync.Mutex
	listed map[asker]listing
}

// asker is a caller of a thread. Keys of one user may differ in the servers that they may use.
type asker struct {
	thread sandbox.Thread
	key    string
}

// listing is what the servers of a thread offered at a time.
type listing struct {
	at     time.Time
	skills []offered
}

// New puts the skills of servers beside those of threads.
func New(t Threads, s Servers) *Skills {
	return &Skills{Threads: t, servers: s, listed: map[asker]listing{}}
}

// of lists what the servers of a thread offer. A server that does not answer offers nothing.
func (s *Skills) of(ctx context.Context, c sandbox.Caller, thread string) []offered {
	t, err := c.Thread(thread)
	if err != nil {
		return nil
	}
	by := asker{t, c.KeyID}
	s.mu.Lock()
	known, ok := s.listed[by]
	s.mu.Unlock()
	if ok && time.Since(known.at) < listedFor {
		return known.skills
	}
	items, err := s.servers.Upstream(ctx, c, thread, sandbox.UpstreamSkills, "")
	if err != nil {
		return nil
	}
	list := read(items)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.listed) >= maxListed {
		clear(s.listed)
	}
	s.listed[by] = listing{time.Now(), list}
	return list
}

// ThreadSkills lists the skills of a thread and of its servers, as skills.InOrder sorts them. One that was activated is
// there once.
func (s *Skills) ThreadSkills(ctx context.Context, c sandbox.Caller, thread string) ([]sandbox.Skill, error) {
	own, err := s.Threads.ThreadSkills(ctx, c, thread)
	if err != nil {
		return nil, err
	}
	more := s.of(ctx, c, thread)
	if len(more) == 0 {
		return own, nil
	}
	list := make([]sandbox.Skill, 0, len(own)+len(more))
	for _, sk := range own {
		if !slices.ContainsFunc(more, func(o offered) bool { return o.isAdded(sk) }) {
			list = append(list, sk)
		}
	}
	for _, o := range more {
		list = append(list, o.skill)
	}
	skills.InOrder(list)
	return list, nil
}

// SearchSkills finds skills of a thread, and behind them those of its servers.
func (s *Skills) SearchSkills(ctx context.Context, c sandbox.Caller, thread, query string) (found []sandbox.SkillFound, matches int, err error) {
	found, matches, err = s.Threads.SearchSkills(ctx, c, thread, query)
	if err != nil {
		return nil, 0, err
	}
	more := s.of(ctx, c, thread)
	if len(more) == 0 {
		return found, matches, nil
	}
	hits, count := pick(more, query)
	for _, o := range hits {
		if len(found) < mostFound {
			found = append(found, sandbox.SkillFound{Name: o.skill.Name, Description: o.skill.Description, Location: o.skill.Location})
		}
	}
	return found, matches + count, nil
}

// pick returns those that fit a query, best first, and how many do.
func pick(list []offered, query string) (hits []offered, count int) {
	if strings.TrimSpace(query) == "" {
		return list[:min(len(list), mostFound)], len(list)
	}
	tools := make([]sandbox.Tool, len(list))
	for i, o := range list {
		tools[i] = sandbox.Tool{Name: o.skill.Name, Printed: o.skill.Name, Description: o.skill.Description}
	}
	at, count := search.New(tools).Find(query, mostFound, nil)
	for _, h := range at {
		hits = append(hits, list[h.Tool])
	}
	return hits, count
}

// ActivateSkill returns the instructions of a skill. One of a server is read, checked and added to the
// thread first.
func (s *Skills) ActivateSkill(ctx context.Context, c sandbox.Caller, thread, name string) (sandbox.ActiveSkill, error) {
	for _, o := range s.of(ctx, c, thread) {
		if o.skill.Name != name {
			continue
		}
		if _, err := s.Threads.SkillManifest(ctx, c, thread, name); sandbox.KindOf(err) == sandbox.NotFound {
			err = s.add(ctx, c, thread, o)
			if err != nil {
				return sandbox.ActiveSkill{}, err
			}
		}
		active, err := s.Threads.ActivateSkill(ctx, c, thread, name)
		active.Name = name
		return active, err
	}
	return s.Threads.ActivateSkill(ctx, c, thread, name)
}

// readTime bounds the reading of one skill.
const readTime = 2 * time.Minute

// add reads a skill of a server and adds it to the thread.
func (s *Skills) add(ctx context.Context, c sandbox.Caller, thread string, o offered) error {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	folder, err := o.folder()
	if err != nil {
		return err
	}
	own, err := s.Threads.ThreadSkills(ctx, c, thread)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(own, func(sk sandbox.Skill) bool { return sk.Name == folder && !o.isAdded(sk) }) {
		return sandbox.Errorf(sandbox.Conflict, "the thread has a skill %q already, which is not of the MCP server %q; remove it first", folder, o.server)
	}
	files, err := s.files(ctx, c, thread, o)
	if err != nil {
		return err
	}
	sk := sandbox.VirtualSkill{Name: folder, Files: files, Server: o.server, Replace: true}
	_, err = s.Threads.AddVirtualSkill(ctx, c, thread, sk)
	return err
}

// files reads all files of a skill and checks them.
func (s *Skills) files(ctx context.Context, c sandbox.Caller, thread string, o offered) (map[string]string, error) {
	files := map[string]string{}
	for _, r := range o.resources {
		params, err := json.Marshal(map[string]string{"uri": r.URI})
		if err != nil {
			return nil, sandbox.Wrap(sandbox.Internal, err, "the request cannot be written")
		}
		answer, err := s.servers.AskUpstream(ctx, c, thread, sandbox.UpstreamRequest{Server: o.server, Method: "resources/read", Params: params})
		if err != nil {
			return nil, err
		}
		data, err := r.content(answer)
		if err != nil {
			return nil, sandbox.Wrap(sandbox.ToolFailed, err, "the skill %q is not what the MCP server %q listed: %.200q %s", o.skill.Name, o.server, r.path, err)
		}
		files[r.path] = string(data)
	}
	if err := o.sameFront([]byte(files[skillFile])); err != nil {
		return nil, sandbox.Wrap(sandbox.ToolFailed, err, "the skill %q is not what the MCP server %q listed: %s", o.skill.Name, o.server, err)
	}
	return files, nil
}

// Skills are used where the skills of threads are.
var _ Threads = (*Skills)(nil)

// skillFile is the file that every skill has.
const skillFile = "SKILL.md"

// limits of the extension.
const (
	maxFiles = format.MaxFiles
	maxBytes = format.MaxBytes
)
