package approval

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/platform/webhook"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store"
	"github.com/skerry-sandbox/skerry/internal/store/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	ann     = sandbox.Owner{Tenant: "acme", User: "ann"}
	thread  = sandbox.Thread{Owner: ann, ID: "main"}
	agent   = sandbox.Caller{Owner: ann, KeyID: "agent"}
	boss    = sandbox.Caller{Owner: sandbox.Owner{Tenant: "acme", User: "bob"}, KeyID: "boss", Method: sandbox.ByKey, Role: sandbox.RoleDeveloper}
	bob     = sandbox.Caller{Owner: sandbox.Owner{Tenant: "acme", User: "bob"}, KeyID: "bob"}
	anybody = sandbox.Caller{Owner: sandbox.Owner{Tenant: "other", User: "x"}, KeyID: "x", Role: sandbox.RoleAdmin}
)

// book is an audit log.
type book struct {
	mu   sync.Mutex
	list []audit.Record
	fail error
}

func (b *book) Append(_ context.Context, r audit.Record) (audit.Record, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r.ID = fmt.Sprint("rec", len(b.list))
	b.list = append(b.list, r)
	return r, b.fail
}

func (b *book) Commit(context.Context, audit.Record) error { return nil }

func (b *book) of(action string) (list []audit.Record) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.list {
		if r.Action == action {
			list = append(list, r)
		}
	}
	return list
}

// rig is a Redis with servers on it.
type rig struct {
	*testing.T
	url  string
	book *book
}

func newRig(t *testing.T) *rig { return &rig{T: t, url: redistest.Start(t).URL(), book: &book{}} }

type srv struct {
	*Approvals
	kill func() // as kill -9 does: nothing is said
}

// server starts one; those of alive are there.
func (r *rig) server(name string, change func(*Options), alive ...string) *srv {
	r.Helper()
	st, err := store.Open(r.Context(), store.Options{URL: r.url})
	if err != nil {
		r.Fatal(err)
	}
	o := Options{Store: st, Grants: st, Audit: r.book, Replica: name, Timeout: time.Minute, Alive: func(n string) bool {
		for _, a := range alive {
			if a == n {
				return true
			}
		}
		return false
	}}
	if change != nil {
		change(&o)
	}
	s := New(o)
	done := sync.OnceFunc(func() {
		s.Close()
		if err := st.Close(); err != nil {
			r.Error(err)
		}
	})
	r.Cleanup(done)
	return &srv{Approvals: s, kill: func() {
		_ = st.Close() // nothing that it does now counts
		done()
	}}
}

func call(args string) sandbox.ApprovalCall {
	return sandbox.ApprovalCall{
		Thread: thread, Caller: agent, Exec: "e1", Server: "fs", Tool: "fs__write", ArgsHash: "hash of " + args, Shown: json.RawMessage(args), Why: "rule 1", Record: "call",
	}
}

// ask asks in the background.
func (r *rig) ask(s *srv, c sandbox.ApprovalCall) (answer <-chan error, leave func()) {
	ctx, cancel := context.WithCancel(r.Context())
	ch := make(chan error, 1)
	go func() { ch <- s.Ask(ctx, c) }()
	r.Cleanup(cancel)
	return ch, cancel
}

// pending waits until a request is to be decided, and returns the newest one.
func (r *rig) pending(s *srv, n int) sandbox.Approval {
	r.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		list, _, err := s.List(r.Context(), boss, sandbox.ApprovalFilter{State: sandbox.ApprovalPending})
		if err == nil && len(list) == n {
			return append(list, sandbox.Approval{})[0]
		}
		if time.Now().After(end) {
			r.Fatalf("%d requests are pending, want %d: %v", len(list), n, err)
		}
	}
}

func (r *rig) answer(ch <-chan error) error {
	r.Helper()
	select {
	case err := <-ch:
		return err
	case <-time.After(30 * time.Second):
		r.Fatal("the call still waits")
	}
	return nil
}

