package orchestrator

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	sandboxv1 "github.com/skerry-sandbox/skerry/internal/sandboxapi/v1"
)

func (d daemon) OpenContext(context.Context, *connect.Request[sandboxv1.OpenContextRequest]) (*connect.Response[sandboxv1.OpenContextResponse], error) {
	return connect.NewResponse(&sandboxv1.OpenContextResponse{}), nil
}

func (d daemon) CloseContext(context.Context, *connect.Request[sandboxv1.CloseContextRequest]) (*connect.Response[sandboxv1.CloseContextResponse], error) {
	return connect.NewResponse(&sandboxv1.CloseContextResponse{}), nil
}

// inContext runs a text in a new context of a house whose sandboxd answers with exit.
func inContext(t *testing.T, exit *sandboxv1.Exit) (*house, sandbox.CodeContext, sandbox.Result, error) {
	t.Helper()
	h := newHouse(t, daemon{run: func(out *connect.ServerStream[sandboxv1.Event]) error {
		if exit == nil {
			return connect.NewError(connect.CodeNotFound, errors.New("no such exec"))
		}
		return out.Send(&sandboxv1.Event{N: 1, Kind: &sandboxv1.Event_Exit{Exit: exit}})
	}})
	cc, err := h.Contexts.CreateContext(t.Context(), caller, "t", sandbox.ContextRequest{Language: "python"})
	if err != nil {
		t.Fatal(err)
	}
	id, err := h.Runs.RunCode(t.Context(), caller, "t", sandbox.Code{ContextID: cc.ContextID, Text: "1"})
	if err != nil {
		t.Fatal(err)
	}
	res, err := h.Execs.Wait(t.Context(), caller, "t", id)
	return h, cc, res, err
}

// TestResultsAreData: what the code's own process says that it displayed is bounded, typed, and never a path
// of another user's file.
func TestResultsAreData(t *testing.T) {
	t.Parallel()
	raw := [][]byte{
		[]byte(`{"text/plain":"x","image/png":7,"not a type":"x","../../etc":"x","application/json":{"a":[1]},"x/y+json":null}`),
		[]byte(`{"application/vnd.skerry.file+json":[{"mime":"text/html","path":"/mnt/user-data/workspace/other","bytes":1},{"mime":"text/html","path":"/etc/passwd"}]}`),
		[]byte(`{"application/vnd.skerry.file+json":"/etc/passwd"}`),
		[]byte(`["text/plain"]`), []byte(`{"text/plain":"cut`), []byte(strings.Repeat("[", 100_000)), {},
	}
	_, cc, res, err := inContext(t, &sandboxv1.Exit{Status: sandboxv1.Exit_STATUS_EXITED, Results: raw, ResultsLeftOut: 3})
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(res.Results)
	if want := `[{"application/json":{"a":[1]},"text/plain":"x","x/y+json":null}]`; err != nil || string(got) != want || res.ResultsLeftOut != 3 {
		t.Errorf("%s, want %s", got, want)
	}
	if *res.Context != (sandbox.ContextOutcome{ContextID: cc.ContextID, State: sandbox.ContextIdle}) {
		t.Errorf("context %+v", res.Context)
	}
}

// TestContextRules: who may run in a context, when, and what its loss says.
func TestContextRules(t *testing.T) {
	t.Parallel()
	h, cc, res, err := inContext(t, &sandboxv1.Exit{Status: sandboxv1.Exit_STATUS_EXITED, Code: 3, ContextLost: true})
	if err != nil || res.Context.State != sandbox.ContextLost || !strings.Contains(res.Context.Detail, "code 3") {
		t.Fatalf("%+v, %v", res.Context, err)
	}
	run := func(c sandbox.Caller, thread string, code sandbox.Code) error {
		_, err := h.Runs.RunCode(t.Context(), c, thread, code)
		return err
	}
	code := sandbox.Code{ContextID: cc.ContextID, Text: "1"}
	if err := run(caller, "t", code); !errors.Is(err, sandbox.Conflict) || !strings.Contains(err.Error(), "restart it") {
		t.Errorf("lost: %v", err)
	}
	if _, err := h.Contexts.InterruptContext(t.Context(), caller, "t", cc.ContextID); !errors.Is(err, sandbox.Conflict) {
		t.Errorf("interrupt of a lost one: %v", err)
	}
	if back, err := h.Contexts.RestartContext(t.Context(), caller, "t", cc.ContextID); err != nil || back.State != sandbox.ContextIdle || back.Runs != 0 {
		t.Errorf("restart: %+v, %v", back, err)
	}
	other := sandbox.Caller{Owner: sandbox.Owner{Tenant: "t", User: "other"}}
	for what, err := range map[string]error{
		"another user": run(other, "t", code), "another thread": run(caller, "u", code),
		"delete of another": h.Contexts.DeleteContext(t.Context(), other, "t", cc.ContextID),
	} {
		if !errors.Is(err, sandbox.NotFound) {
			t.Errorf("%s: %v", what, err)
		}
	}
	wrong := code
	wrong.Language = "typescript"
	if err := run(caller, "t", wrong); !errors.Is(err, sandbox.Invalid) {
		t.Errorf("another language: %v", err)
	}
	for range sandbox.MaxContexts - 1 {
		if _, err := h.Contexts.CreateContext(t.Context(), caller, "t", sandbox.ContextRequest{Language: "python"}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := h.Contexts.CreateContext(t.Context(), caller, "t", sandbox.ContextRequest{Language: "python"}); !errors.Is(err, sandbox.CapacityExceeded) {
		t.Errorf("one too many: %v", err)
	}
	// It was not used for an hour.
	h.Contexts.Backdate(sandbox.Thread{Owner: caller.Owner, ID: "t"}, 2*sandbox.ContextIdleTime)
	h.Contexts.Expire(t.Context())
	if err := run(caller, "t", code); !errors.Is(err, sandbox.Conflict) || !strings.Contains(err.Error(), "not used") {
		t.Errorf("after an hour: %v", err)
	}
}

// TestContextThatDiedBetweenRuns: sandboxd does not know it any more.
func TestContextThatDiedBetweenRuns(t *testing.T) {
	t.Parallel()
	h, cc, _, err := inContext(t, nil)
	if !errors.Is(err, sandbox.Conflict) || !strings.Contains(err.Error(), "ended by itself") {
		t.Errorf("%v", err)
	}
	list, err := h.Contexts.Contexts(t.Context(), caller, "t")
	if err != nil || len(list) != 1 || list[0].State != sandbox.ContextLost || list[0].ContextID != cc.ContextID {
		t.Errorf("%+v, %v", list, err)
	}
}
