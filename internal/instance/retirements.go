package instance

import (
	"context"
	"sync"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Retirement is the wish of a part that an instance ends.
type Retirement struct {
	Instance *Instance
	Status   sandbox.Status // of its execs
	Why      string
}

// Retirements are the ends that no goroutine has served yet. The teardown is built on parts that need it:
// they ask for ends here, and do not wait.
type Retirements struct {
	wake chan struct{} // holds a token: there is one

	mu   sync.Mutex
	list []Retirement
}

// NewRetirements returns a list without retirements.
func NewRetirements() *Retirements { return &Retirements{wake: make(chan struct{}, 1)} }

// Abandon asks for the end of an instance that does not keep the contract.
func (r *Retirements) Abandon(inst *Instance, why string) {
	r.add(Retirement{inst, sandbox.StatusLost, why})
}

// Kill asks for the end of an instance that harms its neighbours.
func (r *Retirements) Kill(inst *Instance, why string) {
	r.add(Retirement{inst, sandbox.StatusKilled, why})
}

func (r *Retirements) add(x Retirement) {
	r.mu.Lock()
	r.list = append(r.list, x)
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Serve calls retire for each, until ctx ends and all that came before are served.
func (r *Retirements) Serve(ctx context.Context, retire func(Retirement)) {
	for {
		ended := ctx.Err() != nil // before the look, so that none falls between
		for _, x := range r.take() {
			retire(x)
		}
		if ended {
			return
		}
		select {
		case <-ctx.Done():
		case <-r.wake:
		}
	}
}

func (r *Retirements) take() []Retirement {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := r.list
	r.list = nil
	return list
}
