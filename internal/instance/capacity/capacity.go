package capacity

import (
	"slices"
	"strconv"
	"sync"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Limits bound how many places there are.
type Limits struct {
	Total     int // of all tenants together, at least 1
	PerTenant int // of one tenant; 0: no limit but Total
	Queue     int // tickets of one tenant that may wait; 0: who finds no place is refused at once
}

// Places are the places of one server. Make them with New. All methods may be called concurrently.
type Places struct {
	limits Limits

	mu     sync.Mutex
	held   map[string]int       // places by tenant, none is 0
	total  int                  // their sum
	spares int                  // see TakeSpare
	queues map[string][]*Ticket // waiting tickets, by tenant, none is empty
	turns  []string             // tenants with a queue; the first one's turn is next
}

// Ticket is a place, or a turn in the queue. Its owner calls Leave when it is not needed any more.
type Ticket struct {
	places  *Places
	tenant  string
	granted chan struct{}
	state   state // guarded by places.mu
}

type state int

const (
	waiting state = iota
	holding
	left
)

// New makes places within limits.
func New(limits Limits) *Places {
	return &Places{limits: limits, held: map[string]int{}, queues: map[string][]*Ticket{}}
}

// Take takes a place for a tenant, or a turn in the queue when none is free. CapacityExceeded: the
// tenant's queue is full; the error says which limit was met.
func (p *Places) Take(tenant string) (*Ticket, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := &Ticket{places: p, tenant: tenant, granted: make(chan struct{})}
	if p.queues[tenant] == nil {
		if p.free(tenant) { // who waits elsewhere may not have it: see grant
			t.hold()
			return t, nil
		}
		if p.limits.Queue > 0 {
			p.turns = append(p.turns, tenant)
		}
	}
	if n := len(p.queues[tenant]); n >= p.limits.Queue {
		return nil, p.refusal(tenant, n)
	}
	p.queues[tenant] = append(p.queues[tenant], t)
	return t, nil
}

// Seat returns a place for a sandbox that is there already, whatever the limits say.
func (p *Places) Seat(tenant string) *Ticket {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := &Ticket{places: p, tenant: tenant, granted: make(chan struct{})}
	t.hold()
	return t
}

// TakeSpare takes a place for a sandbox that waits for a thread, if there is a place that no thread wants.
// A spare keeps no thread from a place: see Over. LeaveSpare frees it.
func (p *Places) TakeSpare() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.total+p.spares >= p.limits.Total || len(p.turns) > 0 {
		return false
	}
	p.spares++
	return true
}

// LeaveSpare frees the place of a spare.
func (p *Places) LeaveSpare() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spares--
}

// Exchange takes a place for a tenant in the place of a spare, in one step, if the tenant may have one now.
func (p *Places) Exchange(tenant string) (*Ticket, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.queues[tenant] != nil || !p.free(tenant) {
		return nil, false
	}
	p.spares--
	t := &Ticket{places: p, tenant: tenant, granted: make(chan struct{})}
	t.hold()
	return t, true
}

// Over is how many spares have to go because others have their places now.
func (p *Places) Over() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(0, min(p.spares, p.total+p.spares-p.limits.Total))
}

// Granted is closed when the ticket has become a place.
func (t *Ticket) Granted() <-chan struct{} { return t.granted }

// Held reports whether the ticket is a place now.
func (t *Ticket) Held() bool {
	t.places.mu.Lock()
	defer t.places.mu.Unlock()
	return t.state == holding
}

// Leave frees the place, or leaves the queue. It is idempotent.
func (t *Ticket) Leave() {
	p := t.places
	p.mu.Lock()
	defer p.mu.Unlock()
	switch t.state {
	case waiting:
		p.unqueue(t)
	case holding:
		p.total--
		if p.held[t.tenant]--; p.held[t.tenant] == 0 {
			delete(p.held, t.tenant)
		}
	}
	t.state = left
	p.grant()
}

// Refusal is the error for a ticket that has waited for too long: it says which limit it waits for.
func (t *Ticket) Refusal() error {
	t.places.mu.Lock()
	defer t.places.mu.Unlock()
	return t.places.refusal(t.tenant, len(t.places.queues[t.tenant]))
}

// Waiting is how many tickets wait.
func (p *Places) Waiting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, q := range p.queues {
		n += len(q)
	}
	return n
}

// Want is a tenant that waits.
type Want struct {
	Tenant string
	Own    bool // only a place of its own helps it: it has its most
	Count  int  // tickets that wait
}

// Wants lists the tenants that wait, whose turn is next first.
func (p *Places) Wants() []Want {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := make([]Want, 0, len(p.turns))
	for _, tenant := range p.turns {
		list = append(list, Want{Tenant: tenant, Own: p.full(tenant), Count: len(p.queues[tenant])})
	}
	return list
}

func (t *Ticket) hold() {
	t.state = holding
	t.places.total++
	t.places.held[t.tenant]++
	close(t.granted)
}

func (p *Places) full(tenant string) bool {
	return p.limits.PerTenant > 0 && p.held[tenant] >= p.limits.PerTenant
}

func (p *Places) free(tenant string) bool { return p.total < p.limits.Total && !p.full(tenant) }

// grant hands free places to waiting callers, a tenant after the other. When it returns, none waits
// who could have a place.
func (p *Places) grant() {
	for i := 0; i < len(p.turns); {
		tenant := p.turns[i]
		if !p.free(tenant) {
			i++
			continue
		}
		first := p.queues[tenant][0]
		p.unqueue(first)
		if p.queues[tenant] != nil { // its turn comes again after all others'
			p.turns = append(slices.Delete(p.turns, i, i+1), tenant)
		}
		first.hold()
		i = 0
	}
}

func (p *Places) unqueue(t *Ticket) {
	rest := slices.DeleteFunc(p.queues[t.tenant], func(x *Ticket) bool { return x == t })
	if len(rest) > 0 {
		p.queues[t.tenant] = rest
		return
	}
	delete(p.queues, t.tenant)
	p.turns = slices.DeleteFunc(p.turns, func(x string) bool { return x == t.tenant })
}

// refusal says which limit keeps a tenant from a place, and how many of its calls wait.
func (p *Places) refusal(tenant string, queued int) error {
	limit := "this server runs " + count(p.limits.Total) + ", its most (max_sandboxes)"
	if p.full(tenant) {
		limit = "the tenant has " + count(p.limits.PerTenant) + ", its most (max_sandboxes_per_tenant)"
	}
	const advice = "; release or hibernate one, or try again later"
	if queued == 0 {
		return sandbox.Errorf(sandbox.CapacityExceeded, "%s%s", limit, advice)
	}
	return sandbox.Errorf(sandbox.CapacityExceeded, "%s, and of the tenant's calls %d wait for one (queue_length %d)%s", limit, queued, p.limits.Queue, advice)
}

func count(n int) string {
	if n == 1 {
		return "1 sandbox"
	}
	return strconv.Itoa(n) + " sandboxes"
}
