package approval

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/platform/deadline"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store"
)

const (
	// lookAgain is how often one who waits looks by itself: so long a message that was lost delays it.
	lookAgain = 5 * time.Second
	// settleTime bounds what must be written after a caller went away.
	settleTime = 10 * time.Second
	// maxText bounds each text of a request, in bytes; arguments are bounded by the audit log's redaction.
	maxText = 1024
)

// requests is what Approvals needs of *store.Store.
type requests interface {
	AddApproval(ctx context.Context, a store.ApprovalRecord) error
	Approval(ctx context.Context, tenant, id string) (store.ApprovalRecord, error)
	ChangeApproval(ctx context.Context, tenant, id string, change func(*store.ApprovalRecord) error) (store.ApprovalRecord, error)
	OpenApprovals(ctx context.Context, t sandbox.Thread) ([]store.ApprovalRecord, error)
	AllOpenApprovals(ctx context.Context, tenant string) ([]store.ApprovalRecord, error)
	Approvals(ctx context.Context, f sandbox.ApprovalFilter) (items []sandbox.Approval, next string, err error)
	WatchApprovals(ctx context.Context, changed func(id string))
}

// Options are what Approvals works with. Store, Grants, Audit and Replica are needed.
type Options struct {
	Store  requests
	Grants grantStore
	Audit  auditLog
	// Replica names this server, and Alive tells which others there are; nil: none.
	Replica string
	Alive   func(replica string) bool
	// Timeout is how long a request waits for a decision, and a decision for its call.
	Timeout time.Duration
	// Waits is told of each call that begins to wait; over, of how that ended. nil: none needs to know.
	Waits func(ctx context.Context, a sandbox.Approval) (over func(sandbox.Approval))
	// Webhook is told of each request and may decide it; nil: there is none.
	Webhook *Webhook
	Log     *slog.Logger // nil = none
}

// Approvals asks and decides. Make one with New, and close it. It is safe for concurrent use.
type Approvals struct {
	o       Options
	grants  grants
	journal journal
	waiters waiters
	ctx     context.Context // ends with Close
	stop    context.CancelFunc
	wg      sync.WaitGroup

	leaving chan struct{} // closed by LetGo
	leave   sync.Once
}

