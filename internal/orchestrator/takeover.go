package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/ownership/ownerrecord"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// What a replica leaves that ended, however it did: claims with sandboxes, which are adopted by whoever
// is asked for the thread first, or looks first; and attempts in its audit log, which get their results from
// whoever buries it.

const (
	// lookEvery is how often it is looked for replicas that ended.
	lookEvery = time.Second
	// lookAnyway is how often all owner records are read when no replica is known to have ended: one that died in the middle of a
	// take-over may have left claims of a third one.
	lookAnyway = 30 * time.Second
	// takeOverParallel is how many threads are taken over side by side.
	takeOverParallel = 8
)

// ExitedReplica is a replica that ended.
type ExitedReplica struct {
	Replica string
	// Slot is that of its audit log.
	Slot int
}

// errBusy says that a replica cannot be buried yet.
var errBusy = errors.New("there are claims of it left")

// inherit adopts the sandbox of a former replica, or removes it.
func (r *Orchestrator) inherit(ctx context.Context, own *ownership, former ownerrecord.OwnerRecord) error {
	entry, err := r.o.Driver.Inspect(ctx, former.Sandbox)
	if errors.Is(err, sandbox.NotFound) || err == nil && entry.Labels[sandbox.LabelInstall] != r.o.Install {
		r.clearAway(ctx, former.Sandbox)
		return nil
	}
	if err != nil { // the engine is away: nobody can say what became of the sandbox
		return errors.Join(sandbox.Wrap(sandbox.Unavailable, err, "the thread's sandbox cannot be looked at now; try again"), r.giveBack(ctx, own, former))
	}
	why := errors.New("this server could not remove it before")
	var inst *instance
	if former.Replica != r.peers.ID() {
		inst, why = r.adopt(ctx, own, entry)
	}
	if why == nil {
		r.restore(ctx, inst, entry.State == sandbox.Paused)
		r.mu.Lock()
		if r.instances[own.thread] == nil {
			r.enterMap(inst)
			inst.slot = r.places.Seat(inst.thread.Tenant) // whatever the limits are now
			inst.limits = r.o.Limits.Seat(sandbox.Caller{Owner: inst.thread.Owner}, inst.id)
		} else {
			why = errors.New("its thread has begun another one")
		}
		r.mu.Unlock()
	}
	if why == nil {
		r.ownerships.mu.Lock()
		own.refs++ // of the instance
		r.ownerships.mu.Unlock()
		r.o.Log.Info("sandbox adopted", "thread", own.thread.String(), "sandbox", string(entry.ID), "from", former.Replica)
		rec := record(sandbox.Caller{}, own.thread, audit.ActionSandboxAdopt, audit.PhaseResult)
		rec.Sandbox, rec.Subject, rec.Outcome, rec.Detail = string(entry.ID), inst.template.Name, "ok", "from "+former.Replica
		if _, err := r.o.Audit.Append(ctx, rec); err != nil {
			r.o.Log.Error("adoption not recorded", "sandbox", string(entry.ID), "error", err)
		}
		return nil
	}
	var higher *fenced
	if errors.As(why, &higher) && !r.confirm(own) { // it is another server's by now, to be left alone
		r.endSkills(inst, false)
		return errors.Join(&elsewhere{}, inst.letGo())
	}
	r.o.Log.Info("sandbox of a former server removed", "sandbox", string(entry.ID), "why", why)
	if inst != nil {
		if err := inst.letGo(); err != nil {
			r.o.Log.Warn("sockets not closed", "error", err)
		}
		r.endSkills(inst, false)
	}
	removing, cancel := detached(ctx, removeTimeout)
	defer cancel()
	if err := r.o.Driver.Remove(removing, entry.ID); err != nil {
		r.o.Log.Error("sandbox not removed; tried again later", "sandbox", string(entry.ID), "error", err)
		return errors.Join(sandbox.Wrap(sandbox.Unavailable, err, "the sandbox that the thread had cannot be removed now; try again"), r.giveBack(removing, own, former))
	}
	r.clearAway(removing, entry.ID)
	if err := r.o.Store.DeleteSandbox(removing, own.thread, entry.ID); err != nil {
		r.o.Log.Warn("sandbox record not deleted", "error", err)
	}
	return nil
}

