package summary

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

const (
	// Values is how many values a Facet names.
	Values = 20
	// maxFacet bounds how many values of one facet are counted apart.
	maxFacet = 20_000
)

// Tally is a number of records. An attempt and its result are two records; only the result has an outcome.
type Tally struct {
	Count  int64 `json:"count" doc:"Records"`
	Denied int64 `json:"denied" doc:"Of them, those whose outcome is denied"`
	Failed int64 `json:"failed" doc:"Of them, those whose outcome is another failure: error, timeout, oom, killed, lost, expired, refused"`
}

// Add adds n to t.
func (t *Tally) Add(n Tally) {
	t.Count += n.Count
	t.Denied += n.Denied
	t.Failed += n.Failed
}

// Of is what one record counts, by its outcome.
func Of(outcome string) Tally {
	switch outcome {
	case "denied":
		return Tally{Count: 1, Denied: 1}
	case "error", "timeout", string(sandbox.StatusOOM), string(sandbox.StatusKilled), string(sandbox.StatusLost), string(sandbox.ApprovalExpired), "refused":
		return Tally{Count: 1, Failed: 1}
	}
	return Tally{Count: 1}
}

// Bucket is a span of time.
type Bucket struct {
	Start time.Time `json:"start"`
	Tally
}

// FacetValue is a value of a field, with the records that have it.
type FacetValue struct {
	Value string `json:"value"`
	Tally
}

// Facet is the values of a field, those with the most records first.
type Facet struct {
	Values []FacetValue `json:"values" doc:"At most 20"`
	Other  int64        `json:"other" doc:"Records with another value than these"`
}

// Summary is how many records fit a filter: in all, by time, and by the values of some fields.
type Summary struct {
	Tally
	From     time.Time `json:"from" doc:"Where the first bucket begins"`
	Until    time.Time `json:"until" doc:"Where the last bucket ends"`
	BucketS  int64     `json:"bucket_s" doc:"How long a bucket is, in seconds"`
	Buckets  []Bucket  `json:"buckets" doc:"Oldest first, without a gap"`
	Users    Facet     `json:"users"`
	Actions  Facet     `json:"actions"`
	Tools    Facet     `json:"tools" doc:"Of tool calls"`
	Outcomes Facet     `json:"outcomes" doc:"Of results"`
	Partial  bool      `json:"partial" doc:"Counting stopped at a bound: records before counted_since are missing"`
	// CountedSince is nil when all records are counted.
	CountedSince *time.Time `json:"counted_since,omitempty"`
}

// The fields that are counted by their values.
const (
	User = iota
	Action
	Tool // of tool calls
	Outcome
	Fields // how many there are
)

// Counter is a Summary that grows.
type Counter struct {
	total  Tally
	time   histogram
	facets [Fields]facet
}

// New returns one of the records from since on and before until; zero times are no bounds. buckets is the most spans of time.
func New(since, until time.Time, buckets int, now time.Time) *Counter {
	c := &Counter{time: newHistogram(since, until, buckets, now)}
	for i := range c.facets {
		c.facets[i].values = map[string]*Tally{}
	}
	return c
}

// Count counts what happened at a time in Unix ms.
func (c *Counter) Count(ms int64, t Tally) {
	c.total.Add(t)
	c.time.at(ms).Add(t)
}

// Value counts records that have a value of a field. "" has no place in a facet.
func (c *Counter) Value(field int, value string, t Tally) { c.facets[field].add(value, t) }

// Other counts records whose value of a field is not known.
func (c *Counter) Other(field int, t Tally) { c.facets[field].other += t.Count }

// Summary returns what was counted. Records from before since, in Unix ms, are missing; 0: none.
func (c *Counter) Summary(since int64) Summary {
	s := Summary{
		Tally: c.total, Users: c.facets[User].most(), Actions: c.facets[Action].most(),
		Tools: c.facets[Tool].most(), Outcomes: c.facets[Outcome].most(),
	}
	s.From, s.Until, s.BucketS, s.Buckets = c.time.buckets()
	if since > 0 {
		t := time.UnixMilli(since).UTC()
		s.Partial, s.CountedSince = true, &t
	}
	return s
}