// New begins to listen for decisions.
func New(o Options) *Approvals {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Alive == nil {
		o.Alive = func(string) bool { return false }
	}
	if o.Waits == nil {
		o.Waits = func(context.Context, sandbox.Approval) func(sandbox.Approval) { return func(sandbox.Approval) {} }
	}
	s := &Approvals{
		o: o, grants: grants{store: o.Grants}, journal: journal{audit: o.Audit, log: o.Log},
		waiters: waiters{byRequest: map[string]chan struct{}{}}, leaving: make(chan struct{}),
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.wg.Go(func() { o.Store.WatchApprovals(s.ctx, s.waiters.wake) })
	return s
}

// LetGo ends all waits of this server, because it stops: the requests stay for calls that are made again.
func (s *Approvals) LetGo() { s.leave.Do(func() { close(s.leaving) }) }

// Close ends everything, after LetGo.
func (s *Approvals) Close() {
	s.LetGo()
	s.stop()
	s.wg.Wait()
}

// errStopping says that the request is not lost.
var errStopping = sandbox.Errorf(sandbox.Unavailable, "this server is stopping; the request for approval stays, make the call again")

// Ask returns nil when the call may be made, once. Forbidden: a person denied it; Timeout: no person decided in
// time; QuotaExceeded: too many calls wait; Unavailable: the state cannot be reached, or the server stops.
func (s *Approvals) Ask(ctx context.Context, c sandbox.ApprovalCall) error {
	if granted, err := s.granted(ctx, c); granted || err != nil {
		return err
	}
	a, err := s.find(ctx, c)
	if err != nil {
		return err
	}
	if a.Used != nil {
		return s.verdict(ctx, a)
	}
	return s.await(ctx, a)
}

// granted reports whether the thread has been given this call for good.
func (s *Approvals) granted(ctx context.Context, c sandbox.ApprovalCall) (bool, error) {
	g, there, err := s.grants.find(ctx, c)
	if err != nil || !there {
		return false, err
	}
	rec := callRecord(c, audit.ActionApprovalDecision)
	rec.Outcome, rec.Detail = string(sandbox.ApprovalApproved), "by the lasting approval "+g.Approval+" of "+g.By
	_, err = s.journal.write(ctx, rec)
	return err == nil, err
}

// find returns a request of the thread for the very same call whose caller is gone: used, when it is decided, or waited
// for by us from now on. Else it makes one.
func (s *Approvals) find(ctx context.Context, c sandbox.ApprovalCall) (store.ApprovalRecord, error) {
	open, err := s.o.Store.OpenApprovals(ctx, c.Thread)
	if err != nil {
		return store.ApprovalRecord{}, err
	}
	for _, a := range open {
		if !same(a, c) || !s.orphan(a) || s.expireOverdue(ctx, a) {
			continue
		}
		a, err := s.o.Store.ChangeApproval(context.WithoutCancel(ctx), a.Tenant, a.ID, func(a *store.ApprovalRecord) error {
			if !s.orphan(*a) || a.Used != nil || !decidable(a.State) {
				return errTaken
			}
			switch {
			case a.State == sandbox.ApprovalPending: // from now on it is a request of this caller
				a.Waiter, a.Exec, a.Request, a.KeyID = s.o.Replica, c.Exec, c.Caller.RequestID, c.Caller.KeyID
			case a.State == sandbox.ApprovalApproved && byKey(c.Caller, a.Decision.KeyID):
				return errOwn
			default:
				use(a)
			}
			return nil
		})
		switch {
		case err == nil:
			return a, s.takeUp(ctx, a, c)
		case sandbox.KindOf(err) == sandbox.Unavailable:
			return a, err
		}
	}
	return s.add(ctx, c)
}

// takeUp records that a call goes on with a request of one before it.
func (s *Approvals) takeUp(ctx context.Context, a store.ApprovalRecord, c sandbox.ApprovalCall) error {
	rec := callRecord(c, audit.ActionApprovalRequest)
	rec.Outcome, rec.Detail = string(a.State), a.ID+": made again"
	if a.Used != nil {
		rec.Action, rec.Detail = audit.ActionApprovalDecision, a.ID+": decided by "+a.Decision.By+" before the call was made again"
	}
	_, err := s.journal.write(ctx, rec)
	if err == nil && a.Used == nil && s.o.Webhook != nil {
		s.wg.Go(func() { s.deliver(a) }) // the server before may not have managed
	}
	return err
}

func decidable(state sandbox.ApprovalState) bool {
	return state == sandbox.ApprovalPending || state == sandbox.ApprovalApproved || state == sandbox.ApprovalDenied
}

// byKey reports whether a caller uses this very key: what it approved of other callers' calls is not for its own. A
// token has the name of its issuer there.
func byKey(c sandbox.Caller, key string) bool {
	return c.Method == sandbox.ByKey && c.KeyID == key
}

var errOwn = sandbox.Errorf(sandbox.Conflict, "the caller approved this request itself")

var errTaken = sandbox.Errorf(sandbox.Conflict, "another call has this request")

func same(a store.ApprovalRecord, c sandbox.ApprovalCall) bool {
	return a.Tool == c.Tool && a.Server == c.Server && a.Skill == c.Skill && a.ArgsHash == c.ArgsHash
}

// orphan reports whether no caller waits for a request any more.
func (s *Approvals) orphan(a store.ApprovalRecord) bool {
	return a.Waiter == "" || a.Waiter != s.o.Replica && !s.o.Alive(a.Waiter)
}

func use(a *store.ApprovalRecord) {
	now := time.Now().UTC()
	a.Used, a.Waiter = &now, ""
}

// add records a new request and keeps it.
func (s *Approvals) add(ctx context.Context, c sandbox.ApprovalCall) (store.ApprovalRecord, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return store.ApprovalRecord{}, sandbox.Wrap(sandbox.Internal, err, "no id for the request")
	}
	args, _ := audit.Args(c.Shown)
	now := time.Now().UTC().Truncate(time.Millisecond)
	a := store.ApprovalRecord{Waiter: s.o.Replica, SkillDigest: c.SkillDigest, Approval: sandbox.Approval{
		ID: id.String(), State: sandbox.ApprovalPending, Tenant: c.Thread.Tenant, User: c.Thread.User, Thread: c.Thread.ID,
		Exec: c.Exec, Request: c.Caller.RequestID, KeyID: c.Caller.KeyID, Server: cut(c.Server), Tool: cut(c.Tool), Skill: cut(c.Skill),
		Arguments: args, ArgsHash: c.ArgsHash, Bytes: c.Bytes, Why: cut(c.Why), CreatedAt: now, ExpiresAt: now.Add(s.o.Timeout),
	}}
	if len(c.Annotations) <= maxText {
		a.Annotations = c.Annotations
	}
	rec := callRecord(c, audit.ActionApprovalRequest)
	rec.Outcome, rec.Detail, rec.Args, rec.ArgsHash, rec.BytesIn = string(sandbox.ApprovalPending), a.ID+": "+a.Why, args, c.ArgsHash, c.Bytes
	if rec, err = s.journal.write(ctx, rec); err != nil {
		return a, err
	}
	a.Record = rec.ID
	// The store may have the request when the caller leaves: await cancels it there. The store bounds the time.
	lasting := context.WithoutCancel(ctx)
	err = s.o.Store.AddApproval(lasting, a)
	if sandbox.KindOf(err) == sandbox.QuotaExceeded && s.sweep(ctx, a.Tenant) {
		err = s.o.Store.AddApproval(lasting, a)
	}
	if err != nil {
		s.journal.writeEnd(ctx, a, "error", err.Error())
		return a, err
	}
	if s.o.Webhook != nil {
		s.wg.Go(func() { s.deliver(a) })
	}
	return a, nil
}