// giveBack makes an owner record again what it was, for the next try.
func (r *Orchestrator) giveBack(ctx context.Context, own *ownership, former ownerrecord.OwnerRecord) error {
	page, err := r.lockPage(context.WithoutCancel(ctx), own.thread)
	if err != nil {
		return err
	}
	defer page.Close()
	if c, ok, err := page.Record(); err != nil || !ok || !r.ours(own, c) {
		return err
	}
	r.leftBehind.Store(true)
	return errors.Join(page.Write(former), r.o.Store.ReleaseLease(context.WithoutCancel(ctx), own.thread, r.peers.ID()))
}

// clearAway removes the run folder of a sandbox that no longer exists.
func (r *Orchestrator) clearAway(_ context.Context, id sandbox.ID) {
	if id == "" {
		return
	}
	if err := os.RemoveAll(filepath.Join(r.runRoot(), string(id))); err != nil {
		r.o.Log.Error("run folder not removed", "sandbox", string(id), "error", err)
	}
}

// awake resumes a sandbox that was paused when its server ended: a frozen sandboxd dials nobody.
func (r *Orchestrator) awake(ctx context.Context, entry *sandbox.Instance) error {
	p, ok := r.o.Driver.(driver.Pauser)
	if entry.State != sandbox.Paused || !ok {
		return nil
	}
	if err := p.Resume(ctx, entry.ID); err != nil {
		return err
	}
	entry.State = sandbox.Running
	return nil
}

// lookAfterPeers takes over what other replicas leave, until the orchestrator is closed.
func (r *Orchestrator) lookAfterPeers() {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	silent := map[string]time.Time{} // replica that does not answer -> since when we know
	for n := 0; ; n++ {
		select {
		case <-r.ctx.Done():
			return
		case <-tick.C:
		}
		if !r.Draining() { // else it would take again what it hands over
			r.lookAtPeers(n, silent)
		}
	}
}

// lookAtPeers is the n-th look of lookAfterPeers. As long as no other server ended, or is silent, it reads no owner record.
func (r *Orchestrator) lookAtPeers(n int, silent map[string]time.Time) {
	if time.Duration(n)*lookEvery%lookAnyway == 0 || r.leftBehind.Load() || r.peers.Unsettled() {
		r.takeOverDead(r.ctx)
	}
	if time.Duration(n)*lookEvery%renewEvery == 0 {
		r.takeOverSilent(silent)
	}
}

// takeOverDead takes the threads of replicas that ended, and then buries these. Its failures are tried again.
func (r *Orchestrator) takeOverDead(ctx context.Context) {
	r.leftBehind.Store(false)
	claims, err := r.owners.All()
	if err != nil {
		r.leftBehind.Store(true)
		r.o.Log.Error("claims not read", "error", err)
		return
	}
	alive := map[string]bool{r.peers.ID(): true}
	var left []ownerrecord.OwnerRecord
	for _, c := range claims {
		known, seen := alive[c.Replica]
		if !seen {
			known = r.peers.Alive(c.Replica)
			alive[c.Replica] = known
		}
		// One of our own that nobody holds is of a sandbox that could not be removed.
		if !known || c.Replica == r.peers.ID() && !r.ownerships.has(c.Thread()) {
			left = append(left, c)
		}
	}
	r.takeOver(ctx, left, "")
	if len(left) > 0 { // until a look finds nothing
		r.leftBehind.Store(true)
	}
	if r.o.SettleReplicas == nil {
		return
	}
	if err := r.o.SettleReplicas(func(d ExitedReplica) error { return r.settleReplica(ctx, d) }); err != nil && !errors.Is(err, errBusy) && ctx.Err() == nil {
		r.o.Log.Error("what a former server left is not settled; tried again", "error", err)
	}
}

