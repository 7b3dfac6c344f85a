package rest

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/skerry-sandbox/skerry/internal/api/rest/exchange"
	"github.com/skerry-sandbox/skerry/internal/api/rest/route"
	"github.com/skerry-sandbox/skerry/internal/prompt"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/service"
)

// toolRoutes are the routes of tools.
type toolRoutes struct {
	tools   service.Tools
	prompts service.Prompts
	servers mcpServers
}

type searchIn struct {
	route.ThreadIn
	Query  string `query:"query" maxLength:"1000" doc:"What the tool should do; all tools when absent"`
	Server string `query:"server" maxLength:"256" doc:"Only tools of this server"`
	Detail string `query:"detail" enum:"name,desc,full" default:"desc" doc:"desc: with a line of description each. full: with the description and the parameters; long descriptions are cut, and the whole is in the file at wrapper_path"`
	Limit  int    `query:"limit" minimum:"1" maximum:"15" doc:"How many tools to describe; when absent 15, and at detail full up to 4 that fit nearly as well as the best: also names the next ones"`

	OutputSchema bool `query:"output_schema" doc:"At detail full: with the schemas of results"`
}

type callBody struct {
	Tool   string          `json:"tool" minLength:"1" maxLength:"512" doc:"The printed name, or with server the tool's own"`
	Server string          `json:"server,omitempty" maxLength:"256"`
	Input  json.RawMessage `json:"input,omitempty" doc:"The tool's arguments, an object"`
	// Content is for adapters that pass a result on to a model block by block.
	Content bool `json:"content,omitempty" doc:"Answer with content and structured_content, too, as the MCP server wrote them; without, when their texts have more than 256 KiB, or all of them more than 8 MiB"`
}

// mcpServer is an MCP server as administrators see it.
type mcpServer struct {
	Name   string          `json:"name"`
	Config json.RawMessage `json:"config" doc:"As in extensions_config.json; secrets are ***"`
	State  string          `json:"state,omitempty" enum:"idle,ready,failed,needs_login" doc:"Of the caller's own connection; absent when the server is not enabled"`
	Error  string          `json:"error,omitempty" doc:"Why it failed, or waits for a login"`
}

// ServerIn names an MCP server.
type ServerIn struct {
	Name string `path:"name" minLength:"1" maxLength:"256"`
}

func (s toolRoutes) add(api *route.API) {
	route.Register(api, route.On(http.MethodGet, "/api/threads/{thread}/servers", "listToolServers", route.TagTools, route.Agents.At(route.Owner), "MCP servers that the thread may use"), s.toolServers)
	route.Register(api, route.On(http.MethodGet, "/api/threads/{thread}/tools", "searchTools", route.TagTools, route.Agents.At(route.Owner), "Find tools: at most 15, best first"), s.searchTools)
	route.Register(api, route.On(http.MethodGet, "/api/threads/{thread}/servers/{name}/tools", "listServerTools", route.TagTools, route.Agents.At(route.Owner), "All tools of one MCP server that the thread may use"), s.serverTools)
	route.Register(api, route.On(http.MethodPost, "/api/threads/{thread}/tools/call", "callTool", route.TagTools, route.Agents.At(route.Holder), "Call a tool"), s.callTool)
	op := route.On(http.MethodGet, "/api/threads/{thread}/prompt", "getPrompt", route.TagTools, route.Agents.At(route.Owner), "What to tell the agent, and which tools to register with it")
	op = route.Also[prompt.Prompt](api, op, "200", "The prompt")
	op.Responses["304"] = &huma.Response{Description: "The caller has it: its ETag is one of If-None-Match"}
	route.Register(api, op, s.getPrompt)

	route.Register(api, route.On(http.MethodGet, "/api/mcp/servers", "listMCPServers", route.TagAdmin, route.Operators, "The configuration of all MCP servers"), s.listMCPServers)
	route.Register(api, route.On(http.MethodPut, "/api/mcp/servers/{name}", "putMCPServer", route.TagAdmin, route.Operators, "Add or change an MCP server; *** keeps a secret"), s.putMCPServer)
	route.Register(api, route.On(http.MethodDelete, "/api/mcp/servers/{name}", "deleteMCPServer", route.TagAdmin, route.Operators, "Remove an MCP server"),
		func(ctx context.Context, in *ServerIn) (*struct{}, error) {
			return nil, s.servers.DeleteServer(ctx, in.Name)
		})
	route.Register(api, route.On(http.MethodPost, "/api/mcp/servers/{name}/reconnect", "reconnectMCPServer", route.TagAdmin, route.Operators, "Drop the connections to an MCP server and make new ones"),
		func(ctx context.Context, in *ServerIn) (*struct{}, error) {
			return nil, s.servers.ReconnectServer(ctx, in.Name)
		})
	route.Register(api, route.On(http.MethodPost, "/api/mcp/servers/{name}/install", "installMCPServer", route.TagTools, route.Developers, "Fetch the packages of an MCP server that runs in a sandbox; it takes up to five minutes"), s.installMCPServer)
	route.Register(api, route.On(http.MethodGet, "/api/mcp/servers/{name}/tools", "listMCPServerTools", route.TagAdmin, route.Operators, "All tools of an MCP server"), s.mcpServerTools)
}

