package replay

import (
	"context"
	"slices"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/policy"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

const (
	// mostRecords and mostTime bound one look back. A look that is cut short says so.
	mostRecords = 50_000
	mostTime    = 10 * time.Second
	// mostItems is how many calls a report names.
	mostItems = 200
	// pageOf is how many records are read at once.
	pageOf = 1000
)

// decided are the actions that rules decide on.
var decided = []string{audit.ActionToolCall, audit.ActionUpstream, audit.ActionExec, audit.ActionCode, audit.ActionSkillRun}

// Past tries rules on the calls of the caller's tenant in a time.
func (a *Replay) Past(ctx context.Context, c sandbox.Caller, tenant, text string, q policy.PastQuery) (policy.PastReport, error) {
	then, err := a.Engine.With(tenant, text)
	if err != nil {
		return policy.PastReport{}, err
	}
	now, err := a.Engine.With("", "")
	if err != nil {
		return policy.PastReport{}, err
	}
	if q.Until.IsZero() {
		q.Until = time.Now()
	}
	if q.Since.IsZero() {
		q.Since = q.Until.AddDate(0, 0, -7)
	}
	if q.Until.Before(q.Since) {
		return policy.PastReport{}, sandbox.InvalidField("since", "has to be before until")
	}
	r := policy.PastReport{Since: q.Since.UTC(), Until: q.Until.UTC(), Items: []policy.ChangedCall{}, Notes: []string{
		"the capabilities that callers had are not known", "arguments are tried as the log keeps them, which is redacted", "annotations of tools are those of now",
	}}
	deadline := time.Now().Add(mostTime)
	tools := newCached(a.Catalog)
	f := audit.Filter{Tenant: c.Tenant, User: q.User, Since: q.Since, Until: q.Until, Limit: pageOf}
	for read := 0; ; {
		records, next, err := a.Log.List(ctx, f)
		if err != nil {
			return policy.PastReport{}, err
		}
		for i := range records {
			try(ctx, &records[i], now, then, tools, &r)
		}
		if read += len(records); next == "" {
			return r, nil
		}
		if read >= mostRecords || time.Now().After(deadline) {
			r.Partial = true
			if len(records) > 0 {
				r.Since = records[len(records)-1].Time.UTC()
			}
			return r, nil
		}
		f.Cursor = next
	}
}

// try tries the rules on one record, if it is of a call.
func try(ctx context.Context, rec *audit.Record, now, then *policy.Set, tools *cached, r *policy.PastReport) {
	if rec.Phase != audit.PhaseAttempt || !slices.Contains(decided, rec.Action) {
		return
	}
	sample, _, err := sampleOf(ctx, tools, *rec)
	if err != nil {
		r.Unread++
		return
	}
	sample.Tenant = rec.Tenant
	request := sample.Request()
	before, after := now.Decide(ctx, request), then.Decide(ctx, request)
	r.Calls++
	r.Now.Add(before.Effect())
	r.Then.Add(after.Effect())
	if before.Effect() == after.Effect() {
		return
	}
	if r.Changed++; len(r.Items) < mostItems {
		r.Items = append(r.Items, policy.ChangedCall{
			Record: rec.ID, Time: rec.Time, User: rec.User, Thread: rec.Thread, Action: rec.Action, Subject: rec.Subject,
			Now: before.Effect(), Then: after.Effect(), Rules: after.Why.Rules,
		})
	}
}

// cached asks a catalog once for each tool of a user.
type cached struct {
	Catalog
	found map[[2]string]answer
}

type answer struct {
	tool sandbox.Tool
	err  error
}

func newCached(c Catalog) *cached { return &cached{c, map[[2]string]answer{}} }

// Resolve implements Catalog.
func (c *cached) Resolve(ctx context.Context, t sandbox.Thread, ref sandbox.ToolRef) (sandbox.Tool, error) {
	key := [2]string{t.User, ref.Printed}
	known, ok := c.found[key]
	if !ok {
		known.tool, known.err = c.Catalog.Resolve(ctx, t, ref)
		c.found[key] = known
	}
	return known.tool, known.err
}
