package skerry

import (
	"context"
	"net/http"
	"net/url"
)

// Servers lists the MCP servers that the thread may use.
func (t *Thread) Servers(ctx context.Context) (*ToolServers, error) {
	return get[ToolServers](ctx, t.c, Request{Method: http.MethodGet, Path: t.path("servers")})
}

// ToolQuery finds tools.
type ToolQuery struct {
	Query  string
	Server string
	Detail string // "name", "desc" (when empty) or "full"
	// Limit is how many tools are described, at most 15. When 0, full describes the few that fit best, and names the
	// next ones (ToolSearch.Also).
	Limit int
	// OutputSchema asks for the schemas of results too, with full.
	OutputSchema bool
}

// SearchTools finds tools by what they do.
func (t *Thread) SearchTools(ctx context.Context, query ToolQuery) (*ToolSearch, error) {
	q := url.Values{}
	set(q, "query", query.Query)
	set(q, "server", query.Server)
	set(q, "detail", query.Detail)
	setInt(q, "limit", query.Limit)
	if query.OutputSchema {
		q.Set("output_schema", "true")
	}
	return get[ToolSearch](ctx, t.c, Request{Method: http.MethodGet, Path: t.path("tools"), Query: q})
}

// ServerTools lists all tools of one MCP server.
func (t *Thread) ServerTools(ctx context.Context, server string) ([]Tool, error) {
	return list[Tool](ctx, t.c, t.path("servers", server, "tools"), nil)
}

// CallTool calls a tool by its name, {server}__{tool}, with an input that is a JSON object. An error
// of the tool itself is a result with IsError. It may wait for an approval, for as long as Options.Wait.
func (t *Thread) CallTool(ctx context.Context, tool string, input any) (*ToolResult, error) {
	body := map[string]any{"tool": tool}
	if input != nil {
		body["input"] = input
	}
	ctx, cancel := context.WithTimeout(ctx, t.c.o.Wait)
	defer cancel()
	return get[ToolResult](ctx, t.c, Request{Method: http.MethodPost, Path: t.path("tools", "call"), Body: body, Once: true})
}

// Prompt is what to tell the agent of this thread, and which tools to register with it.
func (t *Thread) Prompt(ctx context.Context) (*Prompt, error) {
	return get[Prompt](ctx, t.c, Request{Method: http.MethodGet, Path: t.path("prompt")})
}

// CreateContext starts an interpreter that keeps its variables between runs of ExecuteCode.
func (t *Thread) CreateContext(ctx context.Context, o ContextOptions) (*CodeContext, error) {
	ctx, cancel := context.WithTimeout(ctx, t.c.o.Wait)
	defer cancel()
	return get[CodeContext](ctx, t.c, Request{Method: http.MethodPost, Path: t.path("contexts"), Body: o})
}

// Contexts lists the contexts of the thread, oldest first, and the newest that were lost.
func (t *Thread) Contexts(ctx context.Context) ([]CodeContext, error) {
	return list[CodeContext](ctx, t.c, t.path("contexts"), nil)
}

// Context is a context as it is now.
func (t *Thread) Context(ctx context.Context, id string) (*CodeContext, error) {
	return get[CodeContext](ctx, t.c, Request{Method: http.MethodGet, Path: t.path("contexts", id)})
}

// InterruptContext ends the run in a context, which keeps its variables.
func (t *Thread) InterruptContext(ctx context.Context, id string) (*CodeContext, error) {
	return get[CodeContext](ctx, t.c, Request{Method: http.MethodPost, Path: t.path("contexts", id, "interrupt"), Once: true})
}

// RestartContext empties a context, or starts a lost one again, empty.
func (t *Thread) RestartContext(ctx context.Context, id string) (*CodeContext, error) {
	return get[CodeContext](ctx, t.c, Request{Method: http.MethodPost, Path: t.path("contexts", id, "restart"), Once: true})
}

// DeleteContext ends a context with all that it started.
func (t *Thread) DeleteContext(ctx context.Context, id string) error {
	return t.call(ctx, Request{Method: http.MethodDelete, Path: t.path("contexts", id)}, nil)
}

