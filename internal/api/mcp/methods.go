package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"runtime/debug"
	"slices"
	"strconv"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// pageSize is how many items one page of a list has.
const pageSize = 500

// rawResult is a result whose members are passed on as they are.
type rawResult struct {
	sdk.ResultBase
	members map[string]json.RawMessage
}

// MarshalJSON implements json.Marshaler. The SDK adds to the metadata after the result is made.
func (r *rawResult) MarshalJSON() ([]byte, error) {
	all := maps.Clone(r.members)
	if len(r.Meta) > 0 {
		meta := map[string]any{}
		if raw, ok := all["_meta"]; ok {
			if err := json.Unmarshal(raw, &meta); err != nil {
				meta = map[string]any{} // it was no object
			}
		}
		maps.Copy(meta, r.Meta)
		raw, err := json.Marshal(meta)
		if err != nil {
			return nil, err
		}
		all["_meta"] = raw
	}
	return json.Marshal(all)
}

// rawOf turns a result of ours, or one of an MCP server, into one whose members can be changed.
func rawOf(v any) (*rawResult, error) {
	text, ok := v.(json.RawMessage)
	if !ok {
		var err error
		if text, err = json.Marshal(v); err != nil {
			return nil, err
		}
	}
	r := &rawResult{}
	if err := json.Unmarshal(text, &r.members); err != nil || r.members == nil {
		return nil, errors.New("a result that is no object")
	}
	return r, nil
}

func (r *rawResult) setMissing(key, value string) {
	if _, ok := r.members[key]; !ok {
		r.members[key] = json.RawMessage(value)
	}
}

// methods are the methods of the protocol that the SDK leaves to us.
type methods struct {
	*scoped
	skills  *skills
	watched watchedResources
}

// receive answers the methods whose answers depend on the thread and its MCP servers, and leaves the rest
// to the SDK.
func (m *methods) receive(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (res sdk.Result, err error) {
		ctx, cancel := m.enter(ctx, req.GetExtra())
		defer cancel()
		defer func() { // this goroutine is the SDK's: a panic would end the process
			if v := recover(); v != nil {
				m.o.Log.Error("panic", "request_id", requestOf(ctx).id, "method", method, "error", v, "stack", string(debug.Stack()))
				res, err = nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "internal error"}
			}
		}()
		switch p := req.GetParams().(type) {
		case *sdk.ListToolsParams:
			return m.list(ctx, "tools", cursorOf(p), method, req, next, m.toolItems)
		case *sdk.ListResourcesParams:
			return m.list(ctx, "resources", cursorOf(p), method, req, next, m.upstreamItems(sandbox.UpstreamResources))
		case *sdk.ListResourceTemplatesParams:
			return m.list(ctx, "resourceTemplates", cursorOf(p), method, req, next, m.upstreamItems(sandbox.UpstreamTemplates))
		case *sdk.ListPromptsParams:
			return m.list(ctx, "prompts", cursorOf(p), method, req, next, m.upstreamItems(sandbox.UpstreamPrompts))
		case *sdk.CallToolParamsRaw:
			if r, ok := req.(*sdk.CallToolRequest); ok && !m.own(p.Name) {
				return m.callTool(ctx, r)
			} else if ok && p.Name == callSkillTool {
				return m.callOfSkill(ctx, r)
			}
		case *sdk.ReadResourceParams:
			return m.readResource(ctx, p)
		case *sdk.GetPromptParams:
			return m.getPrompt(ctx, p)
		case *sdk.CompleteParams:
			return m.complete(ctx, p)
		case *sdk.SubscriptionsListenParams:
			defer announceTo(m.o.Service, m.scope)()
		}
		return next(ctx, method, req)
	}
}

// cursorOf is where a list goes on; nil when the request has no params, which lists may leave out.
func cursorOf(p sdk.Params) *string {
	switch p := p.(type) {
	case *sdk.ListToolsParams:
		if p != nil {
			return &p.Cursor
		}
	case *sdk.ListResourcesParams:
		if p != nil {
			return &p.Cursor
		}
	case *sdk.ListResourceTemplatesParams:
		if p != nil {
			return &p.Cursor
		}
	case *sdk.ListPromptsParams:
		if p != nil {
			return &p.Cursor
		}
	}
	return nil
}

// own reports whether a name is that of a tool of ours.
func (m *methods) own(name string) bool {
	if m.scope.Only != "" {
		return false
	}
	return ownTools[name]
}

// items returns the members of a list; own are the members of the SDK's own answer.
type items func(ctx context.Context, own []json.RawMessage) ([]json.RawMessage, error)

// list answers with one page of a list: what the SDK says, completed by what the thread's servers have.
func (m *methods) list(ctx context.Context, member string, cursor *string, method string, req sdk.Request, next sdk.MethodHandler, more items) (sdk.Result, error) {
	from := 0
	if cursor != nil && *cursor != "" {
		c := *cursor
		var err error
		if from, err = strconv.Atoi(c); err != nil || from < 0 {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "cursor: use nextCursor of an earlier answer"}
		}
		*cursor = ""
	}
	res, err := next(ctx, method, req)
	if err != nil {
		return nil, err
	}
	r, err := rawOf(res)
	if err != nil {
		return nil, err
	}
	var own []json.RawMessage
	if err := json.Unmarshal(r.members[member], &own); err != nil {
		return nil, err
	}
	all, err := more(ctx, slices.DeleteFunc(own, isAnnouncement))
	if err != nil {
		return nil, m.wireError(ctx, err)
	}
	delete(r.members, "nextCursor")
	from = min(from, len(all)) // a client may send any number
	to := min(from+pageSize, len(all))
	if to < len(all) {
		r.members["nextCursor"] = json.RawMessage(strconv.Quote(strconv.Itoa(to)))
	}
	page, err := json.Marshal(append([]json.RawMessage{}, all[from:to]...))
	if err != nil {
		return nil, err
	}
	r.members[member] = page
	return m.era(r, true), nil
}
