package policy

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// counter lets so many calls through as the first rate of a call says, for ever.
type counter struct {
	taken map[string]int
	asked int
	err   error
}

func (c *counter) Take(_ context.Context, rates []Rate) (*Rate, time.Duration, error) {
	c.asked++
	if c.err != nil {
		return nil, 0, c.err
	}
	for i := range rates {
		if c.taken[rates[i].Key] >= rates[i].Calls {
			return &rates[i], rates[i].Per / time.Duration(rates[i].Calls), nil
		}
	}
	for _, r := range rates {
		c.taken[r.Key]++
	}
	return nil, 0, nil
}

// TestRateIsCounted: a call without a rate makes no round trip; a call whose rate cannot be counted is not made.
func TestRateIsCounted(t *testing.T) {
	const text = "default: allow\nrules:\n- id: r\n  match: {tool: x}\n  limit: {calls: 2, per: 1h}"
	h := &fakeHub{tools: []sandbox.Tool{tool("x", ""), tool("y", "")}}
	c := &counter{err: errors.New("secret.host refuses")}
	g := ruled(t, h, text)
	g.o.Counter = c
	if _, err := call(g, "y", ""); err != nil || c.asked != 0 {
		t.Errorf("%v, asked %d times", err, c.asked)
	}
	for _, g.o.Counter = range []Counter{c, nil} {
		if _, err := call(g, "x", ""); sandbox.KindOf(err) != sandbox.Unavailable || !strings.Contains(err.Error(), "s__x: the policy allows only so many calls (rule r), and they cannot be counted now") || len(h.sent) != 1 {
			t.Errorf("%v, sent %q", err, h.sent)
		}
	}
}

// ruled is a guard whose rules are those of the text.
func ruled(t *testing.T, h *fakeHub, text string) *Guard {
	t.Helper()
	set := &Set{Global: rules(t, text)}
	return New(Options{Hub: h, Upstream: h, Counter: &counter{taken: map[string]int{}}, Decider: decider{decide: func(r Request) Decision { return set.Decide(context.Background(), r) }}})
}