// mcpInstalled is the answer to an installation.
type mcpInstalled struct {
	Tools int `json:"tools" doc:"How many tools the server has"`
}

func (s toolRoutes) installMCPServer(ctx context.Context, in *ServerIn) (*route.Body[mcpInstalled], error) {
	tools, err := s.servers.InstallServer(ctx, exchange.CallerOf(ctx), in.Name)
	if err != nil {
		return nil, err
	}
	return route.BodyOf(mcpInstalled{tools}), nil
}

func (s toolRoutes) toolServers(ctx context.Context, in *route.ThreadIn) (*route.Body[service.ServersAnswer], error) {
	servers, err := s.tools.ToolServers(ctx, exchange.CallerOf(ctx), in.Thread)
	if err != nil {
		return nil, err
	}
	return route.BodyOf(service.ListServers(servers)), nil
}

func (s toolRoutes) searchTools(ctx context.Context, in *searchIn) (*route.Body[sandbox.ToolSearch], error) {
	found, err := s.tools.SearchTools(ctx, exchange.CallerOf(ctx), in.Thread, sandbox.ToolQuery{Query: in.Query, Server: in.Server, Detail: in.Detail, Limit: in.Limit, OutputSchema: in.OutputSchema})
	if err != nil {
		return nil, err
	}
	if found.Tools == nil {
		found.Tools = []sandbox.ToolFound{}
	}
	return route.BodyOf(found), nil
}

func (s toolRoutes) callTool(ctx context.Context, in *struct {
	route.ThreadIn
	Body callBody
},
) (*route.Body[sandbox.ToolResult], error) {
	ref := sandbox.ToolRef{Printed: in.Body.Tool}
	if in.Body.Server != "" {
		ref = sandbox.ToolRef{Server: in.Body.Server, Name: in.Body.Tool}
	}
	input := in.Body.Input
	if len(input) == 0 || string(input) == "null" {
		input = json.RawMessage("{}")
	}
	if input[0] != '{' {
		return nil, sandbox.InvalidField("input", "has to be an object")
	}
	res, err := callTool(ctx, s.tools, in.Thread, ref, input)
	if err != nil {
		return nil, err
	}
	if in.Body.Content {
		res = res.WithContent()
	}
	return route.BodyOf(res), nil
}

// callTool calls a tool. A retry with the same key calls it again only when nothing of the first call was done.
func callTool(ctx context.Context, tools service.Tools, thread string, ref sandbox.ToolRef, input json.RawMessage) (sandbox.ToolResult, error) {
	x := exchange.Of(ctx)
	x.Begun = "the call"
	res, err := tools.CallTool(ctx, x.Caller, thread, ref, input)
	if sandbox.IsNotStarted(err) {
		x.Begun = ""
	}
	if len(res.Result) == 0 {
		res.Result = json.RawMessage("null")
	}
	return res, err
}

// promptAnswer is a prompt, or 304 without one.
type promptAnswer struct {
	Status       int
	ETag         string `header:"ETag" doc:"The version, quoted"`
	CacheControl string `header:"Cache-Control"`
	Body         *prompt.Prompt
}

