package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// upstreamScheme begins the URI by which a client of /mcp/<thread> names a resource of one of the MCP
// servers: skerry-mcp://<server>/<the server's own URI>. The server's name is escaped, so that it has no
// slash and the two can be told apart again exactly. It works for URI templates too.
const upstreamScheme = "skerry-mcp://"

func shownURI(server, uri string) string { return upstreamScheme + url.PathEscape(server) + "/" + uri }

func serverOfURI(shown string) (server, uri string, ok bool) {
	rest, ok := strings.CutPrefix(shown, upstreamScheme)
	if !ok {
		return "", "", false
	}
	escaped, uri, ok := strings.Cut(rest, "/")
	if !ok || uri == "" {
		return "", "", false
	}
	server, err := url.PathUnescape(escaped)
	return server, uri, err == nil && server != ""
}

// toolItems returns the tools of the thread in its mode. In code mode these are ours and the tools that are
// always offered. In direct mode these are all tools except the ones that only a search finds.
func (m *methods) toolItems(ctx context.Context, own []json.RawMessage) ([]json.RawMessage, error) {
	offer, err := m.o.Upstream.Offer(ctx, m.caller(ctx), m.scope.Thread)
	if err != nil {
		return nil, err
	}
	var all, others []json.RawMessage
	deferred := false
	for _, t := range offer.Tools.Tools {
		switch {
		case m.scope.Only != "":
			if t.Server != m.scope.Only {
				continue
			}
		case t.Disclosure == sandbox.DiscloseDeferred:
			if deferred = true; !t.Active {
				continue
			}
		case offer.Mode == sandbox.ModeCode && t.Disclosure != sandbox.DiscloseAlways && !t.Active:
			continue
		}
		raw, err := m.toolItem(t)
		if err != nil {
			return nil, err
		}
		others = append(others, raw)
	}
	if m.scope.Only != "" {
		return others, nil
	}
	hide := map[string]bool{executeCodeTool: !offer.Code, callSkillTool: !offer.Tools.Channels}
	for name := range codeOnly {
		hide[name] = offer.Mode == sandbox.ModeDirect && !deferred
	}
	for name := range activationTools {
		hide[name] = !deferred
	}
	skills, err := m.o.ThreadSkills.ThreadSkills(ctx, m.caller(ctx), m.scope.Thread)
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(skills))
	for _, sk := range skills {
		if !sk.Hidden {
			names = append(names, sk.Name)
		}
	}
	for name := range skillTools {
		hide[name] = len(names) == 0
	}
	for _, raw := range own {
		var t struct {
			Name string `json:"name"`
		}
		if json.Unmarshal(raw, &t) == nil && ownTools[t.Name] && !hide[t.Name] {
			if skillTools[t.Name] && t.Name != "search_skills" && t.Name != runSkillTool {
				if raw, err = namedSkills(raw, names); err != nil {
					return nil, err
				}
			}
			all = append(all, raw)
		}
	}
	return append(all, others...), nil
}

// toolItem is the definition of an MCP server's tool under the name that this scope has for it.
func (m *methods) toolItem(t sandbox.Tool) (json.RawMessage, error) {
	shown := struct {
		Name         string          `json:"name"`
		Title        string          `json:"title,omitempty"`
		Description  string          `json:"description,omitempty"`
		InputSchema  json.RawMessage `json:"inputSchema"`
		OutputSchema json.RawMessage `json:"outputSchema,omitempty"`
		Annotations  json.RawMessage `json:"annotations,omitempty"`
		Icons        json.RawMessage `json:"icons,omitempty"`
		Meta         json.RawMessage `json:"_meta,omitempty"`
	}{t.Printed, t.Title, t.Description, t.Input, t.Output, t.Annotations, t.Icons, t.Meta}
	if m.scope.Only != "" {
		shown.Name = t.Name
	}
	return json.Marshal(shown)
}