// facet counts the records of each value.
type facet struct {
	values map[string]*Tally
	other  int64
}

// add counts records of a value. Records without one have no place in a facet.
func (f *facet) add(value string, t Tally) {
	if value == "" {
		return
	}
	sum := f.values[value]
	if sum == nil {
		if len(f.values) >= maxFacet {
			f.other += t.Count
			return
		}
		sum = &Tally{}
		f.values[value] = sum
	}
	sum.Add(t)
}

func (f *facet) most() Facet {
	all := make([]FacetValue, 0, len(f.values))
	for value, t := range f.values {
		all = append(all, FacetValue{value, *t})
	}
	slices.SortFunc(all, func(a, b FacetValue) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Value, b.Value))
	})
	out := Facet{Other: f.other}
	if len(all) > Values {
		for _, v := range all[Values:] {
			out.Other += v.Count
		}
		all = all[:Values]
	}
	out.Values = all
	return out
}

// widths are how long a bucket may be, in ms: what people count in, each a multiple of the one before, so that buckets can be
// added up. Beyond, it doubles.
var widths = func() (all []int64) {
	for _, d := range []time.Duration{
		time.Second, 5 * time.Second, 15 * time.Second, 30 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute, 30 * time.Minute,
		time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour, 7 * 24 * time.Hour, 28 * 24 * time.Hour,
	} {
		all = append(all, d.Milliseconds())
	}
	return all
}()

// histogram counts by time. Its buckets become longer while it spans more time than its most buckets do.
type histogram struct {
	most, width int64
	first, last int64 // numbers of buckets since 1970
	tallies     map[int64]*Tally
	number      int64 // of the bucket that was asked for last
	tally       *Tally
}

// newHistogram begins with the span of time that is asked for. Its end is now, when none is.
func newHistogram(since, until time.Time, most int, now time.Time) histogram {
	end := now.UnixMilli()
	if !until.IsZero() {
		end = min(end, until.UnixMilli()-1)
	}
	end = max(end, 0)
	begin := end
	if !since.IsZero() {
		begin = min(max(since.UnixMilli(), 0), end)
	}
	h := histogram{most: int64(most), width: widths[0], tallies: map[int64]*Tally{}, number: -1}
	h.first, h.last = begin/h.width, end/h.width
	h.fit()
	return h
}

// at returns the bucket of a time in Unix ms.
func (h *histogram) at(ms int64) *Tally {
	n := max(ms, 0) / h.width
	if n == h.number {
		return h.tally
	}
	if n < h.first || n > h.last {
		h.first, h.last = min(h.first, n), max(h.last, n)
		h.fit()
		n = max(ms, 0) / h.width
	}
	t := h.tallies[n]
	if t == nil {
		t = &Tally{}
		h.tallies[n] = t
	}
	h.number, h.tally = n, t
	return t
}

// fit makes the buckets as long as it takes.
func (h *histogram) fit() {
	begin, end := h.first*h.width, h.last*h.width
	before := h.width
	for i := 0; h.last-h.first >= h.most; {
		for i < len(widths) && widths[i] <= h.width {
			i++
		}
		if i < len(widths) {
			h.width = widths[i]
		} else {
			h.width *= 2
		}
		h.first, h.last = begin/h.width, end/h.width
	}
	if h.width == before {
		return
	}
	tallies := map[int64]*Tally{}
	for n, t := range h.tallies {
		to := n * before / h.width
		if tallies[to] == nil {
			tallies[to] = t
		} else {
			tallies[to].Add(*t)
		}
	}
	h.tallies, h.number, h.tally = tallies, -1, nil
}

func (h *histogram) buckets() (from, until time.Time, seconds int64, all []Bucket) {
	at := func(n int64) time.Time { return time.UnixMilli(n * h.width).UTC() }
	all = make([]Bucket, 0, h.last-h.first+1)
	for n := h.first; n <= h.last; n++ {
		b := Bucket{Start: at(n)}
		if t := h.tallies[n]; t != nil {
			b.Tally = *t
		}
		all = append(all, b)
	}
	return at(h.first), at(h.last + 1), h.width / 1000, all
}
