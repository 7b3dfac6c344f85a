package hub

import (
	"context"
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/result"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/transport"
)

// toolCall is the exchange of a tool call.
type toolCall struct {
	o     *Options
	tool  *tool
	args  []byte
	watch sandbox.ToolWatch
	on    sandbox.Thread // for whom it is made

	params *mcp.CallToolParams
	link   *link // that answered
	answer *mcp.CallToolResult
	raw    json.RawMessage
}

// callTool makes a tool call for a thread over a connection.
func callTool(ctx context.Context, c *conn, on sandbox.Thread, t *tool, args []byte, watch sandbox.ToolWatch) (sandbox.ToolResult, error) {
	e := &toolCall{o: c.o, tool: t, args: args, watch: watch, on: on}
	if err := c.do(ctx, t, e); err != nil {
		return sandbox.ToolResult{}, err
	}
	return e.result()
}

func (e *toolCall) prepare(ctx context.Context, l *link, seen *transport.Capture) (err error) {
	seen.Listener, seen.Thread = l.calls.Add(e.watch), e.on
	ready := false
	defer func() { // in a panic, too
		if !ready {
			l.calls.Remove(seen.Listener)
		}
	}()
	e.params = &mcp.CallToolParams{Name: e.tool.Name, Arguments: json.RawMessage(e.args), Meta: l.watched(ctx, seen.Listener)}
	e.o.Tracer.Meta(ctx, e.params.Meta)
	err = passOn(e.params, e.watch.Params, seen)
	ready = err == nil
	return err
}

func (e *toolCall) send(ctx context.Context, l *link, seen *transport.Capture) error {
	defer l.calls.Remove(seen.Listener)
	answer, err := l.session.CallTool(ctx, e.params)
	if err == nil {
		e.link, e.answer, e.raw = l, answer, seen.Look().Result
	}
	return err
}

// result is what the caller sees of the answer.
func (e *toolCall) result() (sandbox.ToolResult, error) {
	raw, err := e.raw, error(nil)
	if len(raw) == 0 { // the transport does not see it
		raw, err = json.Marshal(e.answer)
	}
	var res sandbox.ToolResult
	if err == nil {
		res, err = result.Of(raw, e.o.MaxResult)
	}
	if err == nil {
		err = result.Promised(e.tool.output, e.tool.Printed, res, e.o.Log)
	}
	redact := e.link.redact
	res.Result, res.Raw = redact.JSON(res.Result), redact.JSON(res.Raw)
	if err != nil {
		err = sandbox.Wrap(sandbox.ToolFailed, redacted(e.link, err), "%s: %s", e.tool.Printed, redact.Replace(result.Reason(err)))
	}
	return res, err
}

// passOn completes the parameters of a call by those of a client's request, and has its result captured
// as it is.
func passOn(params *mcp.CallToolParams, more json.RawMessage, seen *transport.Capture) error {
	if more == nil {
		return nil
	}
	var p mcp.CallToolParams
	if err := json.Unmarshal(more, &p); err != nil {
		return sandbox.Wrap(sandbox.Invalid, err, "the parameters of the request cannot be read")
	}
	seen.Whole = true
	params.InputResponses, params.RequestState = p.InputResponses, p.RequestState
	for k, v := range p.Meta {
		if _, ours := params.Meta[k]; !ours {
			params.Meta[k] = v
		}
	}
	return nil
}