// TestLimits: calls beyond a rate, and results beyond their bytes, do not come through.
func TestLimits(t *testing.T) {
	h := &fakeHub{tools: []sandbox.Tool{tool("x", ""), tool("y", "")}, reply: sandbox.ToolResult{Result: json.RawMessage(`"0123456789"`)}}
	g := ruled(t, h, "default: allow\nrules:\n- id: r\n  match: {tool: x}\n  limit: {calls: 2, per: 1h, by: tool}\n- id: b\n  match: {tool: y}\n  limit: {bytes: 11}")
	for range 2 {
		if _, err := call(g, "x", ""); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := call(g, "x", ""); sandbox.KindOf(err) != sandbox.QuotaExceeded || !strings.Contains(err.Error(), "the policy allows 2 calls in 1h0m0s (rule r); the next one in 1800 s") || len(h.sent) != 2 {
		t.Errorf("%v, sent %q", err, h.sent)
	}
	if res, err := call(g, "y", ""); sandbox.KindOf(err) != sandbox.QuotaExceeded || len(res.Result) != 0 {
		t.Errorf("%v, %s", err, res.Result)
	}
}

// TestRedactedResult: what the rules hide is in no form of a result, nor in an error.
func TestRedactedResult(t *testing.T) {
	const rule = "default: allow\nrules:\n- id: r\n  redact: {result: {fields: [ssn, user.phone], patterns: ['\\b\\d{3}-\\d{2}-\\d{4}\\b', '\\b4\\d{15}\\b']}, args: {fields: [password]}}"
	for _, c := range []struct{ result, raw string }{
		{result: `{"ssn":"canary","user":{"phone":"canary"},"list":[{"SSN":["canary"]}],"kept":1}`},
		{result: `"a text with 123-45-6789 kept"`},
		{result: `"{\"ssn\":\"canary\",\"note\":\"kept\"}"`},
		{result: `{"kept":1}`, raw: `{"structuredContent":{"ssn":"canary"},"content":[{"type":"text","text":"{\"ssn\": \"canary\", \"a\": \"kept\"}"},{"type":"resource","resource":{"uri":"x:","text":"123-45-6789"}}]}`},
		{result: `{"kept":1}`, raw: `{"content":["canary"]}`},
		{result: `{"kept":1}`, raw: `["canary"]`},
		{result: `{"kept":1}`, raw: `{"content":{"text":"123-45-6789"}}`},
		{result: `{"ssn":1,"ssn":"canary"}`},
		{result: `"{\"ssn\":1,\"ssn\":\"canary\"}"`}, // a text that is JSON with a name twice
		{result: `{"\uff53sn":"canary","a":"kept"}`}, // a wide s
		{result: `{"id":4111111111111111,"a":"kept"}`},
		{result: `{"by 123-45-6789":{"a":"kept"},"4111111111111111":1}`},
		{result: `{"kept":1}`, raw: `{"content":[{"type":"resource_link","uri":"x:123-45-6789","name":"4111111111111111","_meta":{"ssn":"canary"}}]}`},
		{result: `{"kept":1}`, raw: `{"toolResult":{"ssn":"canary"},"content":[{"type":"text","text":"kept","annotations":{"ssn":"canary"}}]}`},
		{result: `{"kept":1}`, raw: `{"content":[{"type":"resource","resource":{"uri":"x:","blob":"` + base64.StdEncoding.EncodeToString([]byte("123-45-6789")) + `"}}]}`},
	} {
		h := &fakeHub{tools: []sandbox.Tool{tool("x", "")}, reply: sandbox.ToolResult{Result: json.RawMessage(c.result), Raw: json.RawMessage(c.raw)}}
		res, err := call(ruled(t, h, rule), "x", "")
		all := string(res.Result) + string(res.Raw) + fmt.Sprint(err)
		if strings.Contains(all, "canary") || strings.Contains(all, "123-45-6789") || strings.Contains(all, "4111") || strings.Contains(all, base64.StdEncoding.EncodeToString([]byte("123-45-6789"))) {
			t.Errorf("%s %s gives %s", c.result, c.raw, all)
		}
		if strings.Contains(c.result, "kept") && err == nil && !strings.Contains(all, "kept") {
			t.Errorf("%s %s gives only %s", c.result, c.raw, all)
		}
		if len(res.Raw) > 0 && !json.Valid(res.Raw) || len(res.Result) > 0 && !json.Valid(res.Result) {
			t.Errorf("no JSON: %s", all)
		}
	}
	// Arguments are hidden from those who look, not from the server.
	h := &fakeHub{tools: []sandbox.Tool{tool("x", "")}}
	g := ruled(t, h, rule)
	p, err := g.Plan(context.Background(), Call{Caller: caller, Thread: thread, Ref: sandbox.ToolRef{Printed: "s__x"}, Input: []byte(`{"login":{"password":"canary"}}`)})
	if err != nil || strings.Contains(string(p.Shown(p.request.Arguments)), "canary") {
		t.Errorf("%v, shown %s", err, p.Shown(p.request.Arguments))
	}
	if _, err := g.Make(context.Background(), p, "", sandbox.ToolWatch{}); err != nil || len(h.sent) != 1 || !strings.Contains(h.sent[0], "canary") {
		t.Errorf("%v, sent %q", err, h.sent)
	}
}

// TestAmbiguousArguments: what two programs read differently reaches no server, whatever the rules.
func TestAmbiguousArguments(t *testing.T) {
	for _, input := range []string{
		`{"path":"/tmp/x","path":"/etc/passwd"}`, `{"a":{"b":1,"\u0062":2}}`, `{"s":"\udc00"}`, "{\"s\":\"\xc0\xaf\"}", `{"a":1} {"a":2}`, `{"a":1`,
	} {
		h := &fakeHub{tools: []sandbox.Tool{tool("x", "")}}
		if _, err := call(New(Options{Hub: h, Upstream: h}), "x", input); sandbox.KindOf(err) != sandbox.Invalid || len(h.sent) != 0 {
			t.Errorf("%s: %v, sent %q", input, err, h.sent)
		}
	}
	h := &fakeHub{tools: []sandbox.Tool{tool("x", "")}}
	const odd = `{ "b":1.50, "a":[1e2,"\ud83d\ude00","é"] , "n":12345678901234567890}`
	if _, err := call(New(Options{Hub: h, Upstream: h}), "x", odd); err != nil || h.sent[0] != "s__x "+odd {
		t.Errorf("%v: the server gets %q", err, h.sent)
	}
}