// upstreamItems returns what the thread's servers offer of a kind, under the names of this scope.
func (m *methods) upstreamItems(kind sandbox.UpstreamKind) items {
	return func(ctx context.Context, own []json.RawMessage) ([]json.RawMessage, error) {
		list, err := m.o.Upstream.Upstream(ctx, m.caller(ctx), m.scope.Thread, kind, m.scope.Only)
		if err != nil {
			return nil, err
		}
		if kind == sandbox.UpstreamResources && m.scope.Only == "" {
			if own, err = m.skills.items(ctx, own); err != nil {
				return nil, err
			}
		}
		taken := map[string]bool{}
		for _, it := range list {
			if m.scope.Only != "" {
				own = append(own, it.Raw)
				continue
			}
			key, name := "uri", shownURI(it.Server, it.Name)
			switch kind {
			case sandbox.UpstreamTemplates:
				key = "uriTemplate"
			case sandbox.UpstreamPrompts:
				key, name = "name", it.Printed
			}
			if taken[name] { // the prompts "a__b" and "b" of the servers "s" and "s__a"
				continue
			}
			taken[name] = true
			raw, err := withMember(it.Raw, key, name)
			if err != nil {
				continue // no object
			}
			own = append(own, raw)
		}
		return own, nil
	}
}

// withMember returns an object with one member replaced by a text.
func withMember(raw json.RawMessage, key, text string) (json.RawMessage, error) {
	var o map[string]json.RawMessage
	if err := json.Unmarshal(raw, &o); err != nil {
		return nil, err
	}
	value, err := json.Marshal(text)
	if err != nil {
		return nil, err
	}
	o[key] = value
	return json.Marshal(o)
}

// callTool calls a tool of an MCP server and passes on what it answers and what it says meanwhile.
func (m *methods) callTool(ctx context.Context, req *sdk.CallToolRequest) (sdk.Result, error) {
	p := req.Params
	ref := sandbox.ToolRef{Printed: p.Name}
	if m.scope.Only != "" {
		ref = sandbox.ToolRef{Server: m.scope.Only, Name: p.Name}
	}
	input := p.Arguments
	if len(input) == 0 || string(input) == "null" {
		input = json.RawMessage("{}")
	}
	return m.pass(ctx, req, ref, input)
}

// callOfSkill calls a tool of a skill's channel. What is wrong with the call is for the agent to read.
func (m *methods) callOfSkill(ctx context.Context, req *sdk.CallToolRequest) (sdk.Result, error) {
	var in callSkillIn
	if err := json.Unmarshal(req.Params.Arguments, &in); err != nil || in.Skill == "" || in.Tool == "" {
		return toolText("invalid: skill and tool are names, and input is an object", true), nil
	}
	if len(in.Input) == 0 || string(in.Input) == "null" {
		in.Input = json.RawMessage("{}")
	}
	return m.pass(ctx, req, sandbox.ToolRef{Server: sandbox.SkillServer(in.Skill), Name: in.Tool}, in.Input)
}

// pass makes the call of a tool that is not ours.
func (m *methods) pass(ctx context.Context, req *sdk.CallToolRequest, ref sandbox.ToolRef, input json.RawMessage) (sdk.Result, error) {
	p := req.Params
	_, _, ofSkill := ref.SkillTool()
	watch := m.watch(ctx, req)
	if m.scope.modern {
		var err error
		if watch.Params, err = m.passedOn(p.Meta, p.InputResponses, p.RequestState); err != nil {
			return nil, err
		}
	}
	res, err := m.o.Upstream.WatchTool(ctx, m.caller(ctx), m.scope.Thread, ref, input, watch)
	var own *sandbox.UpstreamError
	switch {
	case sandbox.KindOf(err) == sandbox.NotFound && !ofSkill, errors.As(err, &own):
		return nil, m.wireError(ctx, err)
	case err != nil:
		return m.failed(ctx, err), nil // for the agent to read
	}
	raw := res.Raw
	if len(raw) == 0 {
		return toolText(string(res.Result), res.IsError), nil
	}
	r, err := rawOf(raw)
	if err != nil {
		return toolText("tool_failed: the tool's answer cannot be read", true), nil
	}
	if _, asks := r.members["inputRequests"]; !asks {
		r.setMissing("content", "[]")
	}
	if !ofSkill { // its program has no resources
		m.showBlocks(r.members, "content", serverOfTool(ctx, m, ref))
	}
	return m.era(r, false), nil
}