func (s toolRoutes) getPrompt(ctx context.Context, in *struct {
	route.ThreadIn
	IfNoneMatch []string `header:"If-None-Match" maxItems:"64" doc:"ETags of answers that the caller has: 304 when it has this one"`
},
) (*promptAnswer, error) {
	p, err := s.prompts.Prompt(ctx, exchange.CallerOf(ctx), in.Thread)
	if err != nil {
		return nil, err
	}
	if p.Tools == nil {
		p.Tools = []prompt.ToolDefinition{}
	}
	if p.Sections == nil {
		p.Sections = map[string]string{}
	}
	answer := &promptAnswer{Status: http.StatusOK, ETag: `"` + p.Version + `"`, CacheControl: "private, no-cache", Body: &p}
	if matches(in.IfNoneMatch, answer.ETag) {
		answer.Status, answer.Body = http.StatusNotModified, nil
	}
	return answer, nil
}

// matches reports whether a list of ETags has one, as If-None-Match compares them: a weak one counts as well.
func matches(list []string, tag string) bool {
	return slices.ContainsFunc(list, func(one string) bool {
		one = strings.TrimSpace(one)
		return one == "*" || strings.TrimPrefix(one, "W/") == tag
	})
}

func (s toolRoutes) listMCPServers(ctx context.Context, in *route.ListIn) (*route.Body[route.Page[mcpServer]], error) {
	configs, err := s.servers.ServerConfigs(ctx)
	if err != nil {
		return nil, err
	}
	states := map[string]sandbox.ToolServer{}
	for _, s := range s.servers.ServerStates(exchange.CallerOf(ctx)) {
		states[s.Name] = s
	}
	items := make([]mcpServer, 0, len(configs))
	for _, name := range sortedKeys(configs) {
		items = append(items, mcpServer{name, configs[name], states[name].State, states[name].Error})
	}
	return route.PageIn(*in, items, func(m mcpServer) string { return m.Name })
}

func (s toolRoutes) putMCPServer(ctx context.Context, in *struct {
	ServerIn
	Body json.RawMessage `doc:"As a value of mcpServers in extensions_config.json"`
},
) (*route.Body[mcpServer], error) {
	if len(in.Body) == 0 || in.Body[0] != '{' {
		return nil, sandbox.InvalidField("body", "has to be an object")
	}
	if err := s.servers.PutServer(ctx, in.Name, in.Body); err != nil {
		return nil, err
	}
	configs, err := s.servers.ServerConfigs(ctx)
	if err != nil {
		return nil, err
	}
	config := configs[in.Name]
	if len(config) == 0 { // deleted meanwhile
		config = json.RawMessage("{}")
	}
	return route.BodyOf(mcpServer{Name: in.Name, Config: config}), nil
}

func (s toolRoutes) mcpServerTools(ctx context.Context, in *struct {
	ServerIn
	route.ListIn
},
) (*route.Body[route.Page[sandbox.ToolFound]], error) {
	tools, err := s.servers.ServerTools(ctx, exchange.CallerOf(ctx), in.Name)
	if err != nil {
		return nil, err
	}
	items := shownTools(tools)
	for i, t := range tools {
		items[i].Findings, items[i].Score, items[i].Quarantined = t.Findings, sandbox.FindingScore(t.Findings), t.Quarantined
	}
	return route.PageIn(in.ListIn, items, toolKey)
}

func (s toolRoutes) serverTools(ctx context.Context, in *struct {
	route.ThreadIn
	ServerIn
	route.ListIn
},
) (*route.Body[route.Page[sandbox.ToolFound]], error) {
	tools, err := s.tools.ToolsOf(ctx, exchange.CallerOf(ctx), in.Thread, in.Name)
	if err != nil {
		return nil, err
	}
	return route.PageIn(in.ListIn, shownTools(tools), toolKey)
}

// shownTools are tools with all that is known of them.
func shownTools(tools []sandbox.Tool) []sandbox.ToolFound {
	items := make([]sandbox.ToolFound, 0, len(tools))
	for _, t := range tools {
		items = append(items, sandbox.ToolFound{
			Name: t.Printed, ShortName: t.Name, Server: t.Server, Description: t.Description, Parameters: t.Input, Output: t.Output, WrapperPath: t.WrapperPath,
		})
	}
	return items
}

func toolKey(t sandbox.ToolFound) string { return t.Name }
