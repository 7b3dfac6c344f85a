package limits

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store"
)

// Usage returns what was used from one day to another one, of the caller, or for administrators of the tenant; and the
// limits that the caller has, with what is taken of them now. Forbidden: others' usage is for administrators; Invalid:
// the days are none, or more than 92.
func (g *Gate) Usage(ctx context.Context, c sandbox.Caller, q sandbox.UsageQuery) (sandbox.UsageReport, error) {
	days, err := g.days(&q)
	if err != nil {
		return sandbox.UsageReport{}, err
	}
	scopes, err := whose(c, q)
	if err != nil {
		return sandbox.UsageReport{}, err
	}
	found, err := g.o.State.Usage(ctx, c.Tenant, days, scopes, counters)
	if err != nil {
		return sandbox.UsageReport{}, err
	}
	r := sandbox.UsageReport{From: q.From.Format(time.DateOnly), To: q.To.Format(time.DateOnly), By: q.By, Items: []sandbox.UsageItem{}}
	items := map[string]*sandbox.UsageItem{}
	for _, day := range days {
		for scope, counts := range found[day] {
			item, label := part(day, scope, q)
			if item == nil {
				continue
			}
			if items[label] == nil {
				items[label] = item
			}
			add(&items[label].UsageAmounts, counts)
			add(&r.Total, counts)
		}
	}
	for _, label := range slices.Sorted(maps.Keys(items)) {
		r.Items = append(r.Items, *items[label])
	}
	r.Limits, err = g.limitsOf(ctx, c)
	return r, err
}

func (g *Gate) days(q *sandbox.UsageQuery) ([]string, error) {
	today := g.o.Now().UTC().Truncate(24 * time.Hour)
	if q.To.IsZero() {
		q.To = today
	}
	if q.From.IsZero() {
		q.From = q.To
	}
	q.By = cmp.Or(q.By, sandbox.UsageByDay)
	q.From, q.To = q.From.UTC().Truncate(24*time.Hour), q.To.UTC().Truncate(24*time.Hour)
	n := int(q.To.Sub(q.From)/(24*time.Hour)) + 1
	switch {
	case q.To.Before(q.From):
		return nil, sandbox.Errorf(sandbox.Invalid, "from: %s is after %s", q.From.Format(time.DateOnly), q.To.Format(time.DateOnly))
	case n > store.MaxUsageDays:
		return nil, sandbox.Errorf(sandbox.Invalid, "from: %d days, at most %d, which is how long they are kept", n, store.MaxUsageDays)
	}
	days := make([]string, n)
	for i := range days {
		days[i] = store.Day(q.From.AddDate(0, 0, i))
	}
	return days, nil
}

// whose returns the scopes that a question is about; none: all of the tenant.
func whose(c sandbox.Caller, q sandbox.UsageQuery) ([]string, error) {
	switch {
	case !c.Admin() && q.User != "" && q.User != c.User, !c.Admin() && q.By != sandbox.UsageByDay:
		return nil, sandbox.Errorf(sandbox.Forbidden, "usage of others needs a key with administration rights")
	case q.By != sandbox.UsageByDay && q.By != sandbox.UsageByUser && q.By != sandbox.UsageByKey:
		return nil, sandbox.Errorf(sandbox.Invalid, "by: %.40q is not one of day, user, key", q.By)
	case q.User != "" && q.By == sandbox.UsageByKey:
		return nil, sandbox.Errorf(sandbox.Invalid, "user: keys are counted for all their users together")
	case q.User != "":
		return []string{"u:" + q.User}, nil
	case !c.Admin():
		return []string{"u:" + c.User}, nil
	case q.By == sandbox.UsageByDay:
		return []string{"t"}, nil
	}
	return nil, nil
}

// part says to which item the counts of a scope belong, nil when to none.
func part(day, scope string, q sandbox.UsageQuery) (item *sandbox.UsageItem, label string) {
	user, isUser := strings.CutPrefix(scope, "u:")
	key, isKey := strings.CutPrefix(scope, "k:")
	switch {
	case q.By == sandbox.UsageByDay:
		start, err := store.DayStart(day)
		if err != nil {
			return nil, ""
		}
		return &sandbox.UsageItem{Day: start.Format(time.DateOnly)}, day
	case q.By == sandbox.UsageByUser && isUser:
		return &sandbox.UsageItem{User: user}, user
	case q.By == sandbox.UsageByKey && isKey:
		return &sandbox.UsageItem{KeyID: key}, key
	}
	return nil, ""
}

func add(u *sandbox.UsageAmounts, n map[string]int64) {
	u.Requests += n[countRequests]
	u.Refused += n[countRefused]
	u.Execs += n[countExecs]
	u.ExecSeconds += float64(n[countExecTime]) / 1000
	u.CPUSeconds += float64(n[countCPU]) / 1000
	u.ToolCalls += n[countTools]
	u.CodeToolCalls += n[countCodeTools]
	u.ToolResultBytes += n[countResults]
	u.ReturnedBytes += n[countReturned]
	u.SandboxStarts += n[countStarts]
	u.SandboxSeconds += float64(n[countSandboxes]) / 1000
}

// limitsOf returns the limits of a caller's tenant, of itself and of its key.
func (g *Gate) limitsOf(ctx context.Context, c sandbox.Caller) ([]sandbox.LimitState, error) {
	rules, list := g.rulesOf(c), []sandbox.LimitState{}
	today := store.Day(g.o.Now())
	scopes := scopesOf(c)
	keys := make([]string, len(scopes))
	for i, s := range scopes {
		keys[i] = s.key
	}
	now, err := g.o.State.Usage(ctx, c.Tenant, []string{today}, keys, []string{countCPU, countTools})
	if err != nil {
		return nil, err
	}
	for i, s := range scopes {
		put := func(limit string, most int64, used *int64) {
			if most > 0 {
				list = append(list, sandbox.LimitState{Limit: limit, Scope: s.kind, Who: s.who, Max: most, Used: used})
			}
		}
		r, day := rules[i], now[today][s.key]
		cpu, calls := day[countCPU]/1000, day[countTools]
		put(Requests, r.RequestsPerMinute, nil)
		for limit, most := range map[string]int64{Execs: r.Execs, Sandboxes: r.Sandboxes} {
			if most > 0 {
				n, err := g.o.State.CountHeld(ctx, c.Tenant, limit, s.key)
				if err != nil {
					return nil, err
				}
				put(limit, most, &n)
			}
		}
		put(CPU, r.CPUSecondsPerDay, &cpu)
		put(ToolCalls, r.ToolCallsPerDay, &calls)
		put(ToolCallsRate, r.ToolCallsPerMinute, nil)
		if r.DiskMiB > 0 && i < 2 && g.o.Disk != nil {
			k := diskKey{tenant: c.Tenant}
			if i == 1 {
				k.user = c.User
			}
			bytes, err := g.measured(ctx, k)
			mib := bytes >> 20
			if errors.Is(err, sandbox.QuotaExceeded) { // they cannot be counted
				mib, err = r.DiskMiB, nil
			}
			if err != nil {
				return nil, err
			}
			put(Disk, r.DiskMiB, &mib)
		}
	}
	slices.SortStableFunc(list, func(a, b sandbox.LimitState) int { return cmp.Compare(a.Limit, b.Limit) })
	return list, nil
}
