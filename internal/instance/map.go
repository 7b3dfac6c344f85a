package instance

import (
	"maps"
	"slices"
	"sync"

	"github.com/skerry-sandbox/skerry/internal/instance/capacity"
	"github.com/skerry-sandbox/skerry/internal/limits"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Map holds the instances of this server. Each thread has at most one of its own, and at most one second
// instance of each template beside it. The zero value is an empty map.
type Map struct {
	mu       sync.Mutex
	byThread map[sandbox.Thread]*Instance
	seconds  map[second]*Instance
	byID     map[sandbox.ID]*Instance // also instances that the next one in their place has replaced
}

// second is the place of a second instance.
type second struct {
	thread   sandbox.Thread
	template string
}

// Seat is what an instance counts against: a slot of this server, and the limits of its owner. The mutex of the Map
// guards it.
type Seat struct {
	Slot     *capacity.Ticket
	released bool          // another instance has the slot, or it is free
	limits   *limits.Place // nil until SetLimits
	left     bool          // Instance.Gone is closed
}

// Find returns the thread's own instance, or nil.
func (m *Map) Find(t sandbox.Thread) *Instance {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.byThread[t]
}

// FindID returns the instance of a sandbox, or nil.
func (m *Map) FindID(id sandbox.ID) *Instance {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.byID[id]
}

// All returns every instance of this moment.
func (m *Map) All() []*Instance {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := make([]*Instance, 0, len(m.byThread)+len(m.seconds))
	list = slices.AppendSeq(list, maps.Values(m.byThread))
	return slices.AppendSeq(list, maps.Values(m.seconds))
}

// Seconds returns the second instances of a thread.
func (m *Map) Seconds(t sandbox.Thread) []*Instance {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []*Instance
	for at, inst := range m.seconds {
		if at.thread == t {
			list = append(list, inst)
		}
	}
	return list
}

// PutSecond is Put for the second instance of a template beside main. SandboxLost: main is ending, and ends its second
// instances; none begins from then on.
func (m *Map) PutSecond(main *Instance, template string, next func(former *Instance) (*Instance, error)) (*Instance, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if main.Ending() != "" {
		return nil, sandbox.Errorf(sandbox.SandboxLost, "the sandbox ended just now; try again")
	}
	at := second{main.Thread, template}
	inst, err := next(m.seconds[at])
	if err != nil {
		return nil, err
	}
	if m.seconds == nil {
		m.seconds = map[second]*Instance{}
	}
	m.seconds[at], m.byID[inst.ID] = inst, inst
	return inst, nil
}

// Put calls next with the thread's own instance, nil when there is none, and stores the instance that next returns as the
// thread's. The map is locked meanwhile. When next fails, the map stays as it is.
func (m *Map) Put(t sandbox.Thread, next func(former *Instance) (*Instance, error)) (*Instance, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	inst, err := next(m.byThread[t])
	if err != nil {
		return nil, err
	}
	if m.byThread == nil {
		m.byThread, m.byID = map[sandbox.Thread]*Instance{}, map[sandbox.ID]*Instance{}
	}
	m.byThread[t], m.byID[inst.ID] = inst, inst
	return inst, nil
}

// SetLimits makes p the place of an instance in the limits of its owner. An instance that has left the map releases p.
func (m *Map) SetLimits(inst *Instance, p *limits.Place) {
	m.mu.Lock()
	defer m.mu.Unlock()
	inst.Seat.limits = p
	if inst.Seat.left {
		p.Release()
	}
}

// Remove takes an instance out of the map, releases its slot and its limits, and closes Gone. It reports whether this
// call did so: an instance leaves once.
func (m *Map) Remove(inst *Instance) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.byThread[inst.Thread] == inst {
		delete(m.byThread, inst.Thread)
	}
	if at := (second{inst.Thread, inst.Template.Name}); m.seconds[at] == inst {
		delete(m.seconds, at)
	}
	delete(m.byID, inst.ID)
	if slot := inst.Seat.TakeSlot(); slot != nil {
		slot.Leave()
	}
	inst.Seat.limits.Release()
	if inst.Seat.left {
		return false
	}
	inst.Seat.left = true
	close(inst.Gone)
	return true
}

// TakeSlot returns the slot of an instance and makes the caller responsible for it; nil: it was taken before. Only a
// function that runs in Map.Put or PutSecond may call it.
func (s *Seat) TakeSlot() *capacity.Ticket {
	if s.released || s.Slot == nil {
		return nil
	}
	s.released = true
	return s.Slot
}

// Sit sets the limits of an instance that no Map holds yet.
func (s *Seat) Sit(p *limits.Place) { s.limits = p }
