package policy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// maxCounted is how many keys of rates are remembered. Beyond that, those that have been quiet for longest are forgotten
// first.
const maxCounted = 100_000

// rates counts calls in this process. For each key it keeps the time at which a full allowance is there again (the
// generic cell rate algorithm).
type rates struct {
	mu   sync.Mutex
	full map[string]time.Time
}

// take counts a call against all rates, or against none when one of them is used up: then it says which, and how long
// until the next call may be made.
func (c *rates) take(limits []Rate, now time.Time) (spent Rate, wait time.Duration, ok bool) {
	if len(limits) == 0 {
		return Rate{}, 0, true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range limits {
		each := l.Per / time.Duration(l.Calls)
		if at := c.full[l.Key].Add(each); at.Sub(now) > l.Per && c.full[l.Key].After(now) {
			if w := at.Sub(now) - l.Per; w > wait {
				spent, wait = l, w
			}
		}
	}
	if wait > 0 {
		return spent, wait, false
	}
	if c.full == nil {
		c.full = map[string]time.Time{}
	}
	for _, l := range limits {
		at := c.full[l.Key]
		if at.Before(now) {
			at = now
		}
		c.full[l.Key] = at.Add(l.Per / time.Duration(l.Calls))
	}
	if len(c.full) > maxCounted {
		c.forget(now)
	}
	return Rate{}, 0, true
}

// forget drops what is full again; when that is not enough, everything nearer to it than half of the rest.
func (c *rates) forget(now time.Time) {
	for horizon := now; len(c.full) > maxCounted/2; horizon = horizon.Add(time.Second + horizon.Sub(now)) {
		for key, at := range c.full {
			if at.Before(horizon) {
				delete(c.full, key)
			}
		}
	}
}

// admit counts a call against the rates of its decision. An error is QuotaExceeded.
func (g *Guard) admit(p Plan) error {
	spent, wait, ok := g.rates.take(p.decision.Limits.Rates, g.now())
	if ok {
		return nil
	}
	return sandbox.Errorf(sandbox.QuotaExceeded, "%s: the policy allows %d calls in %s (rule %s); the next one in %d s", what(p.request), spent.Calls, spent.Per, spent.Rule, int(math.Ceil(wait.Seconds())))
}

// errSlow is the cause of a context whose call took longer than the policy allows.
var errSlow = errors.New("the call took longer than the policy allows")

// limited makes a call within the limits of its decision, and redacts what comes of it.
func (g *Guard) limited(ctx context.Context, p Plan, watch sandbox.ToolWatch) (sandbox.ToolResult, error) {
	l := p.decision.Limits
	if l.Time > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, l.Time, errSlow)
		defer cancel()
	}
	if hidden := p.decision.Redact.Result; !hidden.empty() {
		watch = hidden.watch(watch)
	}
	res, err := g.o.Hub.CallChecked(ctx, p.request.Thread, p.Tool, p.request.Arguments, watch)
	if err != nil && errors.Is(context.Cause(ctx), errSlow) {
		return sandbox.ToolResult{}, sandbox.Errorf(sandbox.Timeout, "%s: no answer within %s, which the policy allows", what(p.request), l.Time)
	}
	if err != nil {
		return res, p.decision.Redact.Result.fault(err)
	}
	if n := int64(max(len(res.Result), len(res.Raw))); l.Bytes > 0 && n > l.Bytes {
		return sandbox.ToolResult{}, sandbox.Errorf(sandbox.QuotaExceeded, "%s: the result has %d bytes; the policy allows %d", what(p.request), n, l.Bytes)
	}
	return p.decision.Redact.Result.result(res)
}

// result takes out of a result what is hidden.
func (h Hidden) result(res sandbox.ToolResult) (sandbox.ToolResult, error) {
	if h.empty() {
		return res, nil
	}
	res.Result = h.apply(res.Result)
	if len(res.Raw) == 0 {
		return res, nil
	}
	raw, err := h.raw(res.Raw)
	if err != nil {
		return sandbox.ToolResult{}, sandbox.Errorf(sandbox.ToolFailed, "the result cannot be redacted as the policy wants: %s", err)
	}
	res.Raw = raw
	return res, nil
}

// raw does so in a CallToolResult: within structuredContent and _meta, and in the texts of its blocks.
func (h Hidden) raw(text json.RawMessage) (json.RawMessage, error) {
	v, err := parse(text)
	if err != nil {
		return nil, err
	}
	members, ok := v.(map[string]any)
	if !ok {
		return nil, errors.New("it is no object")
	}
	for _, name := range []string{"structuredContent", "_meta"} {
		if m, there := members[name]; there {
			members[name] = h.value(m, nil)
		}
	}
	blocks, _ := members["content"].([]any)
	for _, b := range blocks {
		block, ok := b.(map[string]any)
		if !ok {
			return nil, errors.New("a block of its content is no object")
		}
		for _, o := range []any{block, block["resource"]} {
			o, ok := o.(map[string]any)
			if !ok {
				continue
			}
			for _, name := range []string{"text", "description", "title"} {
				if s, ok := o[name].(string); ok {
					o[name] = h.text(s)
				}
			}
		}
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(members); err != nil {
		return nil, fmt.Errorf("it cannot be written: %w", err)
	}
	return bytes.TrimRight(out.Bytes(), "\n"), nil
}

// fault takes out of a tool's error what is hidden, and its cause, which repeats it.
func (h Hidden) fault(err error) error {
	var known *sandbox.Error
	if h.empty() || !errors.As(err, &known) || known.Kind != sandbox.ToolFailed {
		return err
	}
	return &sandbox.Error{Kind: known.Kind, Detail: h.text(known.Detail)}
}

// watch takes away what cannot be redacted: a server's log, and the messages of its progress.
func (h Hidden) watch(w sandbox.ToolWatch) sandbox.ToolWatch {
	w.Log = nil
	if tell := w.Progress; tell != nil {
		w.Progress = func(p sandbox.ToolProgress) {
			p.Message = ""
			tell(p)
		}
	}
	return w
}
