package limits

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store"
)

// reports bring this server's counts to the others.
type reports struct{ *Gate }

// ledger is where counts go.
type ledger struct{ tenant, day string }

// account is what was counted for one ledger and is not reported yet.
type account struct {
	counts store.Counts
	marks  []store.CPUMark
}

// parcel is an account on its way: it keeps its number until it has arrived, so that it counts once.
type parcel struct {
	ledger
	*account
	number uint64
}

// closeTime bounds the last report.
const closeTime = 5 * time.Second

// count adds to a counter of a caller, its tenant and its key.
func (g *Gate) count(c sandbox.Caller, counter string, n int64) {
	today := store.Day(g.o.Now())
	reports{g}.countOne(c.Tenant, today, "t", counter, n)
	reports{g}.countOne(c.Tenant, today, "u:"+c.User, counter, n)
	if c.KeyID != "" {
		reports{g}.countOne(c.Tenant, today, "k:"+c.KeyID, counter, n)
	}
}

func (g reports) countOne(tenant, day, scope, counter string, n int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	a := g.account(ledger{tenant, day})
	of := a.counts[scope]
	if of == nil {
		if len(a.counts) >= maxScopes && scope != "t" {
			return
		}
		of = map[string]int64{}
		a.counts[scope] = of
	}
	of[counter] += n
}

// account returns the open one. The caller holds mu.
func (g reports) account(l ledger) *account {
	a := g.counts[l]
	if a == nil {
		a = &account{counts: store.Counts{}}
		g.counts[l] = a
	}
	return a
}

// meter is what is known of the CPU time of a sandbox.
type meter struct {
	counted time.Duration // negative: unknown
	latest  time.Duration // the newest total; -1: it is in an account already
	caller  sandbox.Caller
}

// CPU takes the CPU time that a sandbox has used since it was made, as its driver measured it. The caller is who it is
// counted for. adopted: another server may have counted some of it.
func (g *Gate) CPU(c sandbox.Caller, id sandbox.ID, total time.Duration, adopted bool) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	m := g.marks[id]
	if m == nil {
		m = &meter{latest: -1}
		if adopted {
			m.counted = -1
		}
		g.marks[id] = m
	}
	m.caller = c
	if total > m.counted {
		m.latest = total
	}
}

// CPUUsed counts CPU time that no driver measures.
func (g *Gate) CPUUsed(c sandbox.Caller, used time.Duration) {
	if g == nil {
		return
	}
	g.count(c, countCPU, used.Milliseconds())
}

// ForgetCPU ends the account of a sandbox that is gone.
func (g *Gate) ForgetCPU(id sandbox.ID) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	reports{g}.takeMark(id)
	delete(g.marks, id)
}

// takeMark puts the newest word about a sandbox into an account. The caller holds mu.
func (g reports) takeMark(id sandbox.ID) {
	m := g.marks[id]
	if m == nil || m.latest < 0 {
		return
	}
	scopes := make([]string, 0, 3)
	for _, s := range scopesOf(m.caller) {
		scopes = append(scopes, s.key)
	}
	a := g.account(ledger{m.caller.Tenant, store.Day(g.o.Now())})
	a.marks = append(a.marks, store.CPUMark{Sandbox: id, Total: m.latest, Known: m.counted, Scopes: scopes})
	m.counted, m.latest = m.latest, -1
}

// run reports counts and places, held and freed, to the state store until the gate closes.
func (g reports) run(ctx context.Context) {
	defer close(g.done)
	counting, renewing := time.NewTicker(reportEvery), time.NewTicker(g.o.HoldTime/3)
	defer counting.Stop()
	defer renewing.Stop()
	failing := false
	for {
		renew, count := false, false
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.Background(), closeTime)
			defer cancel()
			if err := firstError(g.reportPlaces(last, false), g.reportCounts(last)); err != nil {
				g.o.Log.Warn("the last counts of usage are lost", "error", err)
			}
			return
		case <-g.kick:
		case <-renewing.C:
			renew = true
		case <-counting.C:
			count = true
		}
		err := g.reportPlaces(ctx, renew)
		if count {
			err = firstError(err, g.reportCounts(ctx))
		}
		if bad := err != nil && ctx.Err() == nil; bad != failing {
			if failing = bad; bad {
				g.o.Log.Warn("usage cannot be reported to the state store; it is reported later", "error", err)
			} else {
				g.o.Log.Info("usage is reported again")
			}
		}
	}
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// Close reports what is left and frees no place: the places of sandboxes stay taken.
func (g *Gate) Close() error {
	g.stop()
	<-g.done
	g.measuring.Wait()
	return nil
}

