package audit

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"hash/fnv"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit/record"
	"github.com/skerry-sandbox/skerry/internal/audit/summary"
	"github.com/skerry-sandbox/skerry/internal/platform/fold"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

const (
	// DefaultListed is the length of a page of List when none is asked for.
	DefaultListed = 100
	// MaxListed is the longest page of List.
	MaxListed = 1000
	// MaxText is the longest Filter.Text, in bytes.
	MaxText = 200
	// maxScanned bounds how many records one call of List reads, and maxPrints how many entries of an index.
	maxScanned = 100_000
	maxPrints  = 200_000
	// flushTimeout is how long List waits for the newest records.
	flushTimeout = 500 * time.Millisecond
	// listTimeout is how long List looks, and foundTimeout how long it looks on for a text when it has found some.
	listTimeout  = 2 * time.Second
	foundTimeout = 200 * time.Millisecond
)

// view is where List and Follow look: the streams in Redis (redisView), or the segments of this data folder (rowIndex).
type view interface {
	// list returns a page. f is checked.
	list(ctx context.Context, f Filter) (items []Record, next string, err error)
	// count adds the records that match f to c, newest first, until the deadline. Those from before since (Unix ms) it did not
	// reach; 0: it counted all.
	count(ctx context.Context, f Filter, c *summary.Counter, deadline time.Time) (since int64, err error)
	// follow returns what comes behind the cursor after, "" = from now on, and waits for more until ctx ends.
	follow(ctx context.Context, f Filter, after string, emit func(r Record, cursor string) error) error
	// flush waits until all that was appended before can be seen.
	flush(ctx context.Context) error
	// cursor reports whether text is one of this view's.
	cursor(text string) bool
}

// view returns what List looks at. The index of the files begins with the first look, or with Index.
func (l *Log) view() view {
	if ship := l.copies.ship; ship != nil {
		return &redisView{rdb: l.o.Redis, ship: ship}
	}
	l.viewing.Do(func() { l.rows.Store(startRows(l.journal, l.o)) })
	return l.rows.Load()
}

// Index begins to index the files, so that the first List need not wait for it. With Redis it does nothing.
func (l *Log) Index() { l.view() }

// wake tells the goroutines that copy and index that there is something new.
func (l *Log) wake() {
	l.copies.wake()
	if x := l.rows.Load(); x != nil {
		token(x.work)
	}
}

// closeView ends the index, or keeps it from beginning.
func (l *Log) closeView() {
	l.viewing.Do(func() {})
	if x := l.rows.Load(); x != nil {
		x.close()
	}
}

// Lag is how many records wait to be copied to Redis.
func (l *Log) Lag() uint64 {
	if l.copies.ship == nil {
		return 0
	}
	at := l.copies.ship.at() // read first: it never passes what is appended
	return l.journal.Appended() - at
}

// Flush waits until all that was appended before is durable and can be seen by List, or ctx ends (Unavailable).
func (l *Log) Flush(ctx context.Context) error { return l.view().flush(ctx) }

// List returns records of a tenant, of all servers that share a Redis, newest first. They match every field
// of f that is not empty, from Since on and before Until. A Tenant of "" stands for records that name none.
// next is "" at the end. One call reads at most 100,000 records, and one that has found a text looks on for a
// fifth of a second only. So a page of a rare text may be shorter than Limit, even empty, and have a next. Records that arrive meanwhile change no later page. Without Redis,
// List reads the records of the data folder, of all its writers; with Redis, the records that it keeps
// (Options.Keep). Invalid: a bad limit, cursor, tenant or text; Unavailable: Redis does not answer, or the
// files are still being indexed.
func (l *Log) List(ctx context.Context, f Filter) (items []Record, next string, err error) {
	if f.Limit == 0 {
		f.Limit = DefaultListed
	}
	if err := l.check(f, f.Cursor); err != nil {
		return nil, "", err
	}
	if f.Cursor == "" {
		flushed, cancel := context.WithTimeout(ctx, flushTimeout)
		_ = l.Flush(flushed) // what is not there yet is seen the next time
		cancel()
	}
	return l.view().list(ctx, f)
}

