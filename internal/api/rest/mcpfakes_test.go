package rest

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// What /mcp passes on, as fakes: the servers "fs" and "odd name/", each with a tool, a resource and a prompt.

func (w *world) Offer(_ context.Context, c sandbox.Caller, _ string) (sandbox.Offer, error) {
	w.mu.Lock()
	o := sandbox.Offer{Mode: w.mode, Code: !w.noCode}
	w.mu.Unlock()
	if o.Mode == "" {
		o.Mode = sandbox.ModeCode
	}
	o.Tools.Tools = []sandbox.Tool{
		{
			Server: "fs", Name: "read", Printed: "fs__read", Title: "Read", Description: "reads", Input: json.RawMessage(`{"type":"object","x-order":1}`),
			Output: json.RawMessage(`{"type":"object"}`), Annotations: json.RawMessage(`{"readOnlyHint":true,"x":1}`), Meta: json.RawMessage(`{"k":"v"}`),
		},
		{Server: "fs", Name: "rare", Printed: "fs__rare", Input: json.RawMessage(`{"type":"object"}`), Disclosure: w.disclose, Active: w.active},
		{Server: "odd name/", Name: "x", Printed: "odd_name___x", Input: json.RawMessage(`{"type":"object"}`)},
	}
	return o, w.see(c)
}

func (w *world) WatchTool(ctx context.Context, c sandbox.Caller, _ string, ref sandbox.ToolRef, input json.RawMessage, watch sandbox.ToolWatch) (sandbox.ToolResult, error) {
	w.mu.Lock()
	w.ref, w.input = ref, input
	w.mu.Unlock()
	if strings.HasSuffix(ref.Printed+ref.Name, "none") {
		return sandbox.ToolResult{}, sandbox.Errorf(sandbox.NotFound, "there is no tool")
	}
	if watch.Progress != nil {
		watch.Progress(sandbox.ToolProgress{Progress: 1, Total: 2, Message: "half"})
	}
	if w.hang != nil {
		select {
		case <-ctx.Done():
			close(w.hang)
			return sandbox.ToolResult{}, sandbox.Wrap(sandbox.Unavailable, ctx.Err(), "the caller went away")
		case <-w.release:
		}
	}
	return sandbox.ToolResult{Raw: json.RawMessage(`{"content":[{"type":"text","text":"t"},{"type":"image","data":"AQI=","mimeType":"image/png"},
		{"type":"resource","resource":{"uri":"f:///a","text":"x"}},{"type":"resource_link","uri":"f:///b","name":"b"}],
		"structuredContent":{"big":12345678901234567890},"_meta":{"own":1},"resultType":"complete"}`)}, w.see(c)
}

func (w *world) Upstream(_ context.Context, c sandbox.Caller, _ string, kind sandbox.UpstreamKind, server string) ([]sandbox.UpstreamItem, error) {
	var list []sandbox.UpstreamItem
	for _, s := range []string{"fs", "odd name/"} {
		if server != "" && s != server {
			continue
		}
		it := sandbox.UpstreamItem{Server: s, Name: "f:///a", Raw: json.RawMessage(`{"uri":"f:///a","name":"a","x":1}`)}
		switch kind {
		case sandbox.UpstreamTemplates:
			it.Name, it.Raw = "f:///{p}", json.RawMessage(`{"uriTemplate":"f:///{p}","name":"t"}`)
		case sandbox.UpstreamPrompts:
			it.Name, it.Printed, it.Raw = "greet", strings.ReplaceAll(strings.ReplaceAll(s, " ", "_"), "/", "_")+"__greet", json.RawMessage(`{"name":"greet"}`)
		}
		list = append(list, it)
	}
	return list, w.see(c)
}

func (w *world) AskUpstream(_ context.Context, c sandbox.Caller, _ string, r sandbox.UpstreamRequest) (json.RawMessage, error) {
	w.mu.Lock()
	w.asked = r
	w.mu.Unlock()
	if strings.Contains(string(r.Params), "gone") {
		return nil, sandbox.Wrap(sandbox.ToolFailed, &sandbox.UpstreamError{Code: -32002, Message: "gone", Data: json.RawMessage(`{"uri":"u"}`)}, "gone")
	}
	return json.RawMessage(`{"contents":[{"uri":"f:///a","text":"hello"}],"messages":[{"role":"user","content":{"type":"resource_link","uri":"f:///a","name":"a"}}],
		"completion":{"values":["v"]}}`), w.see(c)
}

func (w *world) ToolsChanged() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.changed == nil {
		w.changed = make(chan struct{})
	}
	return w.changed
}

func (w *world) UpstreamChanged(kind sandbox.UpstreamKind) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.others == nil {
		w.others = map[sandbox.UpstreamKind]chan struct{}{}
	}
	if w.others[kind] == nil {
		w.others[kind] = make(chan struct{})
	}
	return w.others[kind]
}