// reportPlaces frees places and extends the others.
func (g reports) reportPlaces(ctx context.Context, renew bool) error {
	keep := map[string][]store.Held{}
	g.mu.Lock()
	for p := range g.places {
		if renew || !p.exec { // a sandbox place has to be reported soon; sandboxes are few
			keep[p.caller.Tenant] = append(keep[p.caller.Tenant], p.held...)
		}
	}
	tenants := slices.Collect(maps.Keys(g.back))
	g.mu.Unlock()
	for tenant := range keep {
		if !slices.Contains(tenants, tenant) {
			tenants = append(tenants, tenant)
		}
	}
	var failed error
	for _, tenant := range tenants {
		back := places(g).toBringBack(tenant)
		for held := range slices.Chunk(append(keep[tenant], store.Held{}), maxBack) { // once also without any
			held = g.extend(tenant, held)
			err := g.o.State.ExtendHeld(ctx, tenant, held, back, g.o.HoldTime)
			g.extended(tenant)
			if err != nil {
				failed = firstError(failed, err)
				continue
			}
			g.arrived(tenant, back)
			back = nil
		}
	}
	return failed
}

// extend returns those of held whose places are still taken. What gives them back from now on says so again once they are
// extended: else a place that was freed meanwhile would be taken for HoldTime.
func (g reports) extend(tenant string, held []store.Held) []store.Held {
	g.mu.Lock()
	defer g.mu.Unlock()
	taken := map[store.Held]struct{}{}
	for p := range g.places {
		if p.caller.Tenant == tenant {
			for _, h := range p.held {
				taken[h] = struct{}{}
			}
		}
	}
	g.kept = map[store.Held]struct{}{}
	var still []store.Held
	for _, h := range held {
		if _, ok := taken[h]; ok {
			still = append(still, h)
			g.kept[h] = struct{}{}
		}
	}
	return still
}

// extended ends what extend began. What was given back meanwhile goes once more.
func (g reports) extended(tenant string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for h := range g.back[tenant] {
		if _, again := g.kept[h]; again {
			g.nudge()
			break
		}
	}
	g.kept = nil
}

// reportCounts closes the open accounts and sends all that has not arrived. Only the goroutine that reports touches unsent.
func (g reports) reportCounts(ctx context.Context) error {
	for g.seal(); len(g.unsent) > 0; {
		p := g.unsent[0]
		if err := g.o.State.Count(ctx, p.tenant, p.day, g.o.Server, p.number, p.counts, p.marks); err != nil {
			return err
		}
		g.unsent = g.unsent[1:]
	}
	return nil
}

// seal closes the open accounts when all before have arrived. Until then they gather what is counted, so that there is
// never more of it than there are tenants, users and keys.
func (g reports) seal() {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.o.Now()
	for p := range g.places {
		if p.exec {
			continue
		}
		lived := now.Sub(p.since)
		p.since = now
		for _, s := range scopesOf(p.caller) {
			a := g.account(ledger{p.caller.Tenant, store.Day(now)})
			if a.counts[s.key] == nil {
				a.counts[s.key] = map[string]int64{}
			}
			a.counts[s.key][countSandboxes] += lived.Milliseconds()
		}
	}
	if len(g.unsent) > 0 {
		return
	}
	for id := range g.marks {
		g.takeMark(id)
	}
	g.batch++
	for l, a := range g.counts {
		g.unsent = append(g.unsent, parcel{ledger: l, account: a, number: g.batch})
		delete(g.counts, l)
	}
}
