package capacity

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func take(t *testing.T, p *Places, tenant string) *Ticket {
	t.Helper()
	ticket, err := p.Take(tenant)
	if err != nil {
		t.Fatalf("%s: %v", tenant, err)
	}
	return ticket
}

func has(t *Ticket) bool {
	select {
	case <-t.Granted():
		return true
	default:
		return false
	}
}

// order frees one place after the other and says who got it.
func order(t *testing.T, names map[*Ticket]string, first *Ticket) string {
	t.Helper()
	var got []string
	for held := first; held != nil; {
		held.Leave()
		var next *Ticket
		for ticket, name := range names {
			if has(ticket) {
				if next != nil {
					t.Fatalf("one place was given twice, to %s and %s", name, names[next])
				}
				next = ticket
				got = append(got, name)
			}
		}
		delete(names, next)
		held = next
	}
	return strings.Join(got, " ")
}

// TestTurns: within a tenant the first comes first, and tenants take turns.
func TestTurns(t *testing.T) {
	p := New(Limits{Total: 1, Queue: 10})
	first := take(t, p, "a")
	names := map[*Ticket]string{}
	for _, name := range []string{"a1", "a2", "a3", "a4", "b1", "b2", "c1"} {
		names[take(t, p, name[:1])] = name
	}
	if n := p.Waiting(); n != 7 {
		t.Errorf("%d wait", n)
	}
	if got := order(t, names, first); got != "a1 b1 c1 a2 b2 a3 a4" {
		t.Errorf("turns: %s", got)
	}
	if n := p.Waiting(); n != 0 || len(p.turns) != 0 || len(p.held) != 0 || p.total != 0 {
		t.Errorf("left over: %d waiting, %+v", n, p)
	}
}

// TestTenantLimit: a tenant at its limit waits, and keeps no other from a place.
func TestTenantLimit(t *testing.T) {
	p := New(Limits{Total: 3, PerTenant: 2, Queue: 10})
	a := []*Ticket{take(t, p, "a"), take(t, p, "a"), take(t, p, "a")}
	if !has(a[0]) || !has(a[1]) || has(a[2]) {
		t.Fatal("the third of a tenant that may have two")
	}
	b := take(t, p, "b")
	if !has(b) {
		t.Fatal("a waiting tenant keeps another one from a free place")
	}
	other := take(t, p, "b")
	if want := p.Wants(); len(want) != 2 || want[0] != (Want{Tenant: "a", Own: true, Count: 1}) || want[1] != (Want{Tenant: "b", Count: 1}) {
		t.Errorf("wants %+v", want)
	}
	b.Leave()
	if has(a[2]) || !has(other) {
		t.Error("the place went to the tenant that has its most")
	}
	a[0].Leave()
	if !has(a[2]) {
		t.Error("its own place did not go to the tenant that waited for it")
	}
}

func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		limits Limits
		takes  int
		want   string
	}{
		"no queue": {Limits{Total: 2}, 2, "this server runs 2 sandboxes, its most (max_sandboxes); release or hibernate one, or try again later"},
		"tenant":   {Limits{Total: 2, PerTenant: 1}, 1, "the tenant has 1 sandbox, its most (max_sandboxes_per_tenant); release or hibernate one, or try again later"},
		"queue":    {Limits{Total: 1, Queue: 2}, 3, "this server runs 1 sandbox, its most (max_sandboxes), and of the tenant's calls 2 wait for one (queue_length 2); release or hibernate one, or try again later"},
	} {
		t.Run(name, func(t *testing.T) {
			p := New(c.limits)
			for range c.takes {
				take(t, p, "a")
			}
			_, err := p.Take("a")
			if !errors.Is(err, sandbox.CapacityExceeded) || err.Error() != c.want {
				t.Errorf("%v", err)
			}
		})
	}
	p := New(Limits{Total: 1, Queue: 1})
	take(t, p, "a")
	take(t, p, "a")
	if _, err := p.Take("b"); err != nil {
		t.Errorf("one tenant's queue is full for another: %v", err)
	}
}