func (w *world) ActivateTool(_ context.Context, c sandbox.Caller, _, name string) (sandbox.Tool, error) {
	if name != "fs__rare" {
		return sandbox.Tool{}, sandbox.Errorf(sandbox.NotFound, "there is no tool %q", name)
	}
	w.setActive(true)
	return sandbox.Tool{Server: "fs", Name: "rare", Printed: name, Input: json.RawMessage(`{"type":"object"}`)}, w.see(c)
}

func (w *world) PutAwayTool(_ context.Context, c sandbox.Caller, _, name string) error {
	if name != "fs__rare" {
		return sandbox.Errorf(sandbox.NotFound, "the tool %q is not active", name)
	}
	w.setActive(false)
	return w.see(c)
}

// setActive says whether the tool fs__rare is active now.
func (w *world) setActive(on bool) {
	w.mu.Lock()
	w.active = on
	w.mu.Unlock()
	select {
	case w.activeChanged <- struct{}{}:
	default:
	}
}

func (w *world) WatchActiveTools(sandbox.Thread) (changed <-chan struct{}, stop func()) {
	return w.activeChanged, func() {}
}

func (w *world) SkillsChanged() <-chan struct{} { return w.UpstreamChanged("skills") }

// changeOf says that what servers offer of a kind is another one now.
func (w *world) changeOf(kind sandbox.UpstreamKind) {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.others[kind])
	delete(w.others, kind)
}

// change says that the tools are others now.
func (w *world) change() {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.changed)
	w.changed = make(chan struct{})
}

func (w *world) ThreadSkills(_ context.Context, c sandbox.Caller, _ string) ([]sandbox.Skill, error) {
	if w.noSkills {
		return nil, w.see(c)
	}
	return []sandbox.Skill{
		{Name: "hidden", Description: "for people", Location: "/mnt/skills/public/hidden/SKILL.md", Hidden: true},
		{Name: "pdf", Description: "reads", Location: "/mnt/skills/public/pdf/SKILL.md"},
	}, w.see(c)
}

func (w *world) SkillManifest(_ context.Context, c sandbox.Caller, _, name string) (sandbox.SkillManifest, error) {
	if name != "pdf" && name != "hidden" {
		return sandbox.SkillManifest{}, sandbox.Errorf(sandbox.NotFound, "there is no skill %q", name)
	}
	return sandbox.SkillManifest{
		Name: name, Description: "reads", Location: "/mnt/skills/public/" + name + "/SKILL.md", Frontmatter: json.RawMessage(`{"name":"` + name + `","description":"reads"}`),
		Files: []sandbox.SkillFile{{Path: "SKILL.md", Bytes: 2, Digest: "sha256:00"}, {Path: "a/b/c.bin", Bytes: 3, Digest: "sha256:01"}, {Path: "a/run.py", Bytes: 4, Digest: "sha256:02"}},
	}, w.see(c)
}

func (w *world) SkillFile(_ context.Context, c sandbox.Caller, _, skill, path string) ([]byte, error) {
	switch {
	case skill == "pdf" && path == "SKILL.md":
		return []byte("hi"), w.see(c)
	case skill == "pdf" && path == "a/b/c.bin":
		return []byte("\xff\x00\x01"), w.see(c)
	}
	return nil, sandbox.Errorf(sandbox.NotFound, "no such file")
}

func (w *world) ActivateSkill(_ context.Context, c sandbox.Caller, _, name string) (sandbox.ActiveSkill, error) {
	if name != "pdf" {
		return sandbox.ActiveSkill{}, sandbox.Errorf(sandbox.NotFound, "there is no skill %q", name)
	}
	return sandbox.ActiveSkill{Name: name, Location: "/mnt/skills/public/pdf/SKILL.md", Body: "\n# Read\n", Resources: []string{"a/run.py"}}, w.see(c)
}

func (w *world) SearchSkills(_ context.Context, c sandbox.Caller, _, query string) ([]sandbox.SkillFound, int, error) {
	return []sandbox.SkillFound{{Name: "pdf", Description: query, Location: "/mnt/skills/public/pdf/SKILL.md"}}, 7, w.see(c)
}

func (w *world) AddVirtualSkill(_ context.Context, c sandbox.Caller, _ string, sk sandbox.VirtualSkill) (sandbox.Skill, error) {
	w.virtual = sk
	return sandbox.Skill{Name: sk.Name, Description: sk.Description, Category: "virtual", Location: "/mnt/skills/virtual/" + sk.Name + "/SKILL.md", Digest: "sha256:00"}, w.see(c)
}

func (w *world) RemoveVirtualSkill(_ context.Context, c sandbox.Caller, _, name string) error {
	if name != w.virtual.Name {
		return sandbox.Errorf(sandbox.NotFound, "there is no virtual skill")
	}
	return w.see(c)
}

func (w *world) WatchUpstream(ctx context.Context, c sandbox.Caller, _, server, uri string, changed func()) error {
	if server != "fs" {
		return sandbox.Errorf(sandbox.NotFound, "there is no MCP server")
	}
	w.watching <- watching{ctx, uri, changed}
	return w.see(c)
}

// watching is one call of WatchUpstream.
type watching struct {
	ctx     context.Context
	uri     string
	changed func()
}