// await waits until a request is decided, or the caller is gone.
func (s *Approvals) await(ctx context.Context, a store.ApprovalRecord) error {
	look, end := s.waiters.listen(a.ID)
	defer end()
	defer deadline.Hold(ctx)()
	over := s.o.Waits(ctx, a.Approval)
	last := a
	defer func() { over(last.Approval) }()
	for {
		now, err := s.look(ctx, a)
		if err == nil {
			if last = now; now.State != sandbox.ApprovalPending {
				return s.verdict(ctx, now)
			}
		}
		left := time.Until(a.ExpiresAt)
		if errors.Is(err, errTaken) || err != nil && left <= 0 && ctx.Err() == nil { // what was decided is unknown
			return err
		}
		timer := time.NewTimer(max(min(lookAgain, left), 10*time.Millisecond))
		select {
		case <-look:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			last = s.abandon(ctx, a)
			return ctx.Err()
		case <-s.leaving:
			timer.Stop()
			s.abandon(ctx, a)
			return errStopping
		}
		timer.Stop()
	}
}

// look returns a request as it is now. A decision of it is used by that, and it expires when its time is over.
func (s *Approvals) look(ctx context.Context, a store.ApprovalRecord) (store.ApprovalRecord, error) {
	now, err := s.o.Store.Approval(ctx, a.Tenant, a.ID)
	if err != nil {
		return now, err
	}
	if now.State == sandbox.ApprovalPending {
		if s.expireOverdue(ctx, now) {
			return s.o.Store.Approval(ctx, a.Tenant, a.ID)
		}
		return now, nil
	}
	if now.State != sandbox.ApprovalApproved && now.State != sandbox.ApprovalDenied {
		return now, nil
	}
	return s.o.Store.ChangeApproval(ctx, a.Tenant, a.ID, func(now *store.ApprovalRecord) error {
		if now.Used != nil || now.Waiter != s.o.Replica {
			return errTaken
		}
		use(now)
		return nil
	})
}

