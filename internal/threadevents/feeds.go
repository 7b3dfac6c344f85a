package threadevents

import (
	"container/list"
	"crypto/rand"
	"encoding/json"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Bounds of feeds.
const (
	// maxEvents and maxBytes bound what one feed keeps.
	maxEvents = 256
	maxBytes  = 256 << 10
	// lingers is how long a feed outlives its last follower, and maxLingering how many such feeds a server keeps.
	lingers      = 2 * time.Minute
	maxLingering = 1000
	// maxFollowers is how many follow one thread at once.
	maxFollowers = 64
)

// Feeds are the feeds of threads that are followed. The zero value has none. It is safe for concurrent use.
type Feeds struct {
	open atomic.Int64 // how many feeds there are: publishers look at it first

	mu        sync.Mutex
	of        map[sandbox.Thread]*feed
	lingering list.List // *feed without followers, longest first
}

// feed keeps the newest events of one thread.
type feed struct {
	thread    sandbox.Thread
	epoch     string          // names it in the ids of events
	tenure    <-chan struct{} // closed when this server gives the thread up; nil: it does not own it
	followers int
	place     *list.Element // among those that linger; nil: it is followed
	expiry    *time.Timer

	first  uint64 // number of events[0]
	events []kept
	bytes  int
	more   chan struct{} // closed and replaced at each event
	ended  bool          // the thread is deleted
}

// kept is an event as it is sent.
type kept struct {
	kind sandbox.ThreadEventKind
	data []byte
}

// Publish tells the followers of a thread of an event. It costs a look at a counter when no thread of the server is
// followed.
func (f *Feeds) Publish(t sandbox.Thread, make func() sandbox.ThreadEvent) {
	if f == nil || f.open.Load() == 0 || !f.follows(t) {
		return
	}
	e := make()
	e.At = time.Now().UTC()
	data, err := json.Marshal(e)
	if err != nil { // an event is texts and numbers
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if one := f.of[t]; one != nil {
		one.add(kept{e.Kind, data})
	}
}

func (f *Feeds) follows(t sandbox.Thread) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.of[t] != nil
}

// add appends an event, and drops the oldest that are too many. The caller holds mu.
func (d *feed) add(e kept) {
	d.events = append(d.events, e)
	d.bytes += len(e.data)
	for len(d.events) > maxEvents || d.bytes > maxBytes && len(d.events) > 1 {
		d.bytes -= len(d.events[0].data)
		d.events[0] = kept{}
		d.events = d.events[1:]
		d.first++
	}
	d.wake()
}

// wake wakes the followers. The caller holds mu.
func (d *feed) wake() {
	close(d.more)
	d.more = make(chan struct{})
}

// follow joins the feed of a thread, which it makes when there is none, and returns where the follower is in it: behind the
// event that after names, else behind the newest. resumed: no event after it is missing. tenure is closed when this server
// gives the thread up. A feed of an earlier tenure may lack events of another server, and is replaced.
func (f *Feeds) follow(t sandbox.Thread, tenure <-chan struct{}, after position) (d *feed, at uint64, resumed bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	d = f.of[t]
	if d != nil && d.tenure != tenure {
		f.drop(d, false)
		d = nil
	}
	if d == nil {
		d = &feed{thread: t, epoch: rand.Text()[:12], tenure: tenure, first: 1, more: make(chan struct{})}
		if f.of == nil {
			f.of = map[sandbox.Thread]*feed{}
		}
		f.of[t] = d
		f.open.Add(1)
	}
	if d.followers >= maxFollowers {
		return nil, 0, false, sandbox.Errorf(sandbox.CapacityExceeded, "%d streams follow the events of this thread, the most: end one first", maxFollowers)
	}
	d.followers++
	if d.place != nil {
		d.expiry.Stop()
		f.lingering.Remove(d.place)
		d.place, d.expiry = nil, nil
	}
	at = d.first + uint64(len(d.events)) - 1
	if after.epoch == d.epoch && after.n+1 >= d.first && after.n <= at {
		return d, after.n, true, nil
	}
	return d, at, false, nil
}

// leave ends a follower. The last one leaves a feed that lingers.
func (f *Feeds) leave(d *feed) {
	f.mu.Lock()
	defer f.mu.Unlock()
	d.followers--
	if d.followers > 0 || f.of[d.thread] != d {
		return
	}
	d.place = f.lingering.PushBack(d)
	place := d.place
	d.expiry = time.AfterFunc(lingers, func() { f.expire(d, place) })
	if f.lingering.Len() > maxLingering {
		if oldest, ok := f.lingering.Front().Value.(*feed); ok {
			f.drop(oldest, false)
		}
	}
}

// expire drops a feed that was not followed again since it began to linger at place.
func (f *Feeds) expire(d *feed, place *list.Element) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if d.place == place {
		f.drop(d, false)
	}
}

// drop takes a feed out. Its followers end: ended says that the thread is deleted. The caller holds mu.
func (f *Feeds) drop(d *feed, ended bool) {
	if f.of[d.thread] != d {
		return
	}
	delete(f.of, d.thread)
	f.open.Add(-1)
	if d.place != nil {
		d.expiry.Stop()
		f.lingering.Remove(d.place)
		d.place, d.expiry = nil, nil
	}
	d.ended = ended
	d.wake()
}

// End ends the streams of a thread that was deleted.
func (f *Feeds) End(t sandbox.Thread) {
	if f == nil || f.open.Load() == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if d := f.of[t]; d != nil {
		f.drop(d, true)
	}
}

// Open returns how many feeds there are.
func (f *Feeds) Open() int { return int(f.open.Load()) }

// batch is what a follower finds in its feed.
type batch struct {
	events []kept
	first  uint64 // number of events[0]
	passed bool   // the feed has dropped events that the follower has not had
	ended  bool   // the thread is deleted
	gone   bool   // the feed is another one's by now
	more   <-chan struct{}
}

// next returns what comes behind number at. It never waits.
func (f *Feeds) next(d *feed, at uint64) batch {
	f.mu.Lock()
	defer f.mu.Unlock()
	b := batch{ended: d.ended, gone: f.of[d.thread] != d, more: d.more, first: at + 1}
	if at+1 < d.first {
		b.passed, b.first = true, d.first+uint64(len(d.events))
		return b
	}
	b.events = append(b.events, d.events[at+1-d.first:]...)
	return b
}