func (r *rig) state(s *srv, id string, want sandbox.ApprovalState) sandbox.Approval {
	r.Helper()
	a, err := s.Get(r.Context(), boss, id)
	if err != nil || a.State != want {
		r.Errorf("state %q, want %q: %v", a.State, want, err)
	}
	return a
}

var approve = sandbox.ApprovalVerdict{Approve: true}

// TestDecide: what one server asks, another shows and decides; the call goes on at once, by the decision of one.
func TestDecide(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	one, two := r.server("one", nil, "two"), r.server("two", nil, "one")
	answer, _ := r.ask(one, call(`{"path":"/x","password":"p"}`))
	a := r.pending(two, 1)
	if a.Tool != "fs__write" || a.Exec != "e1" || a.Why != "rule 1" || a.KeyID != "agent" || string(a.Arguments) != `{"password":"***","path":"/x"}` || a.Thread != "main" {
		t.Errorf("%+v", a)
	}
	for who, c := range map[string]sandbox.Caller{"the agent": agent, "a user": bob, "the agent's key with rights": {Owner: ann, KeyID: "agent", Method: sandbox.ByKey, Role: sandbox.RoleAdmin}} {
		if _, err := two.Decide(t.Context(), c, a.ID, approve); !errors.Is(err, sandbox.Forbidden) {
			t.Errorf("%s decides: %v", who, err)
		}
	}
	if _, err := two.Decide(t.Context(), anybody, a.ID, approve); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("another tenant decides: %v", err)
	}
	for _, v := range []sandbox.ApprovalVerdict{{Approve: true, Scope: "all"}, {Scope: "once"}, {Reason: strings.Repeat("x", 2000)}, {Reason: "\xff"}} {
		if _, err := two.Decide(t.Context(), boss, a.ID, v); !errors.Is(err, sandbox.Invalid) {
			t.Errorf("%+v: %v", v, err)
		}
	}
	a, err := two.Decide(t.Context(), boss, a.ID, sandbox.ApprovalVerdict{Approve: true, Reason: "fine"})
	if err != nil || a.State != sandbox.ApprovalApproved || a.Decision.By != "bob" || a.Decision.Scope != "once" {
		t.Errorf("%+v, %v", a, err)
	}
	if err := r.answer(answer); err != nil {
		t.Errorf("the call: %v", err)
	}
	if a = r.state(two, a.ID, sandbox.ApprovalApproved); a.Used == nil {
		t.Error("the decision is not used")
	}
	if _, err := one.Decide(t.Context(), boss, a.ID, sandbox.ApprovalVerdict{}); !errors.Is(err, sandbox.Conflict) || !strings.Contains(err.Error(), "by bob") {
		t.Errorf("decided twice: %v", err)
	}
	answer, _ = r.ask(one, call(`{"path":"/x","password":"p"}`)) // once is once
	a = r.pending(one, 1)
	if _, err = one.Decide(t.Context(), boss, a.ID, sandbox.ApprovalVerdict{Reason: "not today"}); err != nil {
		t.Error(err)
	}
	if err := r.answer(answer); !errors.Is(err, sandbox.Forbidden) || !strings.Contains(err.Error(), "denied by bob: not today") {
		t.Errorf("denied: %v", err)
	}
	if requests := r.book.of(audit.ActionApprovalRequest); len(requests) != 2 || requests[0].Parent != "call" || requests[0].Exec != "e1" {
		t.Errorf("requests in the log: %+v", requests)
	}
	decisions := r.book.of(audit.ActionApprovalDecision)
	last := decisions[len(decisions)-1]
	if last.Outcome != "denied" || last.Detail != "not today" || last.KeyID != "boss" || !strings.Contains(string(decisions[len(decisions)-2].Args), `"how":"api"`) {
		t.Errorf("decisions in the log: %+v", decisions)
	}
}