// verdict is what the call of a request that is over gets.
func (s *Approvals) verdict(ctx context.Context, a store.ApprovalRecord) error {
	switch a.State {
	case sandbox.ApprovalApproved:
		return s.grants.save(ctx, a)
	case sandbox.ApprovalDenied:
		if a.Decision.Reason == "" {
			return sandbox.Errorf(sandbox.Forbidden, "denied by %s", a.Decision.By)
		}
		return sandbox.Errorf(sandbox.Forbidden, "denied by %s: %s", a.Decision.By, a.Decision.Reason)
	case sandbox.ApprovalExpired:
		return sandbox.Errorf(sandbox.Timeout, "this needs an approval, and no decision came within %s", s.o.Timeout)
	}
	return sandbox.Errorf(sandbox.Unavailable, "the request for approval was cancelled")
}

// abandon says that no caller waits for a request any more. It stays when this server stops, or a person decided it just
// now: for the same call, made again.
func (s *Approvals) abandon(ctx context.Context, a store.ApprovalRecord) store.ApprovalRecord {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer cancel()
	stays := false
	select {
	case <-s.leaving:
		stays = true
	default:
	}
	ended := false
	now, err := s.o.Store.ChangeApproval(ctx, a.Tenant, a.ID, func(a *store.ApprovalRecord) error {
		if a.Waiter != s.o.Replica {
			return errTaken
		}
		a.Waiter = ""
		if ended = a.State == sandbox.ApprovalPending && !stays; ended {
			a.State = sandbox.ApprovalCancelled
		}
		return nil
	})
	switch {
	case err != nil:
		s.o.Log.Warn("a request for approval is left to its end", "id", a.ID, "error", err)
	case ended:
		s.journal.writeEnd(ctx, now, string(sandbox.ApprovalCancelled), "the exec ended, or the caller went away")
	}
	return now
}

// expireOverdue ends a request whose time is over. Any server that sees such a request calls it.
func (s *Approvals) expireOverdue(ctx context.Context, a store.ApprovalRecord) bool {
	if time.Now().Before(a.ExpiresAt) {
		return false
	}
	ended := false
	now, err := s.o.Store.ChangeApproval(ctx, a.Tenant, a.ID, func(a *store.ApprovalRecord) error {
		if ended = decidable(a.State) && a.Used == nil; ended {
			a.State, a.Waiter = sandbox.ApprovalExpired, ""
		}
		return nil
	})
	switch {
	case err != nil:
		s.o.Log.Warn("a request for approval that is too late is left", "id", a.ID, "error", err)
	case ended && now.Decision == nil:
		s.journal.writeEnd(ctx, now, string(sandbox.ApprovalExpired), "no decision in time: denied")
	case ended:
		s.journal.writeEnd(ctx, now, string(sandbox.ApprovalExpired), "no call used the decision")
	}
	return true
}

// sweep ends what is too late of a tenant, and reports whether there was any.
func (s *Approvals) sweep(ctx context.Context, tenant string) (any bool) {
	open, err := s.o.Store.AllOpenApprovals(ctx, tenant)
	if err != nil {
		s.o.Log.Warn("requests for approval not looked at", "tenant", tenant, "error", err)
	}
	for _, a := range open {
		any = s.expireOverdue(ctx, a) || any
	}
	return any
}

// Forget ends what a thread that no longer exists has asked for, and takes back what it was given.
func (s *Approvals) Forget(ctx context.Context, t sandbox.Thread) error {
	open, err := s.o.Store.OpenApprovals(ctx, t)
	if err != nil {
		return err
	}
	for _, a := range open {
		ended := false
		now, err := s.o.Store.ChangeApproval(ctx, a.Tenant, a.ID, func(a *store.ApprovalRecord) error {
			if ended = decidable(a.State) && a.Used == nil; ended {
				a.State = sandbox.ApprovalCancelled
			}
			return nil
		})
		if err != nil {
			return err
		}
		if ended {
			s.journal.writeEnd(ctx, now, string(sandbox.ApprovalCancelled), "the thread was deleted")
		}
	}
	return s.o.Grants.ForgetGrants(ctx, t)
}