// Command returns the text of a plugin's command with its arguments put in.
func (t *Thread) Command(ctx context.Context, plugin, command, args string) (*PluginMessage, error) {
	return get[PluginMessage](ctx, t.c, Request{Method: http.MethodPost, Path: t.path("commands", plugin, command), Body: map[string]string{"args": args}})
}

// Messages are those of a thread's users.
type Messages struct{ t *Thread }

// Read returns the text of the command that a user typed, such as "/sales:call-prep Acme", or the message as it came
// when it is no command: send every message of a user through it.
func (m Messages) Read(ctx context.Context, text string) (*TypedCommand, error) {
	return get[TypedCommand](ctx, m.t.c, Request{Method: http.MethodPost, Path: m.t.path("commands"), Body: map[string]string{"text": text}})
}

// Health asks the server whether it lives; it takes no key.
func (c *Client) Health(ctx context.Context) (*Health, error) {
	return get[Health](ctx, c, Request{Method: http.MethodGet, Path: "/healthz"})
}

// Skills lists the caller's skills.
func (c *Client) Skills(ctx context.Context) ([]Skill, error) {
	all, err := get[struct {
		Skills []Skill `json:"skills"`
	}](ctx, c, Request{Method: http.MethodGet, Path: "/api/skills"})
	if err != nil {
		return nil, err
	}
	return all.Skills, nil
}

// Skill is one skill of the caller.
func (c *Client) Skill(ctx context.Context, name string) (*Skill, error) {
	return get[Skill](ctx, c, Request{Method: http.MethodGet, Path: "/api/skills/" + url.PathEscape(name)})
}

// SwitchSkill switches a skill on or off.
func (c *Client) SwitchSkill(ctx context.Context, name string, on bool) (*Skill, error) {
	return get[Skill](ctx, c, Request{Method: http.MethodPut, Path: "/api/skills/" + url.PathEscape(name), Body: map[string]bool{"enabled": on}})
}

// InstallSkill installs a .skill file that lies in the thread.
func (t *Thread) InstallSkill(ctx context.Context, path string) (*SkillInstalled, error) {
	return get[SkillInstalled](ctx, t.c, Request{Method: http.MethodPost, Path: "/api/skills/install", Body: map[string]string{"thread_id": t.ID, "path": path}})
}

// SearchSkills finds skills of the thread by what they are for; all of them when query is "".
func (t *Thread) SearchSkills(ctx context.Context, query string) ([]SkillFound, error) {
	q := url.Values{}
	set(q, "query", query)
	found, err := get[struct {
		Skills []SkillFound `json:"skills"`
	}](ctx, t.c, Request{Method: http.MethodGet, Path: t.path("skills"), Query: q})
	if err != nil {
		return nil, err
	}
	return found.Skills, nil
}

// AddSkill adds a skill to the thread.
func (t *Thread) AddSkill(ctx context.Context, s VirtualSkill) (*AddedSkill, error) {
	return get[AddedSkill](ctx, t.c, Request{Method: http.MethodPost, Path: t.path("skills"), Body: s})
}

// RemoveSkill takes away a skill of AddSkill.
func (t *Thread) RemoveSkill(ctx context.Context, name string) error {
	return t.call(ctx, Request{Method: http.MethodDelete, Path: t.path("skills", name)}, nil)
}

// ActivateSkill returns the text of a skill for the agent, and names what is in its folder.
func (t *Thread) ActivateSkill(ctx context.Context, name string) (*ActiveSkill, error) {
	return get[ActiveSkill](ctx, t.c, Request{Method: http.MethodPost, Path: t.path("skills", name, "activate")})
}

// SkillFile reads one file of a skill.
func (t *Thread) SkillFile(ctx context.Context, name, path string) (*SkillFile, error) {
	return get[SkillFile](ctx, t.c, Request{Method: http.MethodGet, Path: t.path("skills", name, "files"), Query: at(path)})
}
