package store

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

func approvalOf(t sandbox.Thread, id string) ApprovalRecord {
	now := time.Now().UTC().Truncate(time.Millisecond)
	return ApprovalRecord{Waiter: "s1", Approval: sandbox.Approval{
		ID: id, State: sandbox.ApprovalPending, Tenant: t.Tenant, User: t.User, Thread: t.ID, Tool: "fs__write", CreatedAt: now, ExpiresAt: now.Add(time.Hour),
	}}
}

func ids(list []sandbox.Approval) string {
	var all []string
	for _, a := range list {
		all = append(all, a.ID)
	}
	return strings.Join(all, " ")
}

func testApprovals(t *testing.T, s *Store) {
	other := sandbox.Thread{Owner: bob, ID: "main"}
	long := sandbox.Thread{Owner: ann, ID: "mainly"}
	for i, th := range []sandbox.Thread{main, other, main, long, main} {
		must(t, s.AddApproval(t.Context(), approvalOf(th, fmt.Sprint("id", i))))
	}
	list := func(f sandbox.ApprovalFilter) (string, string) {
		t.Helper()
		f.Tenant = "acme"
		items, next, err := s.Approvals(t.Context(), f)
		must(t, err)
		return ids(items), next
	}
	if got, _ := list(sandbox.ApprovalFilter{}); got != "id4 id3 id2 id1 id0" {
		t.Errorf("all: %s", got)
	}
	open, err := s.OpenApprovals(t.Context(), main)
	if must(t, err); len(open) != 3 || open[0].ID != "id0" || open[2].ID != "id4" {
		t.Errorf("open ones of a thread: %+v", open)
	}
	for range 2 { // the second one changes nothing
		_, err = s.ChangeApproval(t.Context(), "acme", "id2", func(a *ApprovalRecord) error { a.State = sandbox.ApprovalCancelled; return nil })
		must(t, err)
	}
	for want, f := range map[string]sandbox.ApprovalFilter{
		"id4 id3 id1 id0": {State: sandbox.ApprovalPending}, "id2": {State: sandbox.ApprovalCancelled}, "id1": {User: bob.User}, "id3": {Thread: "mainly"},
		"": {Tool: "none"},
	} {
		if got, _ := list(f); got != want {
			t.Errorf("%+v: %s, want %s", f, got, want)
		}
	}
	for _, state := range []sandbox.ApprovalState{"", sandbox.ApprovalPending} {
		var pages []string
		for cursor := ""; ; {
			got, next := list(sandbox.ApprovalFilter{State: state, Cursor: cursor, Limit: 2})
			if pages = append(pages, got); next == "" {
				break
			}
			cursor = next
		}
		if got := strings.Join(pages, "|"); got != map[sandbox.ApprovalState]string{"": "id4 id3|id2 id1|id0", sandbox.ApprovalPending: "id4 id3|id1 id0"}[state] {
			t.Errorf("pages of %q: %s", state, got)
		}
	}
	if _, err := s.Approval(t.Context(), "other", "id0"); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("of another tenant: %v", err)
	}
}

// testApprovalRace: of many who decide at once, one does.
func testApprovalRace(t *testing.T, s *Store) {
	must(t, s.AddApproval(t.Context(), approvalOf(main, "id")))
	var wg sync.WaitGroup
	var mu sync.Mutex
	won := map[string]int{}
	taken := errors.New("decided")
	for i := range 16 {
		wg.Go(func() {
			a, err := s.ChangeApproval(t.Context(), "acme", "id", func(a *ApprovalRecord) error {
				if a.State != sandbox.ApprovalPending {
					return taken
				}
				a.State, a.Decision = sandbox.ApprovalApproved, &sandbox.ApprovalDecision{By: fmt.Sprint(i)}
				return nil
			})
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				won[a.Decision.By]++
			case !errors.Is(err, taken):
				t.Error(err)
			}
		})
	}
	wg.Wait()
	a, err := s.Approval(t.Context(), "acme", "id")
	if must(t, err); len(won) != 1 || won[a.Decision.By] != 1 {
		t.Errorf("won by %v, kept is %s", won, a.Decision.By)
	}
}

