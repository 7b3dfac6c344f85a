package hub

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/excerpt"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/transport"
)

// Limits of what servers offer besides tools.
const (
	maxItems     = 5000     // of one kind and server
	maxItem      = 64 << 10 // bytes of one
	maxSkill     = 1 << 20  // bytes of a skill, which has a line for each of its files
	maxItemBytes = 4 << 20  // bytes of all of one kind and server
	listTime     = 10 * time.Second
	maxErrorData = 16 << 10
)

// question is a request to a server; ask returns the answer as the SDK reads it.
type question struct {
	method string
	ask    func(context.Context, *mcp.ClientSession) (any, error)
}

// asked is the exchange of a question.
type asked struct {
	question
	link   *link // that answered
	answer any
	raw    json.RawMessage
}

func (*asked) prepare(_ context.Context, _ *link, seen *transport.Capture) error {
	seen.Whole = true
	return nil
}

func (a *asked) send(ctx context.Context, l *link, seen *transport.Capture) error {
	answer, err := a.ask(ctx, l.session)
	if err == nil {
		a.link, a.answer, a.raw = l, answer, seen.Look().Result
	}
	return err
}

// askServer asks a question over a connection, and returns the answer as the server wrote it.
func askServer(ctx context.Context, c *conn, q question) (json.RawMessage, error) {
	what := &tool{Tool: sandbox.Tool{Server: c.key.server, Printed: c.key.server + " " + q.method}}
	a := &asked{question: q}
	if err := c.do(ctx, what, a); err != nil {
		return nil, err
	}
	if len(a.raw) == 0 {
		raw, err := json.Marshal(a.answer)
		if err != nil {
			return nil, sandbox.Wrap(sandbox.ToolFailed, err, "%s: the answer cannot be read", what.Printed)
		}
		a.raw = raw
	}
	return a.link.redact.JSON(a.raw), nil
}

func newQuestion(method string, params json.RawMessage) (question, error) {
	switch method {
	case "resources/read":
		return typed(method, params, (*mcp.ClientSession).ReadResource)
	case "prompts/get":
		return typed(method, params, (*mcp.ClientSession).GetPrompt)
	case "completion/complete":
		return typed(method, params, (*mcp.ClientSession).Complete)
	}
	return question{}, sandbox.Errorf(sandbox.NotSupported, "the method %.80q is not passed on", method)
}

func typed[P, R any](method string, params json.RawMessage, ask func(*mcp.ClientSession, context.Context, *P) (*R, error)) (question, error) {
	var p P
	if err := json.Unmarshal(params, &p); err != nil {
		return question{}, sandbox.Wrap(sandbox.Invalid, err, "the parameters are not those of %s", method)
	}
	return question{method, func(ctx context.Context, s *mcp.ClientSession) (any, error) { return ask(s, ctx, &p) }}, nil
}

// withUpstreamError makes the server's own error the cause of what callers are told.
func withUpstreamError(l *link, err, told error) error {
	var rpc *jsonrpc.Error
	if _, answered := rpcErrorText(err); !answered || !errors.As(err, &rpc) || rpc.Code == transport.CodeTooLarge || rpc.Code == transport.CodePack {
		return told
	}
	own := &sandbox.UpstreamError{Code: rpc.Code, Message: l.redact.Replace(excerpt.Line(rpc.Message))}
	if len(rpc.Data) > 0 && len(rpc.Data) <= maxErrorData {
		own.Data = json.RawMessage(l.redact.Replace(string(rpc.Data)))
		if !json.Valid(own.Data) {
			own.Data = nil
		}
	}
	return &sandbox.Error{Kind: sandbox.ToolFailed, Detail: excerpt.Detail(told), Err: own}
}

// listItems lists what the server offers of a kind, page by page. What is too large is left out.
func listItems(ctx context.Context, c *conn, kind sandbox.UpstreamKind) ([]sandbox.UpstreamItem, error) {
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	var all []sandbox.UpstreamItem
	seen := map[string]bool{}
	bytesLeft, cursor := maxItemBytes, ""
	for range maxPages {
		raw, err := askServer(ctx, c, listQuestion(kind, cursor))
		if err != nil {
			return nil, err
		}
		page, next, err := readPage(raw, kind)
		if err != nil {
			return nil, sandbox.Wrap(sandbox.ToolFailed, err, "the MCP server %q: its list of %s cannot be read", c.key.server, kind)
		}
		for _, it := range page {
			if bytesLeft -= len(it.Raw); bytesLeft < 0 || len(all) == maxItems {
				return all, nil
			}
			if it.Name == "" || len(it.Raw) > maxItem && kind != sandbox.UpstreamSkills || len(it.Raw) > maxSkill || seen[it.Name] {
				continue
			}
			seen[it.Name] = true
			it.Server = c.key.server
			if kind == sandbox.UpstreamPrompts {
				it.Printed = sandbox.PrintedName(c.key.server, it.Name)
			}
			all = append(all, it)
		}
		if next == "" || next == cursor {
			break
		}
		cursor = next
	}
	return all, nil
}

// listQuestion asks for a page. A server that does not claim to have any is not asked.
func listQuestion(kind sandbox.UpstreamKind, cursor string) question {
	method := map[sandbox.UpstreamKind]string{
		sandbox.UpstreamResources: "resources/list", sandbox.UpstreamTemplates: "resources/templates/list", sandbox.UpstreamPrompts: "prompts/list",
		sandbox.UpstreamSkills: skillsList,
	}[kind]
	return question{method, func(ctx context.Context, s *mcp.ClientSession) (any, error) {
		caps := s.InitializeResult().Capabilities
		switch {
		case kind == sandbox.UpstreamSkills:
			return listSkills(ctx, s, cursor)
		case kind == sandbox.UpstreamPrompts && (caps == nil || caps.Prompts != nil):
			return s.ListPrompts(ctx, &mcp.ListPromptsParams{Cursor: cursor})
		case kind == sandbox.UpstreamPrompts, caps != nil && caps.Resources == nil:
			return map[string]any{}, nil
		case kind == sandbox.UpstreamTemplates:
			res, err := s.ListResourceTemplates(ctx, &mcp.ListResourceTemplatesParams{Cursor: cursor})
			if text, ok := rpcErrorText(err); ok && strings.Contains(text, "-32601") { // many have resources and no templates
				return map[string]any{}, nil
			}
			return res, err
		}
		return s.ListResources(ctx, &mcp.ListResourcesParams{Cursor: cursor})
	}}
}

func readPage(raw json.RawMessage, kind sandbox.UpstreamKind) (page []sandbox.UpstreamItem, next string, err error) {
	var answer struct {
		Resources, ResourceTemplates, Prompts, Skills []json.RawMessage
		NextCursor                                    string
	}
	if err := json.Unmarshal(raw, &answer); err != nil {
		return nil, "", err
	}
	list := answer.Resources
	switch kind {
	case sandbox.UpstreamTemplates:
		list = answer.ResourceTemplates
	case sandbox.UpstreamPrompts:
		list = answer.Prompts
	case sandbox.UpstreamSkills:
		list = answer.Skills
	}
	for _, r := range list {
		var it struct{ URI, URITemplate, Name string }
		if json.Unmarshal(r, &it) != nil {
			continue
		}
		name := map[sandbox.UpstreamKind]string{
			sandbox.UpstreamResources: it.URI, sandbox.UpstreamTemplates: it.URITemplate, sandbox.UpstreamPrompts: it.Name, sandbox.UpstreamSkills: it.URI,
		}[kind]
		page = append(page, sandbox.UpstreamItem{Name: name, Raw: r})
	}
	return page, answer.NextCursor, nil
}