// takeOver takes threads, some side by side. from is as for acquire.
func (r *Orchestrator) takeOver(ctx context.Context, claims []ownerrecord.OwnerRecord, from string) {
	var wg sync.WaitGroup
	defer wg.Wait()
	free := make(chan struct{}, takeOverParallel)
	for _, c := range claims {
		free <- struct{}{}
		wg.Go(func() {
			defer func() { <-free }()
			own, err := r.acquire(ctx, c.Thread(), from)
			var other *elsewhere
			switch {
			case err == nil:
				r.release(own) // its instance has it, if there is one
			case !errors.As(err, &other) && ctx.Err() == nil:
				r.o.Log.Warn("thread not taken over; tried again", "thread", c.Thread().String(), "error", err)
			}
		})
	}
}

// takeOverSilent takes threads whose server is there but does not answer, and whose lease ran out: a stopped
// process, say. That a lease is not there is no proof by itself, for Redis may have lost it: a whole lease time must
// pass in which the server could have taken it again.
func (r *Orchestrator) takeOverSilent(silent map[string]time.Time) {
	others, err := r.peers.Others()
	if err != nil {
		r.o.Log.Error("other servers not known", "error", err)
		return
	}
	for replica := range silent {
		if !slices.Contains(others, replica) {
			delete(silent, replica)
		}
	}
	for _, replica := range others {
		if r.peers.Answers(r.ctx, replica) {
			delete(silent, replica)
			continue
		}
		since, known := silent[replica]
		if !known {
			silent[replica] = time.Now()
			continue
		}
		if time.Since(since) <= leaseTime {
			continue
		}
		claims, err := r.owners.All()
		if err != nil {
			return
		}
		r.takeOver(r.ctx, r.expired(slices.DeleteFunc(claims, func(c ownerrecord.OwnerRecord) bool { return c.Replica != replica })), replica)
	}
}

// expired returns the owner records whose lease nobody has.
func (r *Orchestrator) expired(claims []ownerrecord.OwnerRecord) []ownerrecord.OwnerRecord {
	var list []ownerrecord.OwnerRecord
	for _, c := range claims {
		if _, err := r.o.Store.Lease(r.ctx, c.Thread()); errors.Is(err, sandbox.NotFound) {
			list = append(list, c)
		}
	}
	return list
}

// settleReplica gives every action that a replica which ended began its one result. Its threads are taken first,
// because that ends what still ran in them.
func (r *Orchestrator) settleReplica(ctx context.Context, d ExitedReplica) error {
	claims, err := r.owners.All()
	if err != nil {
		return err
	}
	for _, c := range claims {
		if c.Replica == d.Replica {
			return errBusy
		}
	}
	if r.o.SweepReplica != nil {
		if err := r.o.SweepReplica(ctx, d.Replica); err != nil {
			return err
		}
	}
	if r.o.OpenAudit == nil {
		return nil
	}
	log, err := r.o.OpenAudit(d.Slot)
	if err != nil {
		return fmt.Errorf("its audit log: %w", err)
	}
	err = r.closeOpenAttempts(ctx, log)
	return errors.Join(err, log.Close())
}

// closeOpenAttempts gives every action that the writer of a log began and did not end its one result.
func (r *Orchestrator) closeOpenAttempts(ctx context.Context, log *audit.Log) error {
	for _, a := range log.OpenAttempts() {
		rec := a
		rec.Parent, rec.Phase, rec.Outcome = a.ID, audit.PhaseResult, string(sandbox.StatusLost)
		rec.Detail = "the server ended before the action did"
		rec.Args, rec.Millis = nil, time.Since(a.Time).Milliseconds()
		if _, err := log.AppendSync(ctx, rec); err != nil {
			return err
		}
		if a.Exec != "" && a.Action != audit.ActionToolCall {
			r.execs.addLost(a)
		}
	}
	return nil
}