// passedOn are the members of a client's request that concern the MCP server: what the client can do, and
// its answers to what the server asked it before. A server may ask the client for input only in the era
// without sessions: connections of the era before are shared, and do not say whom a server asks.
func (m *methods) passedOn(meta sdk.Meta, responses sdk.InputResponseMap, state string) (json.RawMessage, error) {
	own := sdk.Meta{}
	for _, key := range []string{sdk.MetaKeyClientCapabilities, "traceparent", "tracestate", "baggage"} {
		if v, ok := meta[key]; ok {
			own[key] = v
		}
	}
	return json.Marshal(struct {
		Meta           sdk.Meta             `json:"_meta"`
		InputResponses sdk.InputResponseMap `json:"inputResponses,omitempty"`
		RequestState   string               `json:"requestState,omitempty"`
	}{own, responses, state})
}

// serverOfTool is the server that a tool belongs to; a call has found it there already.
func serverOfTool(ctx context.Context, m *methods, ref sandbox.ToolRef) string {
	if ref.Server != "" {
		return ref.Server
	}
	offer, err := m.o.Upstream.Offer(ctx, m.caller(ctx), m.scope.Thread)
	if err != nil {
		return ""
	}
	for _, t := range offer.Tools.Tools {
		if t.Printed == ref.Printed {
			return t.Server
		}
	}
	return ""
}

// watch passes progress and log messages of a call on to the client.
func (m *methods) watch(ctx context.Context, req *sdk.CallToolRequest) sandbox.ToolWatch {
	w := sandbox.ToolWatch{Log: func(l sandbox.ToolLog) {
		//nolint:errcheck,staticcheck // a client that is gone misses it; clients of the era before have it
		req.Session.Log(ctx, &sdk.LoggingMessageParams{Level: sdk.LoggingLevel(l.Level), Logger: l.Logger, Data: l.Data})
	}}
	if token := req.Params.GetProgressToken(); token != nil {
		w.Progress = func(p sandbox.ToolProgress) {
			//nolint:errcheck // as above
			req.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{ProgressToken: token, Progress: p.Progress, Total: p.Total, Message: p.Message})
		}
	}
	return w
}

// ask sends a request to a server and makes its result one of ours.
func (m *methods) ask(ctx context.Context, server, method string, params map[string]any, meta sdk.Meta, responses sdk.InputResponseMap, state string) (*rawResult, error) {
	if m.scope.modern {
		more, err := m.passedOn(meta, responses, state)
		if err == nil {
			err = json.Unmarshal(more, &params) // into the members that are there
		}
		if err != nil {
			return nil, err
		}
	}
	text, err := json.Marshal(params)
	if err != nil {
		return nil, err
	}
	raw, err := m.o.Upstream.AskUpstream(ctx, m.caller(ctx), m.scope.Thread, sandbox.UpstreamRequest{Server: server, Method: method, Params: text})
	if err != nil {
		return nil, m.wireError(ctx, err)
	}
	r, err := rawOf(raw)
	if err != nil {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the MCP server's answer cannot be read"}
	}
	return r, nil
}

func (m *methods) readResource(ctx context.Context, p *sdk.ReadResourceParams) (sdk.Result, error) {
	server, uri := m.scope.Only, p.URI
	if server == "" {
		if strings.HasPrefix(uri, skillScheme) {
			return m.skills.read(ctx, uri)
		}
		var ok bool
		if server, uri, ok = serverOfURI(uri); !ok {
			return nil, m.resourceNotFound(p.URI)
		}
	}
	r, err := m.ask(ctx, server, "resources/read", map[string]any{"uri": uri}, p.Meta, p.InputResponses, p.RequestState)
	if err != nil {
		return nil, err
	}
	m.eachObject(r.members, "contents", func(o map[string]json.RawMessage) { m.showURI(o, server) })
	return m.era(r, true), nil
}

