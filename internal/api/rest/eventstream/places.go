package eventstream

import (
	"sync"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Places counts the streams that are open. Its zero value is ready.
type Places struct {
	mu  sync.Mutex
	all int
	of  map[sandbox.Owner]int
}

// Enter counts a stream, which leave takes out again. full says why there can be no other one, with so many of the
// owner's and so many in all.
func (p *Places) Enter(o sandbox.Owner, full func(own, all int) error) (leave func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := full(p.of[o], p.all); err != nil {
		return nil, err
	}
	if p.of == nil {
		p.of = map[sandbox.Owner]int{}
	}
	p.all++
	p.of[o]++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.all--
		if p.of[o]--; p.of[o] == 0 {
			delete(p.of, o)
		}
	}, nil
}

// Of returns how many streams an owner has.
func (p *Places) Of(o sandbox.Owner) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.of[o]
}
