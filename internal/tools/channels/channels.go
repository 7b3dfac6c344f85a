package channels

import (
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/drift/toolscan"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/schema"
	"github.com/skerry-sandbox/skerry/internal/tools/packs"
	"github.com/skerry-sandbox/skerry/internal/tools/packs/manifest"
)

// Packs are the streams of programs.
type Packs interface {
	// Channel returns the pack with the tools of an attached skill; nil: it is not connected.
	Channel(t sandbox.Thread, skill, channel string) *packs.Pack
}

// Options are the parts that Channels work with.
type Options struct {
	Packs Packs // nil: the server takes no packs, and skills have no channels
	// Server is the id of this process.
	Server string
	// Alive reports whether a server process is there.
	Alive func(id string) bool
	Log   *slog.Logger
}

// Channels knows which skills of this server's threads have a channel. All methods may be called at the same time.
type Channels struct {
	o Options

	recording sync.Mutex

	mu      sync.Mutex
	all     map[sandbox.Thread]map[string]*attached
	changed func(sandbox.Thread)
}

// attached is a skill with a channel.
type attached struct {
	sandbox.SkillChannel
	offer *offer // the newest that was seen; nil: no program has connected yet
}

// offer is what a manifest has, ready for calls.
type offer struct {
	skill    string
	manifest *manifest.Manifest
	places   chan struct{} // has a token for each call

	once sync.Once
	made []offered
}

// offered is a tool of a skill.
type offered struct {
	sandbox.Tool
	input, output *schema.Validator // output: nil when the tool promises nothing
	timeout       time.Duration
}

// New returns the channels of a server that has none yet.
func New(o Options) *Channels {
	return &Channels{o: o, all: map[sandbox.Thread]map[string]*attached{}}
}

// Attach has changed called when the tools of a thread's active skills are others. It is called once, before anything is
// attached.
func (c *Channels) Attach(changed func(sandbox.Thread)) { c.changed = changed }

// Changed tells that the program of a skill of a thread has connected, has other tools, or has gone for good.
func (c *Channels) Changed(t sandbox.Thread) {
	if c.changed != nil && len(c.active(t)) > 0 {
		c.changed(t)
	}
}

// put attaches a skill.
func (c *Channels) put(t sandbox.Thread, skill string, ch sandbox.SkillChannel) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all[t] == nil {
		c.all[t] = map[string]*attached{}
	}
	c.all[t][skill] = &attached{SkillChannel: ch}
}

// drop forgets one. It reports whether the skill had a channel.
func (c *Channels) drop(t sandbox.Thread, skill string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	had := c.all[t][skill] != nil
	delete(c.all[t], skill)
	if len(c.all[t]) == 0 {
		delete(c.all, t)
	}
	return had
}

// forget forgets all of a thread that no longer exists.
func (c *Channels) forget(t sandbox.Thread) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.all, t)
}

// has reports whether a skill of the thread has a channel, and whether any has.
func (c *Channels) has(t sandbox.Thread, skill string) (this, any bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all[t][skill] != nil, len(c.all[t]) > 0
}

// activate notes that the thread's agent has a skill's instructions. It returns the tools, and why they are away.
func (c *Channels) activate(t sandbox.Thread, skill string) (tools []sandbox.Tool, away error) {
	c.mu.Lock()
	a := c.all[t][skill]
	if a == nil {
		c.mu.Unlock()
		return nil, nil
	}
	a.Active = true
	p := c.look(t, skill, a)
	o := a.offer
	c.mu.Unlock()
	for _, tool := range o.tools() {
		tools = append(tools, tool.Tool)
	}
	return tools, awayOf(skill, p)
}

// look returns the pack of a skill, nil when there is none, and brings its offer up to date. The caller holds c.mu.
func (c *Channels) look(t sandbox.Thread, skill string, a *attached) *packs.Pack {
	p := c.o.Packs.Channel(t, skill, a.ID)
	if p == nil {
		return nil
	}
	if m := p.Manifest(); a.offer == nil || a.offer.manifest != m {
		c.keep(a, &offer{skill: skill, manifest: m, places: make(chan struct{}, m.Parallel)})
	}
	return p
}

// maxOffers bounds the bytes of all offers. Those of programs that are connected have a bound in package packs.
const maxOffers = 256 << 20

// keep notes what a skill offers, in the place of what others did whose programs have gone when all take too much memory. The
// caller holds c.mu.
func (c *Channels) keep(a *attached, o *offer) {
	a.offer = o
	total := 0
	for _, skills := range c.all {
		for _, other := range skills {
			total += other.offer.bytes()
		}
	}
	for t, skills := range c.all {
		for name, other := range skills {
			if total <= maxOffers {
				return
			}
			if other != a && other.offer != nil && c.o.Packs.Channel(t, name, other.ID) == nil {
				total -= other.offer.bytes()
				other.offer = nil
			}
		}
	}
}

