package limits

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

type diskKey struct{ tenant, user string }

// disk is the last measurement of a user's files.
type disk struct {
	mu      sync.Mutex
	bytes   int64
	refusal error         // they cannot be counted, and so count as too many
	at      time.Time     // zero: there was none
	running chan struct{} // nil: no goroutine measures
}

// Files refuses a call that may write files of a user who has too many: QuotaExceeded. The files are measured where
// they are, once in a while: what is written meanwhile is seen later. A key has none of its own. Files that cannot be
// counted are missing in the sum of the tenant. So where the tenant has a limit, they stop the user who has them.
func (g *Gate) Files(ctx context.Context, c sandbox.Caller) error {
	if g == nil || g.o.Disk == nil {
		return nil
	}
	rules := g.rulesOf(c)
	for i, s := range scopesOf(c)[:2] {
		most := rules[i].DiskMiB
		if most <= 0 && rules[0].DiskMiB <= 0 {
			continue
		}
		k := diskKey{tenant: c.Tenant}
		if s.kind == "user" {
			k.user = c.User
		}
		bytes, err := g.measured(ctx, k)
		if err != nil {
			return err
		}
		if used := bytes >> 20; most > 0 && used >= most {
			return g.refuse(c, s, sandbox.LimitHit{Limit: Disk, Max: most, Used: used})
		}
	}
	return nil
}

// measured returns the last measurement, and begins another one when it is old. The first one is waited for.
func (g *Gate) measured(ctx context.Context, k diskKey) (int64, error) {
	g.mu.Lock()
	d := g.disks[k]
	if d == nil {
		d = &disk{}
		g.disks[k] = d
	}
	g.mu.Unlock()
	d.mu.Lock()
	first := d.at.IsZero()
	if d.running == nil && (first || g.o.Now().Sub(d.at) > diskEvery) {
		d.running = make(chan struct{})
		g.measuring.Go(func() { g.measure(k, d) })
	}
	running, bytes, refusal := d.running, d.bytes, d.refusal
	d.mu.Unlock()
	if !first {
		return bytes, refusal
	}
	select {
	case <-running:
	case <-ctx.Done():
		return 0, sandbox.Wrap(sandbox.Unavailable, ctx.Err(), "the files are still being measured; try again")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.at.IsZero() {
		return 0, sandbox.Errorf(sandbox.Unavailable, "the files cannot be measured now, and there is a limit of them; try again")
	}
	return d.bytes, d.refusal
}

func (g *Gate) measure(k diskKey, d *disk) {
	ctx, cancel := context.WithTimeout(context.Background(), diskWait)
	defer cancel()
	bytes, err := g.o.Disk(ctx, k.tenant, k.user)
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case err == nil, errors.Is(err, sandbox.QuotaExceeded):
		d.bytes, d.refusal, d.at = bytes, err, g.o.Now()
	default:
		g.o.Log.Warn("files not measured", "tenant", k.tenant, "error", err)
	}
	close(d.running)
	d.running = nil
}
