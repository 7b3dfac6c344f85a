package limits

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store"
)

// places are what is held until it is released.
type places struct{ *Gate }

// Rules are the limits of one tenant, user or key. 0 is none.
type Rules struct {
	RequestsPerMinute  int64
	RequestsBurst      int64 // at once; 0: those of ten seconds
	Execs              int64 // that run at a time
	Sandboxes          int64 // that live at a time
	CPUSecondsPerDay   int64
	DiskMiB            int64
	ToolCallsPerDay    int64
	ToolCallsPerMinute int64
	ToolCallsBurst     int64
}

// Table returns the rules that are about a caller. A caller without a key has no rules of one.
type Table interface {
	Of(c sandbox.Caller) (tenant, user, key Rules)
}

// The names of limits, as errors, the API and metrics have them.
const (
	Requests      = "requests_per_minute"
	Execs         = "execs"
	Sandboxes     = "sandboxes"
	CPU           = "cpu_seconds_per_day"
	Disk          = "disk_mib"
	ToolCalls     = "tool_calls_per_day"
	ToolCallsRate = "tool_calls_per_minute"
)

// The counters of usage.
const (
	countRequests  = "requests"
	countExecs     = "execs"
	countExecTime  = "exec_ms"
	countCPU       = "cpu_ms"
	countTools     = "tool_calls"
	countCodeTools = "code_tool_calls"
	countResults   = "tool_result_bytes"
	countReturned  = "returned_bytes"
	countStarts    = "sandbox_starts"
	countSandboxes = "sandbox_ms"
	countRefused   = "refused"
)

var counters = []string{countRequests, countExecs, countExecTime, countCPU, countTools, countCodeTools, countResults, countReturned, countStarts, countSandboxes, countRefused}

const (
	// HoldTime is how long a place is kept for a server that says nothing of it any more. A server holds on to its
	// places three times as often.
	HoldTime = 30 * time.Second
	// reportEvery is how often counts are reported, and with them the CPU time that limits see.
	reportEvery = time.Second
	// diskEvery is how often the files of who has a limit of them are measured, while it does something.
	diskEvery = 30 * time.Second
	// diskWait bounds the first of these measurements, which a call waits for.
	diskWait = 15 * time.Second
	// maxScopes bounds those whose counts wait to be reported, of one tenant. With more, only the tenant's go on.
	maxScopes = 50_000
	// maxBack bounds the places that one check frees.
	maxBack = 512
)

// state is what Gate needs of *store.Store.
type state interface {
	Admit(ctx context.Context, tenant string, checks []store.Check, back []store.Held) (*store.Refusal, error)
	ExtendHeld(ctx context.Context, tenant string, keep, back []store.Held, ttl time.Duration) error
	CountHeld(ctx context.Context, tenant, limit, scope string) (int64, error)
	Count(ctx context.Context, tenant, day, server string, batch uint64, c store.Counts, marks []store.CPUMark) error
	Usage(ctx context.Context, tenant string, days, scopes, counters []string) (map[string]store.Counts, error)
}

// Options are the parts of a Gate. State, Table and Server are needed.
type Options struct {
	State  state
	Table  Table
	Server string // names this process, for good
	// Disk returns the bytes of all files of a user, or of a tenant when user is "". nil: no limit of them is kept to.
	Disk func(ctx context.Context, tenant, user string) (int64, error)
	// Refused is called for each refusal, with the name of the limit and the kind of its scope. May be nil.
	Refused func(limit, scope string)
	Log     *slog.Logger
	// HoldTime and Now replace the package's in tests.
	HoldTime time.Duration
	Now      func() time.Time
}

// Gate lets calls in, and counts. Make one with New; all methods may be called concurrently. What use cases ask of it, they
// may ask of a nil one, too: it lets all in.
type Gate struct {
	o Options

	mu     sync.Mutex
	places map[*Place]struct{}
	back   map[string]map[store.Held]struct{} // by tenant: given back, and not known to have arrived
	kept   map[store.Held]struct{}            // of the tenant whose places are being extended: the extension may come after what frees them
	counts map[ledger]*account
	marks  map[sandbox.ID]*meter
	batch  uint64
	unsent []parcel // sent, and not acknowledged; of the goroutine that reports
	disks  map[diskKey]*disk

	measuring sync.WaitGroup

	kick chan struct{}
	stop context.CancelFunc
	done chan struct{}
}

