package hub

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/codeapi/wrapperpath"
	"github.com/skerry-sandbox/skerry/internal/tools/drift/toolscan"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/excerpt"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/schema"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/serverconfig"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/transport"
)

// Limits of what a server may say about its tools.
const (
	maxPages       = 100
	maxTitle       = 512
	maxDescription = 16 << 10
	maxSchema      = 256 << 10
	maxListed      = 8 << 20 // bytes of all descriptions and schemas
	maxLogged      = 20      // tools that are left out, by name: a server may list a million of no use
)

// tool is one tool of a server with what checks its arguments.
type tool struct {
	sandbox.Tool
	input  *schema.Validator
	output *schema.Validator // nil when the server promises nothing
}

// toolList is what a server listed, and what is offered of it. It does not change.
type toolList struct {
	listed []*tool       // in the server's order, as the server describes them
	tools  []*tool       // the tools that the configuration allows, with what it says of them
	hash   string        // of tools
	ttl    time.Duration // after which it is to be asked for again; 0 when the server does not say

	quarantined map[string]bool // of listed, the tools that were not approved as they are
}

// under returns the list as a configuration wants it offered.
func (l *toolList) under(s *serverconfig.Server) *toolList {
	var offered []*tool
	for _, t := range l.listed {
		if !s.Offers(t.Name) || l.quarantined[t.Name] {
			continue
		}
		if s.Describes(t.Name) {
			described := *t
			s.Apply(&described.Tool)
			t = &described
		}
		offered = append(offered, t)
	}
	out := newToolList(offered)
	out.listed, out.ttl, out.quarantined = l.listed, l.ttl, l.quarantined
	return out
}

func (l *toolList) same(other *toolList) bool {
	return other != nil && l.hash == other.hash
}

// listed is a tool as a server writes it.
type listed struct {
	Name         string          `json:"name"`
	Title        string          `json:"title"`
	Description  string          `json:"description"`
	InputSchema  json.RawMessage `json:"inputSchema"`
	OutputSchema json.RawMessage `json:"outputSchema"`
	Annotations  json.RawMessage `json:"annotations"`
	Icons        json.RawMessage `json:"icons"`
	Meta         json.RawMessage `json:"_meta"`
}

// How long a list of tools may be good for, whatever a server says.
const (
	minTTL       = time.Second
	maxTTLMillis = 24 * 60 * 60 * 1000
)

// list asks a server for its tools. A tool that cannot be used is left out, with a line in the log.
func (c *dial) list(ctx context.Context, l *link) (*toolList, error) {
	if caps := l.session.InitializeResult().Capabilities; caps != nil && caps.Tools == nil {
		return newToolList(nil), nil
	}
	var all []*tool
	names := map[string]bool{}
	bytesLeft := maxListed
	cursor := ""
	leftOut := 0
	var ttl time.Duration
	for range maxPages {
		page, next, good, err := listPage(ctx, l, cursor)
		if err != nil {
			return nil, err
		}
		if good > 0 && (ttl == 0 || good < ttl) {
			ttl = max(good, minTTL)
		}
		for _, p := range page {
			t, why := newTool(c.key.server, p)
			if why == "" && names[t.Name] {
				why = "there is another one of that name"
			}
			if why == "" && len(all) == serverconfig.MaxTools {
				why = fmt.Sprintf("there are more than %d", serverconfig.MaxTools)
			}
			if why == "" {
				if bytesLeft -= len(t.Description) + len(t.Input) + len(t.Output) + len(t.Annotations) + len(t.Icons) + len(t.Meta); bytesLeft < 0 {
					why = "the descriptions and schemas of all tools are too large"
				}
			}
			if why != "" {
				if leftOut++; leftOut <= maxLogged {
					c.o.Log.Warn("MCP server: tool left out", "server", c.key.server, "tool", excerpt.Of(p.Name, serverconfig.MaxToolName), "why", why)
				}
				continue
			}
			names[t.Name] = true
			all = append(all, t)
		}
		if next == "" || next == cursor {
			cursor = ""
			break
		}
		cursor = next
	}
	if leftOut > maxLogged {
		c.o.Log.Warn("MCP server: more tools left out", "server", c.key.server, "tools", leftOut-maxLogged)
	}
	if cursor != "" {
		c.o.Log.Warn("MCP server: the rest of its list of tools is left out", "server", c.key.server, "pages", maxPages)
	}
	list := newToolList(all)
	list.ttl = ttl
	var err error
	list.quarantined, err = c.pins.check(ctx, c.key, c.current(), all)
	return list, err
}

