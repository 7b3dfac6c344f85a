package conformance_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	packsv1 "github.com/skerry-sandbox/skerry/sdk/packs/v1"
)

// TestDeadline: the deadline of a call ends the tool, without a word of the server.
func TestDeadline(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	run(t, s.url())
	x := s.next()
	x.welcome(limits())
	x.execute(1, "wait", `{"name":"late","ms":600000}`, 200*time.Millisecond)
	id := uint64(1)
	eventually(t, "the tool noted its deadline", func() bool {
		id++
		x.execute(id, "noted", "", time.Minute)
		var raw []byte
		for {
			r := x.result()
			if r.GetRequestId() != id { // an answer that came too late is no fault
				continue
			}
			if raw = append(raw, r.GetPart()...); r.GetLast() {
				return strings.Contains(string(read(t, raw).Structured), "late")
			}
		}
	})
}

// TestWindows: no more bytes come than the windows let, and each call goes on as its own window does.
func TestWindows(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	run(t, s.url())
	x := s.next()
	w := limits()
	w.CallWindow, w.ConnectionWindow, w.MaxPartBytes = 10, 25, 7
	x.welcome(w)
	allowed := map[uint64]int64{0: 25, 1: 10, 2: 10, 3: 10}
	came, raw, done := map[uint64]int64{}, map[uint64][]byte{}, map[uint64]bool{}
	take := func() {
		t.Helper()
		r := x.result()
		id, n := r.GetRequestId(), int64(len(r.GetPart()))
		came[id] += n
		came[0] += n
		raw[id] = append(raw[id], r.GetPart()...)
		if r.GetError() != nil || done[id] || n > 7 || came[id] > allowed[id] || came[0] > allowed[0] {
			t.Fatalf("call %d: %d bytes, %d in all, %d allowed of %d allowed; %v", id, n, came[id], allowed[id], allowed[0], r)
		}
		done[id] = r.GetLast()
	}
	widen := func(id uint64, n int64) {
		allowed[id] += n
		x.window(id, n)
	}
	for id := range uint64(3) {
		x.execute(id+1, "large", `{"bytes":500}`, time.Minute)
	}
	for came[0] < 25 {
		take()
	}
	widen(1, 10_000)
	widen(0, 50) // of which calls 2 and 3 can have 5 at most
	for came[0] < 75 {
		take()
	}
	widen(0, 10_000)
	for !done[1] {
		take()
	}
	if done[2] || done[3] {
		t.Error("a call ended beyond its window")
	}
	widen(2, 10_000)
	widen(3, 10_000)
	for !done[2] || !done[3] {
		take()
	}
	for id := range uint64(3) {
		if a := read(t, raw[id+1]); a.text() != strings.Repeat("x", 500) {
			t.Errorf("call %d: %q", id+1, a.text())
		}
	}
}

// TestNoPartLimit: a server that does not bound parts gets a result as its windows let it.
func TestNoPartLimit(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	run(t, s.url())
	x := s.next()
	w := limits()
	w.MaxPartBytes, w.CallWindow = 0, 400_000
	x.welcome(w)
	x.execute(1, "large", `{"bytes":500000}`, time.Minute)
	var raw []byte
	for last, wide := false, false; !last; {
		r := x.result()
		raw, last = append(raw, r.GetPart()...), r.GetLast()
		if len(raw) >= 400_000 && !wide {
			wide = true
			x.window(1, 400_000)
		}
	}
	if a := read(t, raw); a.text() != strings.Repeat("x", 500_000) {
		t.Errorf("a text of %d bytes", len(a.text()))
	}
}

