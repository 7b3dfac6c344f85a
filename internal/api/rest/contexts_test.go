package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

func (w *world) CreateContext(_ context.Context, c sandbox.Caller, _ string, q sandbox.ContextRequest) (sandbox.CodeContext, error) {
	return sandbox.CodeContext{ContextID: "c1", Language: q.Language, Cwd: q.Cwd, State: sandbox.ContextIdle}, w.see(c)
}

func (w *world) Contexts(_ context.Context, c sandbox.Caller, _ string) ([]sandbox.CodeContext, error) {
	return []sandbox.CodeContext{{ContextID: "c1", State: sandbox.ContextLost, Detail: "gone"}}, w.see(c)
}

func (w *world) Context(_ context.Context, c sandbox.Caller, _, id string) (sandbox.CodeContext, error) {
	if id != "c1" {
		return sandbox.CodeContext{}, sandbox.Errorf(sandbox.NotFound, "there is no context")
	}
	return sandbox.CodeContext{ContextID: id, State: sandbox.ContextBusy, ExecID: "e1"}, w.see(c)
}

func (w *world) InterruptContext(ctx context.Context, c sandbox.Caller, thread, id string) (sandbox.CodeContext, error) {
	w.changes = append(w.changes, "interrupt "+id)
	return w.Context(ctx, c, thread, id)
}

func (w *world) RestartContext(ctx context.Context, c sandbox.Caller, thread, id string) (sandbox.CodeContext, error) {
	w.changes = append(w.changes, "restart "+id)
	return w.Context(ctx, c, thread, id)
}

func (w *world) DeleteContext(_ context.Context, c sandbox.Caller, _, id string) error {
	w.changes = append(w.changes, "delete context "+id)
	return w.see(c)
}

func TestContexts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := handler(t, w)
	const url = "/api/threads/t1/contexts"
	for _, c := range []struct {
		method, url, body string
		status            int
		want              string
	}{
		{"POST", url, `{"language":"python","cwd":"/tmp"}`, 201, `"context_id":"c1","language":"python","cwd":"/tmp","state":"idle"`},
		{"GET", url, "", 200, `{"items":[{"context_id":"c1"`},
		{"GET", url + "/c1", "", 200, `"state":"busy","exec_id":"e1"`},
		{"POST", url + "/c1/interrupt", "", 200, `"state":"busy"`},
		{"POST", url + "/c1/restart", "", 200, `"state":"busy"`},
		{"DELETE", url + "/c1", "", 204, ""},
	} {
		rec := send(h, c.method, c.url, c.body)
		if rec.Code != c.status || !strings.Contains(rec.Body.String(), c.want) {
			t.Errorf("%s %s: %d %s", c.method, c.url, rec.Code, rec.Body)
		}
	}
	if got := fmt.Sprint(w.changes); got != "[interrupt c1 restart c1 delete context c1]" {
		t.Errorf("changes %s", got)
	}
	// A run in a context has results, also when there were none; a fresh one has no word of them.
	rec := send(h, "POST", "/api/threads/t1/execute_code", `{"code":"1"}`)
	if strings.Contains(rec.Body.String(), "results") {
		t.Errorf("a fresh run: %s", rec.Body)
	}
	w.result.Context = &sandbox.ContextOutcome{ContextID: "c1", State: sandbox.ContextIdle}
	w.result.Results = &[]sandbox.RichResult{}
	rec = send(h, "POST", "/api/threads/t1/execute_code", `{"code":"1","context_id":"c1"}`)
	if !strings.Contains(rec.Body.String(), `"results":[]`) || !strings.Contains(rec.Body.String(), `"context":{"context_id":"c1","state":"idle"}`) {
		t.Errorf("a run in a context: %s", rec.Body)
	}
	w.result.Results = &[]sandbox.RichResult{{"text/plain": json.RawMessage(`"1"`), "application/json": json.RawMessage(`{"a":1}`)}}
	rec = send(h, "POST", "/api/threads/t1/execute_code", `{"code":"1","context_id":"c1"}`)
	if !strings.Contains(rec.Body.String(), `"results":[{"application/json":{"a":1},"text/plain":"1"}]`) {
		t.Errorf("results: %s", rec.Body)
	}
}
