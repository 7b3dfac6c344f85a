package rest

import (
	"context"
	"net/http"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// decisions is approvals with one request.
type decisions struct {
	filter  sandbox.ApprovalFilter
	verdict sandbox.ApprovalVerdict
}

func (d *decisions) List(_ context.Context, _ sandbox.Caller, f sandbox.ApprovalFilter) ([]sandbox.Approval, string, error) {
	d.filter = f
	return []sandbox.Approval{{ID: "a1", State: sandbox.ApprovalPending}}, "a1", nil
}

func (d *decisions) Get(_ context.Context, _ sandbox.Caller, id string) (sandbox.Approval, error) {
	if id != "a1" {
		return sandbox.Approval{}, sandbox.Errorf(sandbox.NotFound, "there is none")
	}
	return sandbox.Approval{ID: id, State: sandbox.ApprovalPending}, nil
}

func (d *decisions) Decide(_ context.Context, c sandbox.Caller, id string, v sandbox.ApprovalVerdict) (sandbox.Approval, error) {
	d.verdict = v
	return sandbox.Approval{ID: id, State: sandbox.ApprovalApproved, ApprovalOutcome: sandbox.ApprovalOutcome{Decision: &sandbox.ApprovalDecision{By: c.User}}}, nil
}

func TestApprovals(t *testing.T) {
	t.Parallel()
	d := &decisions{}
	h := handler(t, &world{}, func(o *Options) { o.Approvals = d })
	m := decodeBody(t, send(h, "GET", "/api/approvals?state=pending&thread=t1&user=ann&tool=fs__write&cursor=x&limit=5", ""))
	want := sandbox.ApprovalFilter{State: "pending", Thread: "t1", User: "ann", Tool: "fs__write", Cursor: "x", Limit: 5}
	if d.filter != want || m["next_cursor"] != "a1" {
		t.Errorf("%+v, %v", d.filter, m)
	}
	if m = decodeBody(t, send(h, "GET", "/api/approvals/a1", "")); m["id"] != "a1" || m["state"] != "pending" {
		t.Errorf("%v", m)
	}
	wantProblem(t, send(h, "GET", "/api/approvals/a2", ""), 404, "not_found")
	m = decodeBody(t, send(h, "POST", "/api/approvals/a1", `{"decision":"approve","scope":"thread","reason":"fine"}`))
	if d.verdict != (sandbox.ApprovalVerdict{Approve: true, Scope: "thread", Reason: "fine"}) || m["state"] != "approved" {
		t.Errorf("%+v, %v", d.verdict, m)
	}
	for _, bad := range []string{`{}`, `{"decision":"yes"}`, `{"decision":"approve","scope":"all"}`} {
		if rec := send(h, "POST", "/api/approvals/a1", bad); rec.Code < 400 || rec.Code >= 500 {
			t.Errorf("%s: %d", bad, rec.Code)
		}
	}
	if rec := send(h, "GET", "/api/approvals?state=maybe", ""); rec.Code < 400 || rec.Code >= 500 {
		t.Errorf("a state that there is not: %d", rec.Code)
	}
	without := handler(t, &world{})
	if rec := send(without, "GET", "/api/approvals", ""); rec.Code != http.StatusOK || rec.Body.String() != "{\"items\":[]}\n" {
		t.Errorf("without: %d %s", rec.Code, rec.Body)
	}
	wantProblem(t, send(without, "POST", "/api/approvals/a1", `{"decision":"deny"}`), 501, "not_supported")
}