// New makes a Gate. Close ends it.
func New(o Options) *Gate {
	if o.Now == nil {
		o.Now = time.Now
	}
	o.HoldTime = cmp.Or(o.HoldTime, HoldTime)
	if o.Refused == nil {
		o.Refused = func(string, string) {}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	ctx, stop := context.WithCancel(context.Background())
	g := &Gate{
		o: o, places: map[*Place]struct{}{}, back: map[string]map[store.Held]struct{}{}, counts: map[ledger]*account{},
		marks: map[sandbox.ID]*meter{}, disks: map[diskKey]*disk{}, kick: make(chan struct{}, 1), stop: stop, done: make(chan struct{}),
	}
	go reports{g}.run(ctx)
	return g
}

// scope is one of those who a call is of.
type scope struct {
	kind string // tenant, user or key
	who  string
	key  string // as package store writes it
}

// scopesOf returns the scopes of a caller, the tenant's first.
func scopesOf(c sandbox.Caller) []scope {
	list := make([]scope, 2, 3)
	list[0], list[1] = scope{"tenant", c.Tenant, "t"}, scope{"user", c.User, "u:" + c.User}
	if c.KeyID != "" {
		list = append(list, scope{"key", c.KeyID, "k:" + c.KeyID})
	}
	return list
}

func (g *Gate) rulesOf(c sandbox.Caller) [3]Rules {
	t, u, k := g.o.Table.Of(c)
	return [3]Rules{t, u, k}
}

// demand is what a call asks for: checks, each with the scope that it is of.
type demand struct {
	checks []store.Check
	of     []scope
}

func (d *demand) add(s scope, c store.Check) {
	c.Scope = s.key
	d.checks, d.of = append(d.checks, c), append(d.of, s)
}

func (d *demand) rate(s scope, limit string, perMinute, burst int64) {
	if perMinute <= 0 {
		return
	}
	if burst <= 0 {
		burst = max(1, perMinute/6)
	}
	d.add(s, store.Check{Kind: store.CheckRate, Limit: limit, Max: burst, Every: time.Minute / time.Duration(perMinute)})
}

// admit asks for all of a demand. The caller counts what it asked for.
func (g *Gate) admit(ctx context.Context, c sandbox.Caller, d *demand) error {
	if len(d.checks) == 0 {
		return nil
	}
	back := places{g}.toBringBack(c.Tenant)
	no, err := g.o.State.Admit(ctx, c.Tenant, d.checks, back)
	if err != nil {
		return sandbox.Wrap(sandbox.Unavailable, err, "the limits of the caller cannot be looked up now (the state store does not answer)")
	}
	g.arrived(c.Tenant, back)
	if no == nil {
		return nil
	}
	return g.refuse(c, d.of[no.Check], g.hit(d.checks[no.Check], no))
}

// hit describes a refusal.
func (g *Gate) hit(c store.Check, no *store.Refusal) sandbox.LimitHit {
	h := sandbox.LimitHit{Limit: c.Limit, Max: c.Max, Used: no.Used, Wait: no.Wait}
	switch {
	case c.Kind == store.CheckRate:
		h.Max, h.Used = int64(time.Minute/c.Every), int64(time.Minute/c.Every)
	case c.Kind == store.CheckDay:
		now := g.o.Now().UTC()
		h.Wait = now.Truncate(24 * time.Hour).Add(24 * time.Hour).Sub(now)
		if c.Limit == CPU {
			h.Max, h.Used = h.Max/1000, h.Used/1000
		}
	}
	return h
}

func (g *Gate) refuse(c sandbox.Caller, s scope, h sandbox.LimitHit) error {
	h.Scope, h.Who = s.kind, s.who
	if h.Wait > 0 {
		h.FreeAt = g.o.Now().Add(h.Wait).UTC()
	}
	g.o.Refused(h.Limit, h.Scope)
	g.count(c, countRefused, 1)
	return &sandbox.Error{Kind: sandbox.QuotaExceeded, Detail: describe(h), Limit: &h}
}

func describe(h sandbox.LimitHit) string {
	of := fmt.Sprintf("the %s %q", h.Scope, h.Who)
	switch h.Limit {
	case Requests, ToolCallsRate:
		return fmt.Sprintf("%s may make %d %s; the next one is free in %s", of, h.Max, words[h.Limit], round(h.Wait))
	case Execs, Sandboxes:
		text := fmt.Sprintf("%s has %d %s, its most", of, h.Max, words[h.Limit])
		if h.Wait > 0 {
			text += fmt.Sprintf("; one ends in %s at the latest", round(h.Wait))
		}
		return text
	case Disk:
		return fmt.Sprintf("the files of %s have %d MiB, and it may have %d: delete some", of, h.Used, h.Max)
	}
	return fmt.Sprintf("%s has used %d of %d %s; the next day (UTC) begins in %s", of, h.Used, h.Max, words[h.Limit], round(h.Wait))
}

var words = map[string]string{
	Requests: "requests a minute", ToolCallsRate: "tool calls a minute", Execs: "running execs", Sandboxes: "live sandboxes",
	CPU: "CPU seconds a day", ToolCalls: "tool calls a day",
}

func round(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Round(time.Second)
}

// pending is a request that was not checked yet: the check of what it asks for takes it along.
type pending struct {
	mu   sync.Mutex
	done bool
}

type pendingKey struct{}

// Defer leaves the check of a request to the check of what it asks for, so that both are one step. Settle is called
// at the end.
func (g *Gate) Defer(ctx context.Context) context.Context {
	return context.WithValue(ctx, pendingKey{}, &pending{})
}

// Settle counts a deferred request that asked for nothing.
func (g *Gate) Settle(ctx context.Context, c sandbox.Caller) {
	if takePending(ctx) {
		_ = g.Request(ctx, c) // it was answered; what is left of the bucket is less all the same
	}
}

func takePending(ctx context.Context) bool {
	p, ok := ctx.Value(pendingKey{}).(*pending)
	if !ok {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	first := !p.done
	p.done = true
	return first
}

// addRequest puts a deferred request into a demand.
func (g *Gate) addRequest(ctx context.Context, c sandbox.Caller, d *demand, rules *[3]Rules) {
	if !takePending(ctx) {
		return
	}
	g.count(c, countRequests, 1)
	for i, s := range scopesOf(c) {
		d.rate(s, Requests, rules[i].RequestsPerMinute, rules[i].RequestsBurst)
	}
}

// Request lets a request in. QuotaExceeded, with a LimitHit: there were too many; Unavailable: unknown.
func (g *Gate) Request(ctx context.Context, c sandbox.Caller) error {
	g.count(c, countRequests, 1)
	rules := g.rulesOf(c)
	var d demand
	for i, s := range scopesOf(c) {
		d.rate(s, Requests, rules[i].RequestsPerMinute, rules[i].RequestsBurst)
	}
	return g.admit(ctx, c, &d)
}

// Exec lets an exec in that ends after most. Errors as of Request. The place is given back when it has ended.
func (g *Gate) Exec(ctx context.Context, c sandbox.Caller, id string, most time.Duration) (*Place, error) {
	if g == nil {
		return nil, nil
	}
	rules := g.rulesOf(c)
	if err := g.Files(ctx, c); err != nil {
		return nil, err
	}
	var d demand
	g.addRequest(ctx, c, &d, &rules)
	p := &Place{gate: g, caller: c, since: g.o.Now(), exec: true}
	today := store.Day(g.o.Now())
	for i, s := range scopesOf(c) {
		if n := rules[i].Execs; n > 0 {
			places{g}.hold(&d, p, s, Execs, n, id, p.since.Add(most))
		}
		if n := rules[i].CPUSecondsPerDay; n > 0 {
			d.add(s, store.Check{Kind: store.CheckDay, Limit: CPU, Max: n * 1000, Counter: countCPU, Day: today})
		}
	}
	return p, places{g}.take(ctx, c, &d, p)
}

// Sandbox lets a sandbox in. Errors as of Request. The place is given back when it is gone.
func (g *Gate) Sandbox(ctx context.Context, c sandbox.Caller, id sandbox.ID) (*Place, error) {
	if g == nil {
		return nil, nil
	}
	rules := g.rulesOf(c)
	var d demand
	p := &Place{gate: g, caller: c, since: g.o.Now()}
	for i, s := range scopesOf(c) {
		if n := rules[i].Sandboxes; n > 0 {
			places{g}.hold(&d, p, s, Sandboxes, n, string(id), time.Time{})
		}
	}
	err := places{g}.take(ctx, c, &d, p)
	if err == nil {
		g.count(c, countStarts, 1)
	}
	return p, err
}

// Seat takes the place of a sandbox that lives already, whatever the limits say.
func (g *Gate) Seat(c sandbox.Caller, id sandbox.ID) *Place {
	if g == nil {
		return nil
	}
	rules := g.rulesOf(c)
	p := &Place{gate: g, caller: c, since: g.o.Now()}
	for i, s := range scopesOf(c) {
		if n := rules[i].Sandboxes; n > 0 {
			places{g}.hold(&demand{}, p, s, Sandboxes, n, string(id), time.Time{})
		}
	}
	g.mu.Lock()
	g.places[p] = struct{}{}
	g.mu.Unlock()
	g.nudge()
	return p
}

// ToolCall lets a call of a tool in. Errors as of Request.
func (g *Gate) ToolCall(ctx context.Context, c sandbox.Caller) error {
	if g == nil {
		return nil
	}
	rules := g.rulesOf(c)
	var d demand
	today := store.Day(g.o.Now())
	scopes := scopesOf(c)
	for i, s := range scopes {
		d.rate(s, ToolCallsRate, rules[i].ToolCallsPerMinute, rules[i].ToolCallsBurst)
		if n := rules[i].ToolCallsPerDay; n > 0 {
			d.add(s, store.Check{Kind: store.CheckDay, Limit: ToolCalls, Max: n, Counter: countTools, Day: today, Add: 1})
		}
	}
	if err := g.admit(ctx, c, &d); err != nil {
		return err
	}
	for i, s := range scopes { // who has a limit was counted by the check
		n := int64(1)
		if rules[i].ToolCallsPerDay > 0 {
			n = 0
		}
		reports{g}.countOne(c.Tenant, today, s.key, countTools, n)
	}
	return nil
}

func (g places) hold(d *demand, p *Place, s scope, limit string, most int64, id string, until time.Time) {
	d.add(s, store.Check{Kind: store.CheckHeld, Limit: limit, Max: most, Member: id, Until: until, TTL: g.o.HoldTime})
	p.held = append(p.held, store.Held{Limit: limit, Scope: s.key, Member: id, Until: until})
}

// take asks for a demand and keeps the place. An error leaves open whether it was taken: then it is given back.
func (g places) take(ctx context.Context, c sandbox.Caller, d *demand, p *Place) error {
	err := g.admit(ctx, c, d)
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case err == nil:
		g.places[p] = struct{}{}
	case sandbox.KindOf(err) == sandbox.Unavailable:
		g.giveBack(c.Tenant, p.held)
	}
	return err
}

// Place is what an exec or a sandbox takes of the limits.
type Place struct {
	gate   *Gate
	caller sandbox.Caller
	held   []store.Held
	exec   bool
	since  time.Time // of the time of it that was not counted yet; guarded by gate.mu
}

// Release frees the place. It is idempotent, and does nothing without a place.
func (p *Place) Release() {
	if p == nil {
		return
	}
	g := p.gate
	g.mu.Lock()
	_, there := g.places[p]
	if !there {
		g.mu.Unlock()
		return
	}
	delete(g.places, p)
	places{g}.giveBack(p.caller.Tenant, p.held)
	lived := g.o.Now().Sub(p.since)
	g.mu.Unlock()
	if p.exec {
		g.count(p.caller, countExecs, 1)
		g.count(p.caller, countExecTime, lived.Milliseconds())
	} else {
		g.count(p.caller, countSandboxes, lived.Milliseconds())
	}
	if len(p.held) > 0 {
		g.nudge()
	}
}

// giveBack notes places to be given back. The caller holds mu.
func (g places) giveBack(tenant string, held []store.Held) {
	if len(held) == 0 {
		return
	}
	if g.back[tenant] == nil {
		g.back[tenant] = map[store.Held]struct{}{}
	}
	for _, h := range held {
		g.back[tenant][h] = struct{}{}
	}
}

// toBringBack lists the places of a tenant that are to be returned, also the ones on their way.
func (g places) toBringBack(tenant string) []store.Held {
	g.mu.Lock()
	defer g.mu.Unlock()
	list := make([]store.Held, 0, min(len(g.back[tenant]), maxBack))
	for h := range g.back[tenant] {
		if len(list) == maxBack {
			break
		}
		list = append(list, h)
	}
	return list
}

func (g *Gate) arrived(tenant string, back []store.Held) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, h := range back {
		if _, again := g.kept[h]; !again {
			delete(g.back[tenant], h)
		}
	}
	if len(g.back[tenant]) == 0 {
		delete(g.back, tenant)
	}
}

func (g *Gate) nudge() {
	select {
	case g.kick <- struct{}{}:
	default:
	}
}
