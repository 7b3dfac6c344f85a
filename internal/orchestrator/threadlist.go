package orchestrator

import (
	"cmp"
	"context"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store"
)

const (
	// listLength is the length of a page of threads when none is asked for.
	listLength = 100
	// listStep is how many threads are read at once, and sortedStep how many of a list by activity or size, each read of which
	// costs the embedded state a sort. listScanned is how many one call looks at. textStep and textScanned are those of such a
	// list for a text, which leaves out most threads before they are decoded.
	listStep    = 500
	sortedStep  = 5_000
	listScanned = 10_000
	textStep    = 25_000
	textScanned = 50_000
)

// Threads lists threads. Each has the size that was last measured: a walk of every workspace would cost too much. One call looks at
// no more than 10,000 threads, or 50,000 of a list by activity or size for a text: a page may be shorter than asked for, even empty, and have a next.
func (u *Threads) Threads(ctx context.Context, c sandbox.Caller, f sandbox.ThreadFilter) (sandbox.ThreadList, error) {
	list := sandbox.ThreadList{Items: []sandbox.ThreadView{}}
	q, err := threadQuery(c, &f)
	if err != nil {
		return list, err
	}
	if f.Cursor == "" {
		if list.Total, err = u.store.ThreadCount(ctx, q.Owner); err != nil {
			return list, err
		}
	}
	cursor, step, most := f.Cursor, listStep, listScanned
	switch sorted := f.Latest || f.Largest; {
	case sorted && f.Text != "":
		step, most = textStep, textScanned
	case sorted:
		step = sortedStep
	}
	for scanned := 0; scanned < most; {
		count := step
		if f.All() { // what is read is what is shown
			count = min(count, f.Limit-len(list.Items))
		}
		page, next, err := u.store.ThreadPage(ctx, q, cursor, count)
		if err != nil {
			return list, err
		}
		fitting, err := u.fitting(ctx, page, &f)
		if err != nil {
			return list, err
		}
		for i, t := range fitting {
			list.Items = append(list.Items, t.view)
			if len(list.Items) == f.Limit {
				if i < len(fitting)-1 || next != "" {
					list.Next = t.cursor
				}
				return list, nil
			}
		}
		if next == "" {
			return list, nil
		}
		cursor = next
		scanned += count
	}
	list.Next = cursor
	return list, nil
}

// threadQuery is what the store is asked for. Threads of others are for administrators.
func threadQuery(c sandbox.Caller, f *sandbox.ThreadFilter) (store.ThreadQuery, error) {
	q := store.ThreadQuery{Owner: c.Owner, Latest: f.Latest, From: f.ActiveAfter, To: f.ActiveBefore, Largest: f.Largest, MinDisk: f.MinDisk, Text: f.Text}
	f.Limit = cmp.Or(f.Limit, listLength)
	switch {
	case f.Limit < 0 || f.Limit > store.MaxThreads:
		return q, sandbox.Errorf(sandbox.Invalid, "limit %d: use 1 to %d", f.Limit, store.MaxThreads)
	case f.User == "" || f.User == c.User:
		return q, nil
	case !c.Admin():
		return q, sandbox.Errorf(sandbox.Forbidden, "threads of other users are for administrators")
	case f.User != sandbox.AllUsers:
		q.Owner.User = f.User
		return q, sandbox.CheckOwnerName("user", f.User)
	case !f.Latest && !f.Largest:
		return q, sandbox.InvalidField("sort", "the threads of all users are sorted by last_active_at or disk_bytes")
	}
	q.Owner.User = ""
	return q, nil
}

// listedView is a thread of a list, as the API shows it, and the place behind it.
type listedView struct {
	view   sandbox.ThreadView
	cursor string
}

// fitting returns those threads of a page that a filter lets pass.
func (u *Threads) fitting(ctx context.Context, page []store.ListedThread, f *sandbox.ThreadFilter) ([]listedView, error) {
	fitting := make([]listedView, 0, len(page))
	for _, t := range page {
		if f.Fits(&t.ThreadInfo, t.Used) {
			fitting = append(fitting, listedView{u.view(t), t.Cursor})
		}
	}
	if err := u.elsewhereViews(ctx, fitting); err != nil {
		return nil, err
	}
	all := fitting
	fitting = fitting[:0]
	for _, t := range all {
		if f.FitsSandbox(t.view.Sandbox) {
			fitting = append(fitting, t)
		}
	}
	return fitting, nil
}

// elsewhereViews adds to views the sandboxes that other replicas run.
func (u *Threads) elsewhereViews(ctx context.Context, views []listedView) error {
	var absent []sandbox.Thread
	for _, v := range views {
		if v.view.Sandbox == nil {
			absent = append(absent, v.view.Thread)
		}
	}
	records, err := u.store.Sandboxes(ctx, absent)
	if err != nil || len(records) == 0 {
		return err
	}
	for i := range views {
		v := &views[i].view
		if rec, ok := records[v.Thread]; ok && v.Sandbox == nil && u.lives(rec) {
			v.Sandbox = &rec.Info
		}
	}
	return nil
}

// lives reports whether a record is of a sandbox that another replica runs now. Ours are in the map.
func (u *Threads) lives(rec store.SandboxRecord) bool {
	return rec.Replica != u.peers.ID() && u.peers.Alive(rec.Replica)
}
