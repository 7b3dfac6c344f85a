package audit

import (
	"cmp"
	"context"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit/summary"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

const (
	// DefaultBuckets is how many spans of time a Summary has at most when none is asked for.
	DefaultBuckets = 60
	// MaxBuckets is the most of them.
	MaxBuckets = 500
	// summaryTimeout is how long counting takes at most.
	summaryTimeout = 450 * time.Millisecond
	// summaryFlush is how long Summarize waits for the newest records.
	summaryFlush = 100 * time.Millisecond
)

// Summary is how many records fit a filter.
type Summary = summary.Summary

// Summarize counts the records that List returns for f, whose Limit and Cursor do not count. buckets is the most
// spans of time, 0 = 60. It reads the newest records first, for about half a second at most; what it did not
// reach by then is missing, and the summary says so. Invalid, Unavailable: as List.
func (l *Log) Summarize(ctx context.Context, f Filter, buckets int) (Summary, error) {
	return summarize(ctx, l, f, buckets, summaryTimeout)
}

func summarize(ctx context.Context, l *Log, f Filter, buckets int, within time.Duration) (Summary, error) {
	f.Cursor, f.Limit = "", 1
	if err := l.check(f, ""); err != nil {
		return Summary{}, err
	}
	if buckets = cmp.Or(buckets, DefaultBuckets); buckets < 1 || buckets > MaxBuckets {
		return Summary{}, sandbox.Errorf(sandbox.Invalid, "buckets %d: use 1 to %d", buckets, MaxBuckets)
	}
	flushed, cancel := context.WithTimeout(ctx, summaryFlush)
	_ = l.Flush(flushed) // what is not there yet is counted the next time
	cancel()
	c := summary.New(f.Since, f.Until, buckets, time.Now())
	since, err := l.view().count(ctx, f, c, time.Now().Add(within))
	if err != nil {
		return Summary{}, err
	}
	return c.Summary(since), nil
}

// countRecord counts one that was read.
func countRecord(c *summary.Counter, r Record) {
	t := summary.Of(r.Outcome)
	c.Count(r.Time.UnixMilli(), t)
	c.Value(summary.User, r.User, t)
	c.Value(summary.Action, r.Action, t)
	c.Value(summary.Outcome, r.Outcome, t)
	if r.Action == ActionToolCall {
		c.Value(summary.Tool, r.Subject, t)
	}
}
