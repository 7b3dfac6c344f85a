package secrets

import (
	"context"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/platform/every"
)

const (
	// writeUses is how often it is written down when secrets were used: never while a caller waits for one.
	writeUses = 30 * time.Second
	// maxUses bounds the secrets whose use is not written down yet. Beyond it a use is not noted.
	maxUses = 4096
)

// stored names a secret of the state.
type stored struct{ tenant, scope, name string }

// uses knows when secrets were used, and writes it down later.
type uses struct {
	store  state
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu   sync.Mutex
	last map[stored]time.Time // not written down yet
}

func (u *uses) start(s state) {
	ctx, cancel := context.WithCancel(context.Background())
	u.store, u.cancel, u.last = s, cancel, map[stored]time.Time{}
	u.wg.Go(func() {
		for range every.Tick(ctx, writeUses) {
			u.write(ctx)
		}
		u.write(context.WithoutCancel(ctx))
	})
}

func (u *uses) close() {
	u.cancel()
	u.wg.Wait()
}

// note takes down that a secret was used now.
func (u *uses) note(s stored) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, known := u.last[s]; known || len(u.last) < maxUses {
		u.last[s] = time.Now()
	}
}

// forget leaves out a secret that is deleted: another one may get its name.
func (u *uses) forget(s stored) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.last, s)
}

// of returns when a secret was used: what the store has, unless this server knows better.
func (u *uses) of(s stored, written *time.Time) *time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	at, ok := u.last[s]
	if !ok {
		return written
	}
	at = at.UTC().Truncate(time.Second)
	return &at
}

// write writes the uses down. What cannot be written is tried again the next time, unless the secret was used again by then.
func (u *uses) write(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, writeUses)
	defer cancel()
	u.mu.Lock()
	last := u.last
	u.last = map[stored]time.Time{}
	u.mu.Unlock()
	for s, at := range last {
		if ctx.Err() == nil && u.store.SecretUsed(ctx, s.tenant, s.scope, s.name, at) == nil {
			continue
		}
		u.mu.Lock()
		if _, newer := u.last[s]; !newer && len(u.last) < maxUses {
			u.last[s] = at
		}
		u.mu.Unlock()
	}
}