func (m *methods) getPrompt(ctx context.Context, p *sdk.GetPromptParams) (sdk.Result, error) {
	server, name, err := m.promptOf(ctx, p.Name)
	if err != nil {
		return nil, err
	}
	r, err := m.ask(ctx, server, "prompts/get", map[string]any{"name": name, "arguments": p.Arguments}, p.Meta, p.InputResponses, p.RequestState)
	if err != nil {
		return nil, err
	}
	m.eachObject(r.members, "messages", func(o map[string]json.RawMessage) {
		o["content"] = m.showBlock(o["content"], server)
	})
	return m.era(r, false), nil
}

// promptOf finds the listed prompt that a name stands for.
func (m *methods) promptOf(ctx context.Context, shown string) (server, name string, err error) {
	if m.scope.Only != "" {
		return m.scope.Only, shown, nil
	}
	list, err := m.o.Upstream.Upstream(ctx, m.caller(ctx), m.scope.Thread, sandbox.UpstreamPrompts, "")
	if err != nil {
		return "", "", m.wireError(ctx, err)
	}
	for _, it := range list {
		if it.Printed == shown {
			return it.Server, it.Name, nil
		}
	}
	return "", "", &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "there is no such prompt"}
}

func (m *methods) complete(ctx context.Context, p *sdk.CompleteParams) (sdk.Result, error) {
	bad := &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "ref: names no prompt or resource template"}
	if p.Ref == nil {
		return nil, bad
	}
	server, ref := m.scope.Only, *p.Ref
	if server == "" {
		var err error
		ok := true
		if ref.Type == "ref/prompt" {
			server, ref.Name, err = m.promptOf(ctx, ref.Name)
		} else {
			server, ref.URI, ok = serverOfURI(ref.URI)
		}
		if err != nil || !ok {
			return nil, bad
		}
	}
	r, err := m.ask(ctx, server, "completion/complete", map[string]any{"argument": p.Argument, "context": p.Context, "ref": &ref}, nil, nil, "")
	if err != nil {
		return nil, err
	}
	return m.era(r, false), nil
}

// showBlocks writes the URIs in blocks of content as clients can ask for them.
func (m *methods) showBlocks(members map[string]json.RawMessage, key, server string) {
	var blocks []json.RawMessage
	if m.scope.Only != "" || json.Unmarshal(members[key], &blocks) != nil {
		return
	}
	for i := range blocks {
		blocks[i] = m.showBlock(blocks[i], server)
	}
	if raw, err := json.Marshal(blocks); err == nil {
		members[key] = raw
	}
}

func (m *methods) showBlock(block json.RawMessage, server string) json.RawMessage {
	var o map[string]json.RawMessage
	if m.scope.Only != "" || json.Unmarshal(block, &o) != nil {
		return block
	}
	switch string(o["type"]) {
	case `"resource_link"`:
		m.showURI(o, server)
	case `"resource"`:
		var inner map[string]json.RawMessage
		if json.Unmarshal(o["resource"], &inner) != nil {
			return block
		}
		m.showURI(inner, server)
		raw, err := json.Marshal(inner)
		if err != nil {
			return block
		}
		o["resource"] = raw
	default:
		return block
	}
	raw, err := json.Marshal(o)
	if err != nil {
		return block
	}
	return raw
}

func (m *methods) showURI(o map[string]json.RawMessage, server string) {
	var uri string
	if m.scope.Only != "" || server == "" || json.Unmarshal(o["uri"], &uri) != nil || uri == "" {
		return
	}
	if raw, err := json.Marshal(shownURI(server, uri)); err == nil {
		o["uri"] = raw
	}
}

// eachObject changes the objects in a list.
func (m *methods) eachObject(members map[string]json.RawMessage, key string, change func(map[string]json.RawMessage)) {
	var list []map[string]json.RawMessage
	if m.scope.Only != "" || json.Unmarshal(members[key], &list) != nil {
		return
	}
	for _, o := range list {
		if o != nil {
			change(o)
		}
	}
	if raw, err := json.Marshal(list); err == nil {
		members[key] = raw
	}
}