// Follow calls emit with the records that match f, as List says, oldest first. It starts behind the cursor
// after, which an earlier emit got, or else with records from now on. Limit and Cursor do not count. It
// returns when ctx ends (nil), and with emit's error. Invalid, Unavailable: as List.
func (l *Log) Follow(ctx context.Context, f Filter, after string, emit func(r Record, cursor string) error) error {
	f.Limit = 1
	if err := l.check(f, after); err != nil {
		return err
	}
	err := l.view().follow(ctx, f, after, emit)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (l *Log) check(f Filter, cursor string) error {
	if f.Limit < 0 || f.Limit > MaxListed {
		return sandbox.Errorf(sandbox.Invalid, "limit %d: use 1 to %d", f.Limit, MaxListed)
	}
	if cursor != "" && !l.view().cursor(cursor) {
		return sandbox.Errorf(sandbox.Invalid, "cursor: use next_cursor of an earlier answer")
	}
	if len(f.Text) > MaxText {
		return sandbox.Errorf(sandbox.Invalid, "the text to search for has %d bytes, at most %d", len(f.Text), MaxText)
	}
	if f.Tenant != "" {
		return sandbox.CheckOwnerName("tenant", f.Tenant)
	}
	return nil
}

// matches reports whether f selects r. The tenant is the view's business.
func (f Filter) matches(r Record) bool {
	is := func(want, got string) bool { return want == "" || want == got }
	return is(f.User, r.User) && is(f.Thread, r.Thread) && is(f.Exec, r.Exec) && is(f.Action, r.Action) && is(f.Outcome, r.Outcome) &&
		(f.Tool == "" || r.Action == ActionToolCall && r.Subject == f.Tool) &&
		(f.Since.IsZero() || !r.Time.Before(f.Since)) && (f.Until.IsZero() || r.Time.Before(f.Until)) &&
		(f.Text == "" || says(r, f.Text))
}

// says reports whether a text of the record has text in it, whatever the case.
func says(r Record, text string) bool {
	want := fold.New(text)
	for _, s := range []string{
		r.Subject, string(r.Args), r.Detail, r.Action, r.Outcome, r.User, r.Thread, r.Exec, r.ID, r.Parent, r.Sandbox,
		r.KeyID, r.Actor, r.RequestID, r.TraceID, r.Source, r.UserAgent, r.ArgsHash, r.OutHash, string(r.Why),
	} {
		if want.In(s) {
			return true
		}
	}
	return false
}

// selector picks lines of the log that may match a filter, and reads those.
type selector struct {
	f    Filter
	text fold.Text // Text as it stands in a line
	any  bool      // a line may have it in another form, or there is none
}

func newSelector(f Filter) selector {
	// The text of arguments is escaped once more: what is escaped in either is read in any case.
	return selector{f: f, text: fold.New(f.Text), any: f.Text == "" || !fold.PlainInJSON(f.Text)}
}

// record reads a line if f selects it.
func (s selector) record(line []byte) (r Record, ok bool) {
	// Most lines do not have the text, and need no reading.
	if !s.any && !s.text.In(string(line)) {
		return r, false
	}
	if json.Unmarshal(line, &r) != nil {
		return Record{}, false
	}
	return r, s.f.matches(r)
}

// prints are short hashes of the fields that are indexed: an index holds them, and a record that seems to match by them is
// read and compared.
type prints struct{ tenant, user, thread, exec, action, outcome, tool uint32 }

func printsOf(r record.Indexed) prints {
	p := prints{
		tenant: short(r.Tenant), user: short(r.User), thread: short(r.Thread), exec: short(r.Exec), action: short(r.Action), outcome: short(r.Outcome),
	}
	if r.Action == ActionToolCall {
		p.tool = short(r.Subject)
	}
	return p
}

// short is FNV-1a. Records of one tenant that collide on purpose cost their own tenant a comparison.
func short(s string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(s)) // never fails
	return h.Sum32()
}

func long(s string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(s))
	return h.Sum64()
}

// wait sleeps for d, or until there is a token. It reports whether ctx goes on.
func wait(ctx context.Context, d time.Duration, tokens <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-tokens:
	case <-t.C:
	}
	return true
}

var little = binary.LittleEndian
