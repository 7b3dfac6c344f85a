package channels

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/skerry-sandbox/skerry/internal/policy"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/result"
)

// maxResult bounds the result of a call, as the hub does.
const maxResult = 16 << 20

// Tools are those of MCP servers, with those of skills beside them. They are found by their names alone, and are on no
// list.
type Tools struct {
	policy.Hub
	channels *Channels
}

// Before puts the tools of skills before those of a hub.
func (c *Channels) Before(hub policy.Hub) *Tools { return &Tools{hub, c} }

// Tools implements policy.Hub. The tools of active skills are beside those of lists.
func (g *Tools) Tools(ctx context.Context, t sandbox.Thread) (sandbox.ToolSet, error) {
	set, err := g.Hub.Tools(ctx, t)
	if _, any := g.channels.has(t, ""); err == nil && any {
		set.Channels, set.Skills = true, g.channels.active(t)
	}
	return set, err
}

// ResolveAmong implements policy.Hub. A tool of a skill is Conflict as long as the skill is not active, and Unavailable when
// its program has never connected.
func (g *Tools) ResolveAmong(ctx context.Context, t sandbox.Thread, ref sandbox.ToolRef, visible func(sandbox.Tool) bool) (sandbox.Tool, error) {
	skill, tool, ok := ref.SkillTool()
	if !ok {
		return g.Hub.ResolveAmong(ctx, t, ref, visible)
	}
	found, _, _, err := g.channels.find(t, skill, tool)
	if err != nil {
		return sandbox.Tool{}, err
	}
	if visible != nil && !visible(found.Tool) {
		return sandbox.Tool{}, sandbox.Errorf(sandbox.NotFound, "the skill %q has no tool %.80q that you may use", skill, tool)
	}
	return found.Tool, nil
}

// Arguments implements policy.Hub.
func (g *Tools) Arguments(ctx context.Context, t sandbox.Thread, tool sandbox.Tool, input []byte) ([]byte, error) {
	skill, ok := sandbox.SkillOfServer(tool.Server)
	if !ok {
		return g.Hub.Arguments(ctx, t, tool, input)
	}
	found, _, _, err := g.channels.find(t, skill, tool.Name)
	if err != nil {
		return nil, err
	}
	args, _, err := found.input.Check(found.Printed, input) // a schema that cannot judge leaves it to the program
	return args, err
}

// errTooLate is the cause of a context whose call took too long.
var errTooLate = errors.New("the call took too long")

// CallChecked implements policy.Hub. The errors of a handler are results with IsError.
func (g *Tools) CallChecked(ctx context.Context, t sandbox.Thread, tool sandbox.Tool, args []byte, watch sandbox.ToolWatch) (sandbox.ToolResult, error) {
	skill, ok := sandbox.SkillOfServer(tool.Server)
	if !ok {
		return g.Hub.CallChecked(ctx, t, tool, args, watch)
	}
	began := time.Now()
	res, err := g.call(ctx, t, skill, tool.Name, args, watch)
	res.Millis = time.Since(began).Milliseconds()
	return res, err
}

func (g *Tools) call(ctx context.Context, t sandbox.Thread, skill, tool string, args []byte, watch sandbox.ToolWatch) (sandbox.ToolResult, error) {
	found, p, places, err := g.channels.find(t, skill, tool)
	if err == nil {
		err = awayOf(skill, p)
	}
	if err != nil {
		return sandbox.ToolResult{}, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, found.timeout, errTooLate)
	defer cancel()
	select {
	case places <- struct{}{}:
		defer func() { <-places }()
	case <-ctx.Done():
		return sandbox.ToolResult{}, sandbox.NotStarted(sandbox.Errorf(sandbox.CapacityExceeded, "the skill %q is busy: it takes %d calls at a time, and none ended in this call's time", skill, cap(places)))
	}
	progress := watch.Progress
	if progress == nil {
		progress = func(sandbox.ToolProgress) {}
	}
	raw, err := p.Call(ctx, sandbox.PackCall{Tool: tool, Input: args, Thread: t, Progress: progress})
	if err != nil {
		return sandbox.ToolResult{}, found.failure(ctx, err)
	}
	return found.read(raw, g.channels)
}

// failure says why there is no result.
func (o offered) failure(ctx context.Context, err error) error {
	var known *sandbox.Error
	switch {
	case errors.Is(context.Cause(ctx), errTooLate):
		return sandbox.Errorf(sandbox.Timeout, "%s: no answer within %s", o.Printed, o.timeout)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return sandbox.Wrap(sandbox.Timeout, err, "%s: no answer in the caller's time", o.Printed)
	case ctx.Err() != nil:
		return sandbox.Wrap(sandbox.Unavailable, err, "%s: the caller went away", o.Printed)
	case errors.As(err, &known):
		return sandbox.Retell(known, "%s: %s", o.Printed, known.Detail)
	}
	return err
}

// read returns what the caller sees of a result.
func (o offered) read(raw json.RawMessage, c *Channels) (sandbox.ToolResult, error) {
	res, err := result.Of(raw, maxResult)
	if err == nil {
		err = result.Promised(o.output, o.Printed, res, c.o.Log)
	}
	if err != nil {
		return sandbox.ToolResult{}, sandbox.Wrap(sandbox.ToolFailed, err, "%s: %s", o.Printed, result.Reason(err))
	}
	return res, nil
}

// ForgetThread implements policy.Hub.
func (g *Tools) ForgetThread(t sandbox.Thread) {
	g.channels.forget(t)
	g.Hub.ForgetThread(t)
}
