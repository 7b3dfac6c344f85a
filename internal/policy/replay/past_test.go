package replay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/policy"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// records is a log, the newest first.
type records struct {
	all   []audit.Record
	asked int
}

func (l *records) List(_ context.Context, f audit.Filter) (items []audit.Record, next string, err error) {
	l.asked++
	from, _ := strconv.Atoi(f.Cursor)
	for i, r := range l.all[from:] {
		if r.Tenant != f.Tenant || f.User != "" && r.User != f.User || r.Time.Before(f.Since) || r.Time.After(f.Until) {
			continue
		}
		if items = append(items, r); len(items) == f.Limit {
			return items, strconv.Itoa(from + i + 1), nil
		}
	}
	return items, "", nil
}

// catalog has one tool, and counts who asks.
type catalog struct{ asked int }

func (c *catalog) Resolve(_ context.Context, _ sandbox.Thread, ref sandbox.ToolRef) (sandbox.Tool, error) {
	c.asked++
	if ref.Printed != "crm__delete" {
		return sandbox.Tool{}, sandbox.NotFound
	}
	return sandbox.Tool{Server: "crm", Name: "delete"}, nil
}

const denyDelete = `version: 1
default: allow
rules:
  - id: no-delete
    match: {server: crm, tool: delete}
    effect: deny
    reason: deletes are for people
`

var at = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func call(i int, user, subject string) audit.Record {
	return audit.Record{
		ID: fmt.Sprint("r", i), Tenant: "acme", User: user, Thread: "t", Action: audit.ActionToolCall, Phase: audit.PhaseAttempt, Subject: subject,
		Args: json.RawMessage(`{"id":1}`), Time: at.Add(-time.Duration(i) * time.Minute),
	}
}

func newReplay(t *testing.T, l *records) (*Replay, *catalog) {
	t.Helper()
	e, err := policy.Open(policy.EngineOptions{File: filepath.Join(t.TempDir(), "policy.yaml"), Tenants: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	c := &catalog{}
	return &Replay{Engine: e, Log: l, Catalog: c}, c
}

// TestPast: of the calls of the caller's tenant in a time, those are named on which other rules say something else. Nothing
// that is tried counts.
func TestPast(t *testing.T) {
	t.Parallel()
	l := &records{}
	for i := range 300 {
		subject := "crm__delete"
		if i%3 == 0 {
			subject = "crm__read"
		}
		l.all = append(l.all, call(i, []string{"ann", "bob"}[i%2], subject))
	}
	result := call(0, "ann", "crm__delete")
	result.Phase = audit.PhaseResult
	other := call(1, "ann", "crm__delete")
	other.Tenant = "else"
	write := call(2, "ann", "/mnt/user-data/x")
	write.Action = "file_write"
	cut := call(3, "ann", "make")
	cut.Action, cut.Args = audit.ActionExec, json.RawMessage(`"cut`)
	l.all = append(l.all, result, other, write, cut)
	r, c := newReplay(t, l)
	me := sandbox.Caller{Owner: sandbox.Owner{Tenant: "acme", User: "root"}, Role: sandbox.RoleAdmin}
	for _, tenant := range []string{"", "acme"} {
		got, err := r.Past(t.Context(), me, tenant, denyDelete, policy.PastQuery{Until: at})
		if err != nil {
			t.Fatal(err)
		}
		if got.Calls != 300 || got.Changed != 200 || got.Now.Allow != 300 || got.Then.Allow != 100 || got.Then.Deny != 200 || got.Partial || got.Unread != 1 || len(got.Items) != 200 {
			t.Errorf("%d calls, %d changed, now %+v, then %+v, partial %v, unread %d, %d items", got.Calls, got.Changed, got.Now, got.Then, got.Partial, got.Unread, len(got.Items))
		}
		if i := got.Items[0]; i.Record != "r1" || i.User != "bob" || i.Now != policy.Allow || i.Then != policy.Deny || len(i.Rules) != 1 || !strings.HasSuffix(i.Rules[0].Rule, "no-delete") {
			t.Errorf("%+v", i)
		}
	}
	if c.asked > 8 {
		t.Errorf("the catalog was asked %d times for two tools of two users, twice", c.asked)
	}
	got, err := r.Past(t.Context(), me, "", denyDelete, policy.PastQuery{Since: at.Add(-10 * time.Minute), Until: at, User: "bob"})
	if err != nil || got.Calls != 5 || got.Changed != 3 {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := r.Past(t.Context(), me, "", "", policy.PastQuery{Until: at}); err != nil || got.Changed != 0 || got.Calls != 300 {
		t.Errorf("by the rules in force: %+v, %v", got, err)
	}
	for _, q := range []struct {
		text string
		q    policy.PastQuery
	}{{"x", policy.PastQuery{}}, {denyDelete, policy.PastQuery{Since: at, Until: at.Add(-time.Second)}}} {
		if _, err := r.Past(t.Context(), me, "", q.text, q.q); !errors.Is(err, sandbox.Invalid) {
			t.Errorf("%+v: %v", q, err)
		}
	}
}

// TestPastIsBounded: a long log is looked at up to a bound, and the report says how far.
func TestPastIsBounded(t *testing.T) {
	t.Parallel()
	l := &records{all: make([]audit.Record, mostRecords+2000)}
	for i := range l.all {
		l.all[i] = call(i, "ann", "crm__read")
		l.all[i].Time = at.Add(-time.Duration(i) * time.Second)
	}
	r, _ := newReplay(t, l)
	got, err := r.Past(t.Context(), sandbox.Caller{Owner: sandbox.Owner{Tenant: "acme", User: "root"}}, "", denyDelete, policy.PastQuery{Until: at})
	if err != nil || !got.Partial || got.Calls > mostRecords || l.asked > mostRecords/pageOf || !got.Since.After(at.Add(-mostRecords*time.Second)) {
		t.Errorf("%d calls since %v, partial %v, asked %d times, %v", got.Calls, got.Since, got.Partial, l.asked, err)
	}
}