func testApprovalBounds(t *testing.T, s *Store) {
	n := 0
	add := func(th sandbox.Thread) error {
		n++
		return s.AddApproval(t.Context(), approvalOf(th, fmt.Sprintf("id%06d", n)))
	}
	for range MaxOpenApprovalsThread {
		must(t, add(main))
	}
	if err := add(main); !errors.Is(err, sandbox.QuotaExceeded) || !strings.Contains(err.Error(), "this thread") {
		t.Errorf("one too many: %v", err)
	}
	_, err := s.ChangeApproval(t.Context(), "acme", "id000001", func(a *ApprovalRecord) error { a.State = sandbox.ApprovalExpired; return nil })
	must(t, err)
	must(t, add(main))
	for i := range MaxOpenApprovalsUser - MaxOpenApprovalsThread {
		must(t, add(sandbox.Thread{Owner: ann, ID: fmt.Sprint("t", i)}))
	}
	if err := add(sandbox.Thread{Owner: ann, ID: "more"}); !errors.Is(err, sandbox.QuotaExceeded) || !strings.Contains(err.Error(), "this user") {
		t.Errorf("one too many: %v", err)
	}
	must(t, add(sandbox.Thread{Owner: bob, ID: "more"}))
}

func testGrants(t *testing.T, s *Store) {
	must(t, s.SaveGrant(t.Context(), main, "b", Grant{Approval: "id", By: "ann"}))
	list, err := s.Grants(t.Context(), main, "a", "b")
	if must(t, err); len(list) != 2 || list[0].Approval != "" || list[1].By != "ann" {
		t.Errorf("%+v", list)
	}
	must(t, s.ForgetGrants(t.Context(), main))
	if list, err = s.Grants(t.Context(), main, "b"); err != nil || list[0].Approval != "" {
		t.Errorf("after the thread is gone: %+v, %v", list, err)
	}
}

func testWatchApprovals(t *testing.T, s *Store) {
	ctx, cancel := context.WithCancel(t.Context())
	said, done := make(chan string, 100), make(chan struct{})
	go func() {
		defer close(done)
		s.WatchApprovals(ctx, func(id string) { said <- id })
	}()
	defer func() { cancel(); <-done }()
	if id := <-said; id != "" {
		t.Errorf("first %q", id)
	}
	must(t, s.AddApproval(t.Context(), approvalOf(main, "id")))
	_, err := s.ChangeApproval(t.Context(), "acme", "id", func(a *ApprovalRecord) error { a.State = sandbox.ApprovalDenied; return nil })
	must(t, err)
	select {
	case id := <-said:
		if id != "id" {
			t.Errorf("told of %q", id)
		}
	case <-time.After(20 * time.Second):
		t.Error("nobody tells of a decision")
	}
}

// TestApprovalsSurvive: what was asked and decided is there after a restart of the embedded state.
func TestApprovalsSurvive(t *testing.T) {
	t.Parallel()
	o := Options{Journal: filepath.Join(t.TempDir(), "state.jsonl")}
	s, err := Open(t.Context(), o)
	must(t, err)
	for _, id := range []string{"id1", "id2", "id3"} {
		must(t, s.AddApproval(t.Context(), approvalOf(main, id)))
	}
	for id, state := range map[string]sandbox.ApprovalState{"id1": sandbox.ApprovalApproved, "id2": sandbox.ApprovalExpired} {
		_, err = s.ChangeApproval(t.Context(), "acme", id, func(a *ApprovalRecord) error { a.State = state; return nil })
		must(t, err)
	}
	must(t, s.SaveGrant(t.Context(), main, "a", Grant{Approval: "id1"}))
	must(t, s.Close())
	s = open(t, o)
	list, err := s.OpenApprovals(t.Context(), main)
	if must(t, err); len(list) != 2 || list[0].ID != "id1" || list[0].State != sandbox.ApprovalApproved || list[1].ID != "id3" {
		t.Errorf("%+v", list)
	}
	grants, err := s.Grants(t.Context(), main, "a")
	if must(t, err); grants[0].Approval != "id1" {
		t.Errorf("%+v", grants)
	}
}