// TestOneDecisionWins: of many on two servers.
func TestOneDecisionWins(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	servers := []*srv{r.server("one", nil, "two"), r.server("two", nil, "one")}
	for round := range 10 {
		answer, _ := r.ask(servers[round%2], call(fmt.Sprint(round)))
		a := r.pending(servers[0], 1)
		var wg sync.WaitGroup
		var mu sync.Mutex
		var won []bool
		for i := range 8 {
			wg.Go(func() {
				yes := i%4 < 2
				_, err := servers[i%2].Decide(t.Context(), boss, a.ID, sandbox.ApprovalVerdict{Approve: yes})
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					won = append(won, yes)
				case !errors.Is(err, sandbox.Conflict):
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if err := r.answer(answer); len(won) != 1 || won[0] != (err == nil) {
			t.Errorf("won %v, and the call got %v", won, err)
		}
	}
}

// TestScopes: an approval for a thread, or for the same arguments, is asked for once.
func TestScopes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.server("one", nil)
	give := func(c sandbox.ApprovalCall, scope sandbox.ApprovalScope) {
		t.Helper()
		answer, _ := r.ask(s, c)
		if _, err := s.Decide(t.Context(), boss, r.pending(s, 1).ID, sandbox.ApprovalVerdict{Approve: true, Scope: scope}); err != nil {
			t.Fatal(err)
		}
		if err := r.answer(answer); err != nil {
			t.Fatal(err)
		}
	}
	asks := func(what string, c sandbox.ApprovalCall, want bool) {
		t.Helper()
		answer, leave := r.ask(s, c)
		defer leave()
		if !want {
			if err := r.answer(answer); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			return
		}
		a := r.pending(s, 1)
		leave()
		if err := r.answer(answer); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", what, err)
		}
		r.state(s, a.ID, sandbox.ApprovalCancelled)
	}
	give(call("1"), sandbox.ApproveArguments)
	asks("the same arguments", call("1"), false)
	asks("others", call("2"), true)
	give(call("2"), sandbox.ApproveThread)
	asks("the tool in the thread", call("3"), false)
	other := call("3")
	other.Thread.ID = "other"
	asks("another thread", other, true)
	other = call("3")
	other.Tool = "fs__remove"
	asks("another tool", other, true)
	script := call("4")
	script.Server, script.Tool, script.Skill, script.SkillDigest = "", "skill_run", "pdf", "sha256:1"
	give(script, sandbox.ApproveThread)
	asks("the same skill", script, false)
	script.SkillDigest = "sha256:2"
	asks("a skill with other files", script, true)
	if err := s.Forget(t.Context(), thread); err != nil {
		t.Fatal(err)
	}
	asks("a thread of the same name", call("1"), true)
}

// slowAnswers is a store that has a request before its answer arrives: the caller leaves in between.
type slowAnswers struct {
	requests
	leave func()
}

func (s slowAnswers) AddApproval(ctx context.Context, a store.ApprovalRecord) error {
	err := s.requests.AddApproval(context.WithoutCancel(ctx), a)
	s.leave()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// TestLeavesWhileStored: a request whose caller left while it was stored does not stay pending.
func TestLeavesWhileStored(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx, leave := context.WithCancel(t.Context())
	s := r.server("one", func(o *Options) { o.Store = slowAnswers{o.Store, leave} })
	if err := s.Ask(ctx, call("1")); !errors.Is(err, context.Canceled) {
		t.Errorf("the caller gets %v, want that it left", err)
	}
	list, _, err := s.List(t.Context(), boss, sandbox.ApprovalFilter{})
	if err != nil || len(list) != 1 || list[0].State != sandbox.ApprovalCancelled {
		t.Errorf("requests %+v, want a cancelled one: %v", list, err)
	}
}

// TestManyAtOnce: a lasting approval lets all calls go on that wait for it, and no others.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.server("one", nil)
	var answers []<-chan error
	for i := range 5 {
		answer, _ := r.ask(s, call(fmt.Sprint(i)))
		answers = append(answers, answer)
	}
	other := call("1")
	other.Tool = "fs__remove"
	_, leave := r.ask(s, other)
	r.pending(s, 6)
	list, _, err := s.List(t.Context(), boss, sandbox.ApprovalFilter{Tool: "fs__write"})
	if err != nil || len(list) != 5 {
		t.Fatalf("%d, %v", len(list), err)
	}
	if _, err := s.Decide(t.Context(), boss, list[2].ID, sandbox.ApprovalVerdict{Approve: true, Scope: sandbox.ApproveThread}); err != nil {
		t.Fatal(err)
	}
	for _, answer := range answers {
		if err := r.answer(answer); err != nil {
			t.Error(err)
		}
	}
	if a := r.pending(s, 1); a.Tool != "fs__remove" {
		t.Errorf("%+v", a)
	}
	leave()
}

// TestTimeout: a request without a decision is denied, and nothing is left of it.
func TestTimeout(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.server("one", func(o *Options) { o.Timeout = 200 * time.Millisecond })
	answer, _ := r.ask(s, call("1"))
	if err := r.answer(answer); !errors.Is(err, sandbox.Timeout) || !strings.Contains(err.Error(), "within 200ms") {
		t.Errorf("%v", err)
	}
	list, _, err := s.List(t.Context(), boss, sandbox.ApprovalFilter{})
	if err != nil || len(list) != 1 || list[0].State != sandbox.ApprovalExpired {
		t.Fatalf("%+v, %v", list, err)
	}
	if _, err := s.Decide(t.Context(), boss, list[0].ID, approve); !errors.Is(err, sandbox.Conflict) {
		t.Errorf("decided too late: %v", err)
	}
	if d := r.book.of(audit.ActionApprovalDecision); d[0].Outcome != "expired" || d[0].Parent == "" {
		t.Errorf("%+v", d)
	}
}

// TestServerDies: the request outlives its server, a decision stands for the same call, made again, once; what no
// call takes up expires.
func TestServerDies(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	one, two := r.server("one", nil), r.server("two", nil) // neither is alive to the other
	for _, at := range []string{"decided before the call is made again", "decided after"} {
		answer, _ := r.ask(one, call(at))
		a := r.pending(two, 1)
		one.kill()
		if err := r.answer(answer); err == nil {
			t.Fatal("the call went on without its server")
		}
		r.state(two, a.ID, sandbox.ApprovalPending)
		decide := func() {
			t.Helper()
			if _, err := two.Decide(t.Context(), boss, a.ID, approve); err != nil {
				t.Fatal(err)
			}
		}
		if at == "decided after" {
			answer, _ = r.ask(two, call(at))
			for r.pending(two, 1); len(r.book.of(audit.ActionApprovalRequest)) < 3; time.Sleep(time.Millisecond) { // taken up
			}
			decide()
		} else {
			decide()
			answer, _ = r.ask(two, call(at))
		}
		if err := r.answer(answer); err != nil {
			t.Errorf("%s: %v", at, err)
		}
		answer, leave := r.ask(two, call(at))
		if again := r.pending(two, 1); again.ID == a.ID {
			t.Errorf("%s: the decision was used twice", at)
		}
		leave()
		_ = r.answer(answer)
		one = r.server("one again", nil)
	}
}

// TestTakenUpByAnother: who takes up a request after its server ended cannot approve it, and uses no decision of its own.
func TestTakenUpByAnother(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	developer := boss
	developer.Owner = ann
	mine := call("1")
	mine.Caller = developer
	lost := func() sandbox.Approval {
		one := r.server("one", nil)
		answer, _ := r.ask(one, call("1"))
		a := r.pending(one, 1)
		one.kill()
		_ = r.answer(answer)
		return a
	}
	two := r.server("two", nil)
	a := lost()
	before := len(r.book.of(audit.ActionApprovalRequest))
	answer, leave := r.ask(two, mine)
	for len(r.book.of(audit.ActionApprovalRequest)) == before { // taken up
		time.Sleep(time.Millisecond)
	}
	if got := r.pending(two, 1); got.ID != a.ID || got.KeyID != developer.KeyID {
		t.Errorf("taken up as %+v", got)
	}
	if _, err := two.Decide(t.Context(), developer, a.ID, approve); !errors.Is(err, sandbox.Forbidden) {
		t.Errorf("a developer approves its own call: %v", err)
	}
	leave()
	_ = r.answer(answer)

	a = lost()
	if _, err := two.Decide(t.Context(), developer, a.ID, approve); err != nil {
		t.Fatal(err)
	}
	answer, leave = r.ask(two, mine)
	if got := r.pending(two, 1); got.ID == a.ID || got.KeyID != developer.KeyID {
		t.Errorf("a developer uses its own approval: %+v", got)
	}
	leave()
	_ = r.answer(answer)
	answer, _ = r.ask(two, call("1"))
	if err := r.answer(answer); err != nil {
		t.Errorf("the agent's call, made again: %v", err)
	}
}

// TestOwnLastingApproval: a lasting approval is not for the calls of the key that gave it.
func TestOwnLastingApproval(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.server("one", nil)
	developer := boss
	developer.Owner = ann
	mine := call("1")
	mine.Caller = developer
	own, leave := r.ask(s, mine)
	a := r.pending(s, 1)
	theirs, _ := r.ask(s, call("2"))
	if _, err := s.Decide(t.Context(), developer, r.pending(s, 2).ID, sandbox.ApprovalVerdict{Approve: true, Scope: sandbox.ApproveThread}); err != nil {
		t.Fatal(err)
	}
	if err := r.answer(theirs); err != nil {
		t.Error(err)
	}
	if got := r.pending(s, 1); got.ID != a.ID {
		t.Errorf("waits: %+v", got)
	}
	leave()
	_ = r.answer(own)
	own, leave = r.ask(s, mine)
	r.pending(s, 1)
	leave()
	_ = r.answer(own)
	theirs, _ = r.ask(s, call("3"))
	if err := r.answer(theirs); err != nil {
		t.Errorf("another caller: %v", err)
	}
}

// TestTakenOver: a server that was held for dead uses no decision that another call has.
func TestTakenOver(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	one, two := r.server("one", nil), r.server("two", nil)
	first, _ := r.ask(one, call("1"))
	a := r.pending(two, 1)
	second, _ := r.ask(two, call("1"))
	for len(r.book.of(audit.ActionApprovalRequest)) < 2 { // taken up
		time.Sleep(time.Millisecond)
	}
	if _, err := two.Decide(t.Context(), boss, a.ID, approve); err != nil {
		t.Fatal(err)
	}
	if err := r.answer(second); err != nil {
		t.Error(err)
	}
	if err := r.answer(first); !errors.Is(err, sandbox.Conflict) {
		t.Errorf("both went on: %v", err)
	}
}

func TestNobodyTakesItUp(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	brief := func(o *Options) { o.Timeout = 300 * time.Millisecond }
	one, two := r.server("one", brief), r.server("two", brief)
	answer, _ := r.ask(one, call("1"))
	a := r.pending(two, 1)
	one.kill()
	_ = r.answer(answer)
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if got, err := two.Get(t.Context(), boss, a.ID); err == nil && got.State == sandbox.ApprovalExpired {
			return
		}
	}
	t.Error("a request without a caller is still there")
}

