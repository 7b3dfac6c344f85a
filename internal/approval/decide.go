package approval

import (
	"cmp"
	"context"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store"
)

func cut(s string) string {
	if s = strings.ToValidUTF8(s, "�"); len(s) > maxText {
		s = strings.ToValidUTF8(s[:maxText], "") + "…"
	}
	return s
}

// List returns the requests that the caller may see, newest first: its own, or for those who decide the tenant's.
func (s *Approvals) List(ctx context.Context, c sandbox.Caller, f sandbox.ApprovalFilter) (items []sandbox.Approval, next string, err error) {
	f.Tenant = c.Tenant
	if !mayDecide(c) {
		if f.User != "" && f.User != c.User {
			return nil, "", sandbox.Errorf(sandbox.Forbidden, "requests of other users need a key of the role developer or admin")
		}
		f.User = c.User
	}
	s.sweep(ctx, c.Tenant)
	return s.o.Store.Approvals(ctx, f)
}

// Get returns one request that the caller may see, or NotFound.
func (s *Approvals) Get(ctx context.Context, c sandbox.Caller, id string) (sandbox.Approval, error) {
	a, err := s.o.Store.Approval(ctx, c.Tenant, id)
	if err == nil && !mayDecide(c) && a.User != c.User {
		err = sandbox.Errorf(sandbox.NotFound, "there is no such request for approval")
	}
	if err == nil && a.State == sandbox.ApprovalPending && s.expireOverdue(ctx, a) {
		a, err = s.o.Store.Approval(ctx, c.Tenant, id)
	}
	return a.Approval, err
}

func mayDecide(c sandbox.Caller) bool { return c.Admin() || c.Role == sandbox.RoleDeveloper }

// Decide decides a request. Conflict: it is decided already, or over; the error says how. Forbidden: the caller may
// not, or the request was made with the very same key.
func (s *Approvals) Decide(ctx context.Context, c sandbox.Caller, id string, v sandbox.ApprovalVerdict) (sandbox.Approval, error) {
	if !mayDecide(c) {
		return sandbox.Approval{}, sandbox.Errorf(sandbox.Forbidden, "to decide needs a key of the role developer or admin")
	}
	return s.decide(ctx, c, id, v, "api")
}

func check(v *sandbox.ApprovalVerdict) error {
	switch {
	case len(v.Reason) > sandbox.MaxApprovalReason || !utf8.ValidString(v.Reason):
		return sandbox.Errorf(sandbox.Invalid, "reason: want at most %d bytes of UTF-8", sandbox.MaxApprovalReason)
	case !v.Approve && v.Scope != "":
		return sandbox.Errorf(sandbox.Invalid, "scope: only an approval has one")
	case !v.Approve:
		return nil
	}
	switch v.Scope = cmp.Or(v.Scope, sandbox.ApproveOnce); v.Scope {
	case sandbox.ApproveOnce, sandbox.ApproveArguments, sandbox.ApproveThread:
		return nil
	}
	return sandbox.Errorf(sandbox.Invalid, "scope: %.40q is not one of once, arguments, thread", v.Scope)
}

func (s *Approvals) decide(ctx context.Context, c sandbox.Caller, id string, v sandbox.ApprovalVerdict, how string) (sandbox.Approval, error) {
	if err := check(&v); err != nil {
		return sandbox.Approval{}, err
	}
	a, err := s.o.Store.Approval(ctx, c.Tenant, id)
	if err != nil {
		return sandbox.Approval{}, err
	}
	state := sandbox.ApprovalDenied
	if v.Approve {
		state = sandbox.ApprovalApproved
	}
	s.expireOverdue(ctx, a)
	rec := decisionRecord(c, a, how, state, v)
	rec.Phase = audit.PhaseAttempt
	attempt, err := s.journal.write(ctx, rec)
	if err != nil {
		return sandbox.Approval{}, err
	}
	at := time.Now().UTC()
	a, err = s.o.Store.ChangeApproval(ctx, c.Tenant, id, func(a *store.ApprovalRecord) error {
		switch {
		case a.State != sandbox.ApprovalPending && a.Decision != nil:
			return sandbox.Errorf(sandbox.Conflict, "the request is %s already, by %s at %s", a.State, a.Decision.By, a.Decision.At.Format(time.RFC3339))
		case a.State != sandbox.ApprovalPending:
			return sandbox.Errorf(sandbox.Conflict, "the request is %s", a.State)
		case v.Approve && byKey(c, a.KeyID):
			return sandbox.Errorf(sandbox.Forbidden, "the call was made with this very key: approve it with another one")
		}
		a.State = state
		a.Decision = &sandbox.ApprovalDecision{By: whoIs(c), KeyID: c.KeyID, How: how, Scope: v.Scope, Reason: v.Reason, At: at}
		a.ExpiresAt = at.Add(s.o.Timeout).Truncate(time.Millisecond) // for the same call, made again
		return nil
	})
	if err == nil {
		if err = s.grants.save(ctx, a); err == nil {
			s.decideAlike(ctx, c, a)
		}
	}
	rec.Phase, rec.Parent, rec.Args, rec.Outcome = audit.PhaseResult, attempt.ID, nil, string(state)
	if err != nil {
		rec.Outcome, rec.Detail = "error", err.Error()
	}
	if _, e := s.journal.write(context.WithoutCancel(ctx), rec); e != nil && err == nil {
		err = e
	}
	return a.Approval, err
}

// whoIs names who decides.
func whoIs(c sandbox.Caller) string {
	if c.OnBehalf() {
		return c.User + " (by " + c.Actor + ")"
	}
	return c.User
}

// decideAlike lets the other calls go on that wait for what a lasting approval has given by now: code may have made
// many at once. Those of the key that decides wait on.
func (s *Approvals) decideAlike(ctx context.Context, c sandbox.Caller, a store.ApprovalRecord) {
	if a.State != sandbox.ApprovalApproved || a.Decision.Scope == sandbox.ApproveOnce {
		return
	}
	open, err := s.o.Store.OpenApprovals(ctx, threadOf(a))
	if err != nil {
		s.o.Log.Warn("calls that are approved by now wait on", "approval", a.ID, "error", err)
	}
	name, why := grantName(callOf(a), a.Decision.Scope), "by the lasting approval "+a.ID
	for _, other := range open {
		if other.State != sandbox.ApprovalPending || grantName(callOf(other), a.Decision.Scope) != name {
			continue
		}
		now, err := s.o.Store.ChangeApproval(ctx, other.Tenant, other.ID, func(o *store.ApprovalRecord) error {
			if o.State != sandbox.ApprovalPending {
				return errTaken
			}
			if byKey(c, o.KeyID) {
				return errOwn
			}
			d := *a.Decision
			d.Scope, d.Reason = sandbox.ApproveOnce, why
			o.State, o.Decision = sandbox.ApprovalApproved, &d
			return nil
		})
		if err == nil {
			s.journal.writeEnd(ctx, now, string(sandbox.ApprovalApproved), why)
		}
	}
}

func decisionRecord(c sandbox.Caller, a store.ApprovalRecord, how string, state sandbox.ApprovalState, v sandbox.ApprovalVerdict) audit.Record {
	rec := requestRecord(a).By(c)
	if rec.Detail = v.Reason; rec.Actor == "" && c.User != a.User {
		rec.Actor = c.User
	}
	rec.Args, _ = audit.Args(map[string]any{"approval": a.ID, "decision": state, "by": whoIs(c), "how": how, "scope": v.Scope, "reason": v.Reason})
	return rec
}