// TestMany: a pack bounds calls by itself, and each has one end. An unknown tool has its own error.
func TestMany(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	run(t, s.url())
	x := s.next()
	x.welcome(limits())
	const calls = 12
	for id := range uint64(calls) {
		x.execute(id+1, "wait", `{"name":"x","ms":600000}`, time.Hour)
	}
	for range 4 {
		if r := x.result(); r.GetError().GetCode() != packsv1.ToolError_CODE_BUSY || r.GetError().GetMessage() == "" || !r.GetLast() {
			t.Errorf("one of 12 calls at a pack of 4: %v", r)
		}
	}
	for id := range uint64(calls) {
		x.cancel(id + 1) // some have ended
	}
	x.cancel(1000)
	eventually(t, "calls are taken again", func() bool {
		x.execute(13, "none", `{}`, time.Minute)
		for {
			r := x.result()
			if r.GetRequestId() != 13 {
				continue
			}
			if r.GetError().GetMessage() == "" {
				t.Fatalf("an unknown tool: %v", r)
			}
			return r.GetError().GetCode() == packsv1.ToolError_CODE_UNKNOWN_TOOL
		}
	})
	x.send(&packsv1.ServerMessage{}) // what a newer server may say
	x.cancel(14)
	if a := x.whole(15, "echo", `{"text":"still here"}`); a.text() != "still here" {
		t.Errorf("%+v", a)
	}
}

// TestDrain: a program that is asked to stop takes no more calls, ends those that run, closes the stream, and ends well.
func TestDrain(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	p := run(t, s.url())
	x := s.next()
	x.welcome(limits())
	x.execute(1, "wait", `{"name":"x","ms":1500}`, time.Minute)
	if a := x.whole(2, "echo", `{"text":"runs"}`); a.text() != "runs" { // call 1 runs
		t.Fatalf("%+v", a)
	}
	p.drain()
	if msg := x.receive(); msg.GetDrain() == nil {
		t.Fatalf("the first message after SIGTERM is %v, and not Drain", msg)
	}
	x.execute(3, "echo", `{"text":"late"}`, time.Minute)
	if r := x.result(); r.GetRequestId() != 3 || r.GetError().GetCode() != packsv1.ToolError_CODE_DRAINING {
		t.Errorf("a call while it drains: %v", r)
	}
	if r := x.result(); r.GetRequestId() != 1 || r.GetError() != nil || read(t, r.GetPart()).text() != "waited" {
		t.Errorf("the call that ran: %v", r)
	}
	if msg := x.receive(); msg != nil {
		t.Errorf("after its last call: %v", msg)
	}
	x.end <- nil
	if code := p.code(); code != 0 {
		t.Errorf("the program ended with %d", code)
	}
}

// TestReturn: a server that drains, one that ends the stream, and one that dies have the same run of the program back.
func TestReturn(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	run(t, s.url())
	x := s.next()
	x.welcome(limits())
	instance := x.open.GetInstance()
	again := func(what string) {
		t.Helper()
		x = s.next()
		if x.open.GetInstance() != instance {
			t.Errorf("after %s: another instance", what)
		}
		if m := x.welcome(limits()); len(m.GetTools()) == 0 {
			t.Errorf("after %s: %v", what, m)
		}
		if a := x.whole(1, "echo", `{"text":"back"}`); a.text() != "back" {
			t.Errorf("after %s: %+v", what, a)
		}
	}
	x.execute(1, "wait", `{"name":"x","ms":500}`, time.Minute)
	x.drain()
	old := x
	go func() { <-old.closed; old.end <- nil }()
	again("a drain of the server") // before the former stream ends, or afterwards
	for ended := false; ; {
		msg := old.receive()
		if msg == nil {
			if !ended {
				t.Error("the provider closed the stream before its call had ended")
			}
			break
		}
		if r := msg.GetResult(); r != nil {
			ended = r.GetRequestId() == 1 && read(t, r.GetPart()).text() == "waited"
		}
	}
	x.end <- connect.NewError(connect.CodeUnavailable, errors.New("the server stops"))
	again("the end of the stream")
	must(t, s.server.Close())
	s.listen(s.address)
	again("the death of the server")
	x.end <- connect.NewError(connect.CodeUnauthenticated, errors.New("no state answers"))
	again("a credential that was good before")
}