// TestLetGo: a server that stops in order leaves the request to the next one.
func TestLetGo(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	one, two := r.server("one", nil, "two"), r.server("two", nil, "one")
	answer, _ := r.ask(one, call("1"))
	a := r.pending(two, 1)
	one.LetGo()
	if err := r.answer(answer); !errors.Is(err, sandbox.Unavailable) {
		t.Errorf("%v", err)
	}
	answer, _ = r.ask(two, call("1"))
	if _, err := two.Decide(t.Context(), boss, a.ID, approve); err != nil {
		t.Fatal(err)
	}
	if err := r.answer(answer); err != nil {
		t.Error(err)
	}
}

// TestWithoutRecord: what cannot be recorded is not asked, and not made.
func TestWithoutRecord(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.server("one", nil)
	r.book.fail = errors.New("disk full")
	if err := s.Ask(t.Context(), call("1")); !errors.Is(err, sandbox.Unavailable) {
		t.Errorf("%v", err)
	}
	r.pending(s, 0)
}

// TestWaits: who runs the exec hears of the wait and of its end.
func TestWaits(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var mu sync.Mutex
	var heard []string
	s := r.server("one", func(o *Options) {
		o.Waits = func(_ context.Context, a sandbox.Approval) func(sandbox.Approval) {
			note := func(a sandbox.Approval) {
				mu.Lock()
				defer mu.Unlock()
				heard = append(heard, a.Exec+" "+string(a.State))
			}
			note(a)
			return note
		}
	})
	answer, _ := r.ask(s, call("1"))
	if _, err := s.Decide(t.Context(), boss, r.pending(s, 1).ID, approve); err != nil {
		t.Fatal(err)
	}
	if err := r.answer(answer); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(heard, ", "); got != "e1 pending, e1 approved" {
		t.Error(got)
	}
}