// listPage gets one page, in the words of the server where the transport saw them.
func listPage(ctx context.Context, l *link, cursor string) (page []listed, next string, ttl time.Duration, err error) {
	ctx, seen := transport.WithCapture(ctx)
	defer seen.Done()
	res, err := l.session.ListTools(ctx, &mcp.ListToolsParams{Cursor: cursor})
	if err != nil {
		return nil, "", 0, err
	}
	var raw struct {
		Tools []listed `json:"tools"`
	}
	if text := l.redact.JSON(seen.Look().Result); json.Unmarshal(text, &raw) != nil || len(raw.Tools) == 0 {
		text, err := json.Marshal(res)
		if err != nil {
			return nil, "", 0, err
		}
		if err := json.Unmarshal(l.redact.JSON(text), &raw); err != nil {
			return nil, "", 0, err
		}
	}
	// The SDK leaves out tools that break the protocol.
	kept := map[string]bool{}
	for _, t := range res.Tools {
		kept[t.Name] = true
	}
	raw.Tools = slices.DeleteFunc(raw.Tools, func(t listed) bool { return !kept[t.Name] })
	return raw.Tools, res.NextCursor, seen.Look().TTL, nil
}

// newTool makes a tool from what a server says. why is the reason when it cannot.
func newTool(server string, p listed) (t *tool, why string) {
	bad := strings.ContainsFunc(p.Name, func(r rune) bool { return !unicode.IsGraphic(r) || r == utf8.RuneError })
	switch {
	case p.Name == "" || len(p.Name) > serverconfig.MaxToolName || bad || strings.TrimSpace(p.Name) != p.Name:
		return nil, "its name is empty, too long or not readable"
	case len(p.Annotations)+len(p.Icons)+len(p.Meta) > maxSchema:
		return nil, fmt.Sprintf("its annotations, icons and _meta have more than %d bytes", maxSchema)
	case len(p.InputSchema) > maxSchema || len(p.OutputSchema) > maxSchema:
		return nil, fmt.Sprintf("a schema has more than %d bytes", maxSchema)
	case schema.TooDeep(p.InputSchema) || schema.TooDeep(p.OutputSchema):
		return nil, "a schema is nested too deeply"
	}
	if p.Description == "" {
		p.Description = p.Title
	}
	input := schemaOf(p.InputSchema)
	if input == nil {
		input = json.RawMessage(`{"type":"object"}`)
	}
	t = &tool{input: schema.New(input, schema.Input)}
	t.Tool = sandbox.Tool{
		Server: server, Name: p.Name, Printed: sandbox.PrintedName(server, p.Name),
		Description: excerpt.Of(p.Description, maxDescription), Input: input, Output: schemaOf(p.OutputSchema),
		WrapperPath: wrapperpath.Of(server, p.Name), Title: excerpt.Of(p.Title, maxTitle),
		Annotations: compactJSON(p.Annotations, '{'), Icons: compactJSON(p.Icons, '['), Meta: compactJSON(p.Meta, '{'),
	}
	t.Findings = toolscan.Tool(t.Tool)
	if t.Output != nil {
		t.output = schema.New(t.Output, schema.Result)
	}
	return t, ""
}

// schemaOf returns a schema that is an object, compacted, else nil.
func schemaOf(raw json.RawMessage) json.RawMessage { return compactJSON(raw, '{') }

// compactJSON returns a value that begins with first, compacted, else nil.
func compactJSON(raw json.RawMessage, first byte) json.RawMessage {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || raw[0] != first {
		return nil
	}
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return nil
	}
	return b.Bytes()
}

func newToolList(tools []*tool) *toolList {
	l := &toolList{listed: tools, tools: tools}
	plain := make([]sandbox.Tool, len(tools))
	for i, t := range tools {
		plain[i] = t.Tool
	}
	l.hash = hashTools(plain)
	return l
}

// hashTools is the same for the same tools in the same order.
func hashTools(tools []sandbox.Tool) string {
	h := sha256.New()
	for _, t := range tools {
		for _, part := range []string{t.Server, t.Name, t.Printed, t.Description, string(t.Input), string(t.Output), string(t.Disclosure), t.Summary, t.Title, string(t.Annotations), string(t.Icons), string(t.Meta)} {
			fmt.Fprintf(h, "%d:%s,", len(part), part)
		}
		fmt.Fprintf(h, "%q%q;", t.Keywords, t.Requires)
	}
	return hex.EncodeToString(h.Sum(nil))
}