func (o *offer) bytes() int {
	if o == nil {
		return 0
	}
	return o.manifest.Bytes()
}

// awayOf is why the program of a skill cannot be called, or nil.
func awayOf(skill string, p *packs.Pack) error {
	if p != nil && p.Away() == nil {
		return nil
	}
	return sandbox.NotStarted(sandbox.Errorf(sandbox.Unavailable, "the tools of the skill %q are away: the program that has them is not connected now", skill))
}

// active returns the tools of the thread's active skills, in order.
func (c *Channels) active(t sandbox.Thread) []sandbox.Tool {
	var offers []*offer
	c.mu.Lock()
	for _, skill := range slices.Sorted(maps.Keys(c.all[t])) {
		if a := c.all[t][skill]; a.Active {
			c.look(t, skill, a)
			offers = append(offers, a.offer)
		}
	}
	c.mu.Unlock()
	var list []sandbox.Tool
	for _, o := range offers {
		for _, tool := range o.tools() {
			list = append(list, tool.Tool)
		}
	}
	return list
}

// find returns a tool that may be called. p is the program that has it, and places bounds its calls.
func (c *Channels) find(t sandbox.Thread, skill, tool string) (found offered, p *packs.Pack, places chan struct{}, err error) {
	o, p, err := c.offered(t, skill)
	if err != nil {
		return found, nil, nil, err
	}
	tools := o.tools()
	i := slices.IndexFunc(tools, func(o offered) bool { return o.Name == tool })
	if i < 0 {
		return found, nil, nil, sandbox.Errorf(sandbox.NotFound, "the skill %q has no tool %.80q; activate_skill shows those that it has", skill, tool)
	}
	return tools[i], p, o.places, nil
}

// offered returns what an active skill offers, and the program that does, nil when it is away.
func (c *Channels) offered(t sandbox.Thread, skill string) (*offer, *packs.Pack, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.all[t][skill]
	switch {
	case a == nil:
		return nil, nil, sandbox.Errorf(sandbox.NotFound, "no skill %.80q with tools is attached to this thread", skill)
	case !a.Active:
		return nil, nil, sandbox.Errorf(sandbox.Conflict, "the skill %q is not active: call activate_skill before its tools", skill)
	}
	p := c.look(t, skill, a)
	if a.offer == nil {
		return nil, nil, awayOf(skill, p)
	}
	return a.offer, p, nil
}

// tools returns the tools, in the order of the manifest. They are made when they are first needed, and while no lock is
// held: a program may send schemas that take time.
func (o *offer) tools() []offered {
	if o == nil {
		return nil
	}
	o.once.Do(func() { o.made = toolsOf(o.skill, o.manifest) })
	return o.made
}

// toolsOf makes the tools of a manifest, which was checked.
func toolsOf(skill string, m *manifest.Manifest) (tools []offered) {
	var list struct {
		Tools []struct {
			Name         string          `json:"name"`
			Title        string          `json:"title"`
			Description  string          `json:"description"`
			InputSchema  json.RawMessage `json:"inputSchema"`
			OutputSchema json.RawMessage `json:"outputSchema"`
			Annotations  json.RawMessage `json:"annotations"`
		} `json:"tools"`
	}
	if json.Unmarshal(m.List, &list) != nil {
		return nil // it was written by us
	}
	for i, l := range list.Tools {
		if m.Tools[i].Disclosure == string(sandbox.DiscloseHidden) {
			continue
		}
		t := offered{input: schema.New(l.InputSchema, schema.Input), timeout: time.Duration(m.Tools[i].TimeoutSeconds) * time.Second}
		t.Tool = sandbox.Tool{
			Server: sandbox.SkillServer(skill), Name: l.Name, Printed: sandbox.SkillToolName(skill, l.Name), Title: l.Title, Description: l.Description,
			Input: l.InputSchema, Output: l.OutputSchema, Annotations: l.Annotations, Requires: m.Tools[i].Capabilities,
		}
		if t.Description == "" {
			t.Description = l.Title
		}
		t.Findings = toolscan.Tool(t.Tool)
		if len(l.OutputSchema) > 0 {
			t.output = schema.New(l.OutputSchema, schema.Result)
		}
		tools = append(tools, t)
	}
	return tools
}

// checkName refuses the name of a skill that cannot be that of a pack.
func checkName(name string) error {
	err := manifest.CheckID(name)
	if err == nil {
		return nil
	}
	return sandbox.InvalidField("name", "%s", strings.TrimPrefix(sandbox.DetailOf(err), "pack_id: "))
}