// hook is a webhook that answers what a test wants.
type hook struct {
	mu     sync.Mutex
	bodies []string
	bad    int // tries to fail first
	reply  func(h http.Header, id string) (status int, text string)
}

func (k *hook) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, _ := io.ReadAll(req.Body)
	k.mu.Lock()
	defer k.mu.Unlock()
	id := req.Header.Get(webhook.HeaderID)
	if webhook.Verify(req.Header, []byte("secret"), id, time.Now(), body) != nil {
		k.bodies = append(k.bodies, "badly signed")
	}
	k.bodies = append(k.bodies, string(body))
	if k.bad > 0 {
		k.bad--
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	status, text := k.reply(w.Header(), id)
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text)
}

func signed(secret string, at time.Time, text string) func(http.Header, string) (int, string) {
	return func(h http.Header, id string) (int, string) {
		webhook.Sign(h, []byte(secret), id, at, []byte(text))
		h.Set(webhook.HeaderSignature, "v1,other "+h.Get(webhook.HeaderSignature))
		return http.StatusOK, text
	}
}

// TestWebhook: it hears of each request, with what it needs to decide, and an answer that it signed is a decision.
func TestWebhook(t *testing.T) {
	t.Parallel()
	yes := `{"decision":"approve","by":"slack: eve","reason":"ok"}`
	for name, c := range map[string]struct {
		reply   func(http.Header, string) (int, string)
		decides bool
	}{
		"approves":         {signed("secret", time.Now(), yes), true},
		"not signed":       {func(http.Header, string) (int, string) { return 200, yes }, false},
		"another secret":   {signed("other", time.Now(), yes), false},
		"an old signature": {signed("secret", time.Now().Add(-time.Hour), yes), false},
		"of another request": {func(h http.Header, _ string) (int, string) {
			return signed("secret", time.Now(), yes)(h, "other")
		}, false},
		"hears only": {func(http.Header, string) (int, string) { return 202, "" }, false},
		"nonsense":   {signed("secret", time.Now(), `{"decision":"maybe"}`), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			k := &hook{bad: 1, reply: c.reply}
			web := httptest.NewServer(k)
			t.Cleanup(web.Close)
			s := r.server("one", func(o *Options) {
				o.Webhook = &Webhook{URL: web.URL, Secret: []byte("secret"), Client: web.Client()}
			})
			answer, leave := r.ask(s, call(`{"path":"/x"}`))
			a := r.pending(s, 1)
			if c.decides {
				if err := r.answer(answer); err != nil {
					t.Fatal(err)
				}
				if a := r.state(s, a.ID, sandbox.ApprovalApproved); a.Decision.By != "webhook: slack: eve" || a.Decision.How != "webhook" || a.Decision.Reason != "ok" {
					t.Errorf("%+v", a.Decision)
				}
			} else {
				for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
					k.mu.Lock()
					n := len(k.bodies)
					k.mu.Unlock()
					if n == 2 {
						break
					}
				}
				r.state(s, a.ID, sandbox.ApprovalPending)
			}
			leave()
			k.mu.Lock()
			defer k.mu.Unlock()
			var d delivery
			if len(k.bodies) != 2 || json.Unmarshal([]byte(k.bodies[1]), &d) != nil || d.Data.ID != a.ID || d.Type != "approval.requested" || string(d.Data.Arguments) != `{"path":"/x"}` {
				t.Errorf("it heard %v", k.bodies)
			}
		})
	}
}
