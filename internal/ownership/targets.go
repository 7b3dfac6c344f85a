package ownership

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// drainTargetsTime is how long the list of servers that take work is believed.
const drainTargetsTime = 250 * time.Millisecond

// Targets are the replicas that take work, as of a moment.
type Targets struct {
	peers Peers
	log   *slog.Logger

	mu   sync.Mutex
	at   time.Time
	list []string
	next int
}

// One returns a replica that takes work, each in its turn; "" when there is none.
func (h *Targets) One(ctx context.Context) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if time.Since(h.at) > drainTargetsTime {
		others, err := h.peers.Others()
		if err != nil {
			h.log.Error("other servers not known", "error", err)
		}
		h.list = h.takeWork(context.WithoutCancel(ctx), others) // others believe it, too
		h.at = time.Now()
	}
	if len(h.list) == 0 {
		return ""
	}
	h.next++
	return h.list[h.next%len(h.list)]
}

// takeWork returns those of the replicas that take work.
func (h *Targets) takeWork(ctx context.Context, replicas []string) []string {
	yes := make([]bool, len(replicas))
	var wg sync.WaitGroup
	for i, id := range replicas {
		wg.Go(func() { yes[i] = h.peers.TakesWork(ctx, id) })
	}
	wg.Wait()
	var list []string
	for i, id := range replicas {
		if yes[i] {
			list = append(list, id)
		}
	}
	return list
}

// NewTargets returns the servers among peers that take work.
func NewTargets(p Peers, log *slog.Logger) *Targets {
	return &Targets{peers: p, log: log}
}