// TestMove: a program whose server drains looks for another server at once. It serves the former stream until one has
// taken the pack, and then ends what runs there.
func TestMove(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	run(t, s.url())
	old := s.next()
	old.welcome(limits())
	old.execute(1, "wait", `{"name":"x","ms":600000}`, time.Hour)
	old.drain()
	for range 2 {
		s.next().end <- connect.NewError(connect.CodeUnavailable, errors.New("the server stops"))
	}
	if a := old.whole(2, "echo", `{"text":"still here"}`); a.text() != "still here" {
		t.Fatalf("a call at the server that drains, while no other one has the pack: %+v", a)
	}
	x := s.next()
	x.welcome(limits())
	if msg := old.receive(); msg.GetDrain() == nil {
		t.Fatalf("the first message to the server that drains, once another one has the pack, is %v, and not Drain", msg)
	}
	old.execute(3, "echo", `{"text":"late"}`, time.Minute)
	if r := old.result(); r.GetRequestId() != 3 || r.GetError().GetCode() != packsv1.ToolError_CODE_DRAINING {
		t.Errorf("a call at the former server: %v", r)
	}
	if a := x.whole(1, "echo", `{"text":"moved"}`); a.text() != "moved" {
		t.Errorf("%+v", a)
	}
	old.cancel(1)
	for msg := old.receive(); msg != nil; msg = old.receive() {
		if id := msg.GetResult().GetRequestId(); id != 1 {
			t.Errorf("at the former server: %v", msg)
		}
	}
	old.end <- nil
	if a := x.whole(2, "echo", `{"text":"alone"}`); a.text() != "alone" {
		t.Errorf("%+v", a)
	}
}

// TestPauses: each try waits longer than the one before it.
func TestPauses(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	run(t, s.url())
	var times []time.Time
	for range 6 {
		x := s.next()
		times = append(times, x.came)
		x.end <- connect.NewError(connect.CodeUnavailable, errors.New("try later"))
	}
	least := 100 * time.Millisecond
	for i, at := range times[1:] {
		if pause := at.Sub(times[i]); pause < least*9/10 {
			t.Errorf("try %d came %s after the one before it, and not %s", i+2, pause, least)
		}
		least *= 2
	}
}

// TestSilence: heartbeats come, and a server that says nothing for three of them is given up.
func TestSilence(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	run(t, s.url())
	x := s.next()
	w := limits()
	w.HeartbeatSeconds = 1
	x.welcome(w)
	beats := 0
	late := time.After(patience)
	for open := true; open; {
		select {
		case _, open = <-x.got: // nothing but heartbeats, until the provider ends the stream
			beats++
		case <-late:
			t.Fatalf("the provider has kept a stream on which the server says nothing for %s", patience)
		}
	}
	if lasted := time.Since(x.came); beats < 2 || lasted < 3*time.Second {
		t.Errorf("the stream ended after %s with %d heartbeats", lasted, beats-1)
	}
	s.next().welcome(limits())
}

// TestRefused: what cannot get better ends the program, and it prints why.
func TestRefused(t *testing.T) {
	t.Parallel()
	for _, code := range []connect.Code{connect.CodeInvalidArgument, connect.CodeUnauthenticated, connect.CodePermissionDenied, connect.CodeUnimplemented} {
		t.Run(code.String(), func(t *testing.T) {
			t.Parallel()
			s := newScript(t)
			p := run(t, s.url())
			x := s.next()
			x.challenge()
			x.end <- connect.NewError(code, errors.New("the tool wait is not to my taste"))
			if got := p.code(); got == 0 || !strings.Contains(p.printed(), "the tool wait is not to my taste") {
				t.Errorf("it ended with %d, and printed %q", got, p.printed())
			}
		})
	}
}

// TestTaken: a name that another run of the program has is waited for.
func TestTaken(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	run(t, s.url())
	x := s.next()
	x.challenge()
	x.end <- connect.NewError(connect.CodeAlreadyExists, errors.New("the name is taken"))
	x = s.next()
	if m := x.welcome(limits()); !slices.ContainsFunc(m.GetTools(), func(d *packsv1.ToolDefinition) bool { return d.GetName() == "echo" }) {
		t.Errorf("%v", m)
	}
}
