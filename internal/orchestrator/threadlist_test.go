package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// listed lists threads page by page, as user/id.
func (h *house) listed(t *testing.T, c sandbox.Caller, f sandbox.ThreadFilter) (names string, total int64) {
	t.Helper()
	var all []string
	for page := 0; ; page++ {
		list, err := h.Threads.Threads(t.Context(), c, f)
		if err != nil {
			t.Fatal(err)
		}
		if page == 0 {
			total = list.Total
		} else if list.Total != 0 {
			t.Errorf("a total of %d on page %d", list.Total, page)
		}
		for _, v := range list.Items {
			all = append(all, v.User+"/"+v.ID)
		}
		if f.Cursor = list.Next; list.Next == "" {
			return strings.Join(all, " "), total
		}
	}
}

// TestThreadFilters: a list has the threads that fit, in the order that was asked for, whatever the length of a page; of other
// users for administrators alone.
func TestThreadFilters(t *testing.T) {
	t.Parallel()
	h := newHouseWith(t, daemon{run: exits}, noTools{}, func(o *Options) { o.MaxInstances = 8 })
	admin, bob := caller, caller
	admin.Role, bob.User = sandbox.RoleAdmin, "bob"
	acquire := func(c sandbox.Caller, id string, o sandbox.AcquireOptions) time.Time {
		if _, err := h.Starts.Acquire(t.Context(), c, id, o); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Millisecond) // activity is kept in milliseconds
		return time.Now()
	}
	acquire(caller, "b-report", sandbox.AcquireOptions{Labels: map[string]string{"for": "Sales"}})
	mid := acquire(caller, "a-report", sandbox.AcquireOptions{Labels: map[string]string{"for": "it"}})
	acquire(bob, "c", sandbox.AcquireOptions{})
	defer func() {
		if err := h.Threads.ReleaseSandbox(context.WithoutCancel(t.Context()), bob, "c"); err != nil {
			t.Error(err)
		}
	}()
	acquire(caller, "d", sandbox.AcquireOptions{})
	if err := h.Threads.ReleaseSandbox(t.Context(), caller, "d"); err != nil {
		t.Fatal(err)
	}
	me := caller.User
	for _, x := range []struct {
		c    sandbox.Caller
		f    sandbox.ThreadFilter
		want string
	}{
		{caller, sandbox.ThreadFilter{}, "me/a-report me/b-report me/d"},
		{caller, sandbox.ThreadFilter{Latest: true}, "me/d me/a-report me/b-report"},
		{caller, sandbox.ThreadFilter{Labels: map[string]string{"for": "it"}}, "me/a-report"},
		{caller, sandbox.ThreadFilter{Labels: map[string]string{"for": ""}}, ""},
		{caller, sandbox.ThreadFilter{Text: "SALE"}, "me/b-report"},
		{caller, sandbox.ThreadFilter{Text: "Report", Latest: true}, "me/a-report me/b-report"},
		{caller, sandbox.ThreadFilter{State: sandbox.Running}, "me/a-report me/b-report"},
		{caller, sandbox.ThreadFilter{Template: "base", Latest: true}, "me/a-report me/b-report"},
		{caller, sandbox.ThreadFilter{Template: "data"}, ""},
		{caller, sandbox.ThreadFilter{ActiveAfter: mid}, "me/d"},
		{caller, sandbox.ThreadFilter{ActiveBefore: mid, Latest: true}, "me/a-report me/b-report"},
		{admin, sandbox.ThreadFilter{User: sandbox.AllUsers, Latest: true}, "me/d bob/c me/a-report me/b-report"},
		{admin, sandbox.ThreadFilter{User: sandbox.AllUsers, Latest: true, Text: "bob"}, "bob/c"},
		{admin, sandbox.ThreadFilter{User: sandbox.AllUsers, Latest: true, ActiveAfter: mid, State: sandbox.Running}, "bob/c"},
		{admin, sandbox.ThreadFilter{User: "bob"}, "bob/c"},
		{admin, sandbox.ThreadFilter{User: "nobody"}, ""},
		{admin, sandbox.ThreadFilter{}, "me/a-report me/b-report me/d"},
		{caller, sandbox.ThreadFilter{User: me}, "me/a-report me/b-report me/d"},
	} {
		for _, limit := range []int{1, 2, 100} {
			x.f.Limit = limit
			got, total := h.listed(t, x.c, x.f)
			if want := strings.ReplaceAll(x.want, "me/", me+"/"); got != want {
				t.Errorf("%+v: %s, want %s", x.f, got, want)
			}
			if n := map[string]int64{"": 3, me: 3, "bob": 1, "nobody": 0, sandbox.AllUsers: 4}[x.f.User]; total != n {
				t.Errorf("%+v: a total of %d, want %d", x.f, total, n)
			}
		}
	}
	for want, q := range map[sandbox.Kind]struct {
		c sandbox.Caller
		f sandbox.ThreadFilter
	}{
		sandbox.Forbidden: {caller, sandbox.ThreadFilter{User: "bob"}}, sandbox.Invalid: {admin, sandbox.ThreadFilter{User: sandbox.AllUsers}},
	} {
		if _, err := h.Threads.Threads(t.Context(), q.c, q.f); !errors.Is(err, want) {
			t.Errorf("%+v: %v, want %s", q.f, err, want)
		}
	}
	for _, f := range []sandbox.ThreadFilter{{User: sandbox.AllUsers, Latest: true}, {User: "b d", Latest: true}} {
		if _, err := h.Threads.Threads(t.Context(), caller, f); !errors.Is(err, sandbox.Forbidden) {
			t.Errorf("%+v of no administrator: %v", f, err)
		}
	}
}

// TestLongList: a list in which little fits ends, and misses nothing, though one call looks at 10,000 threads at most.
func TestLongList(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("makes 12,000 threads: run without -short")
	}
	h := newHouse(t, daemon{run: exits})
	for i := range 12_000 {
		_, err := h.options.Store.ChangeThread(t.Context(), sandbox.Thread{Owner: caller.Owner, ID: fmt.Sprintf("t%05d", i)}, func(info *sandbox.ThreadInfo, _ bool) error {
			info.LastActiveAt = time.Unix(int64(i), 0)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, latest := range []bool{false, true} {
		if got, total := h.listed(t, caller, sandbox.ThreadFilter{Text: "119", Latest: latest, Limit: 1000}); len(strings.Fields(got)) != 132 || total != 12_000 {
			t.Errorf("%d of %d", len(strings.Fields(got)), total)
		}
	}
}