// TestGivingUp: a turn that is given up is lost, and a place that is freed twice is one.
func TestGivingUp(t *testing.T) {
	p := New(Limits{Total: 1, Queue: 5})
	held, gone, next := take(t, p, "a"), take(t, p, "a"), take(t, p, "a")
	gone.Leave()
	held.Leave()
	held.Leave()
	if has(gone) || !has(next) || !next.Held() || held.Held() {
		t.Errorf("gone %t, next %t", has(gone), has(next))
	}
	if has(take(t, p, "b")) {
		t.Error("a place that was given back twice was given out twice")
	}
}

// TestSeat: sandboxes that are there count, also beyond the limit.
func TestSeat(t *testing.T) {
	p := New(Limits{Total: 1, Queue: 1})
	a, b := p.Seat("a"), p.Seat("b")
	w := take(t, p, "c")
	a.Leave()
	if has(w) {
		t.Error("a place was given while too many were taken")
	}
	b.Leave()
	if !has(w) {
		t.Error("nothing was given")
	}
}

// TestCrowd: whatever happens at once, no limit is passed and no caller waits beside a free place.
func TestCrowd(t *testing.T) {
	limits := Limits{Total: 5, PerTenant: 2, Queue: 50}
	p := New(limits)
	var wg sync.WaitGroup
	for i := range 60 {
		wg.Go(func() {
			tenant := fmt.Sprint(i % 4)
			ticket, err := p.Take(tenant)
			if err != nil {
				t.Error(err)
				return
			}
			defer ticket.Leave()
			if rand.IntN(5) == 0 {
				return // gives up, granted or not
			}
			select {
			case <-ticket.Granted():
			case <-time.After(30 * time.Second):
				t.Error("no place in 30 s")
				return
			}
			p.mu.Lock()
			if p.total > limits.Total || p.held[tenant] > limits.PerTenant {
				t.Errorf("%d places, %d of the tenant", p.total, p.held[tenant])
			}
			p.mu.Unlock()
			time.Sleep(time.Millisecond)
		})
	}
	wg.Wait()
	if p.total != 0 || p.Waiting() != 0 || len(p.turns) != 0 {
		t.Errorf("left over: %+v", p)
	}
}

func BenchmarkTake(b *testing.B) {
	p := New(Limits{Total: 10, PerTenant: 5, Queue: 10})
	for b.Loop() {
		t, err := p.Take("a")
		if err != nil {
			b.Fatal(err)
		}
		t.Leave()
	}
}

// TestSpares: a spare takes a free place, yields it to a caller that wants it, and is refused while a caller
// waits.
func TestSpares(t *testing.T) {
	p := New(Limits{Total: 2, Queue: 1})
	if first, second := p.TakeSpare(), p.TakeSpare(); !first || !second || p.TakeSpare() {
		t.Fatal("two places are two spares")
	}
	a := take(t, p, "a")
	if !has(a) || p.Over() != 1 {
		t.Fatalf("a spare keeps a tenant from a place, or does not go: %d over", p.Over())
	}
	p.LeaveSpare()
	if p.Over() != 0 {
		t.Errorf("%d over", p.Over())
	}
	b, waits := take(t, p, "b"), take(t, p, "c")
	if !has(b) || has(waits) || p.Over() != 1 {
		t.Errorf("%d over", p.Over())
	}
	p.LeaveSpare()
	if p.TakeSpare() {
		t.Error("a spare took a place while a tenant waits")
	}
	a.Leave()
	if !has(waits) {
		t.Error("who waited got no place")
	}
	b.Leave()
	if !p.TakeSpare() || p.TakeSpare() {
		t.Error("one place is free")
	}
	if _, ok := p.Exchange("d"); !ok || p.Over() != 0 || p.TakeSpare() {
		t.Errorf("a spare was not exchanged for a place: %d over", p.Over())
	}
	if _, ok := p.Exchange("e"); ok {
		t.Error("a place that is not there")
	}
}
