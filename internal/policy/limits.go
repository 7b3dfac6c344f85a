package policy

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"
	"unicode/utf8"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Counter counts calls, those of all servers together. Take is called at the same time by many.
type Counter interface {
	// Take counts a call against all rates, or against none when one of them is used up: then spent is that one, and wait
	// how long it will be until there is room in it. An error: it cannot be counted.
	Take(ctx context.Context, rates []Rate) (spent *Rate, wait time.Duration, err error)
}

// admit counts a call against the rates of its decision; without any it asks no store. An error is QuotaExceeded, or Unavailable:
// a limit that cannot be counted allows nothing.
func (g *Guard) admit(ctx context.Context, p Plan) error {
	rates := p.decision.Limits.Rates
	if len(rates) == 0 {
		return nil
	}
	if g.o.Counter == nil {
		return uncounted(p, errors.New("no counter is configured"))
	}
	spent, wait, err := g.o.Counter.Take(ctx, rates)
	if err != nil {
		return uncounted(p, err)
	}
	if spent != nil {
		return sandbox.TooManyCalls("%s: the policy allows %d calls in %s (rule %s); the next one in %d s", what(p.request), spent.Calls, spent.Per, spent.Rule, int(math.Ceil(wait.Seconds())))
	}
	return nil
}

func uncounted(p Plan, err error) error {
	return sandbox.Wrap(sandbox.Unavailable, err, "%s: the policy allows only so many calls (rule %s), and they cannot be counted now; try again", what(p.request), p.decision.Limits.Rates[0].Rule)
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

// raw does so in a CallToolResult: within the blocks of its content, and in all else that it has.
func (h Hidden) raw(text json.RawMessage) (json.RawMessage, error) {
	v, err := parse(text)
	if err != nil {
		return nil, err
	}
	members, ok := v.(map[string]any)
	if !ok {
		return nil, errors.New("it is no object")
	}
	for name, m := range members {
		if name != "content" && name != "resultType" {
			members[name] = h.value(m, nil)
		}
	}
	blocks, ok := members["content"].([]any)
	if !ok && members["content"] != nil {
		return nil, errors.New("its content is no list")
	}
	for _, b := range blocks {
		block, ok := b.(map[string]any)
		if !ok {
			return nil, errors.New("a block of its content is no object")
		}
		h.block(block)
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(members); err != nil {
		return nil, fmt.Errorf("it cannot be written: %w", err)
	}
	return bytes.TrimRight(out.Bytes(), "\n"), nil
}

// block hides in a block of content, or in a resource within it. Bytes that are a text are looked into.
func (h Hidden) block(o map[string]any) {
	for name, v := range o {
		switch name {
		case "type", "mimeType": // words of the protocol
		case "resource":
			if r, ok := v.(map[string]any); ok {
				h.block(r)
				continue
			}
			o[name] = h.value(v, nil)
		case "data", "blob":
			encoded, _ := v.(string)
			if text, err := base64.StdEncoding.DecodeString(encoded); err == nil && utf8.Valid(text) {
				if shown := h.text(string(text)); shown != string(text) {
					o[name] = base64.StdEncoding.EncodeToString([]byte(shown))
				}
			}
		default:
			o[name] = h.value(v, nil)
		}
	}
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
