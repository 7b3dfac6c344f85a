package process

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const waitScript = `x=$(cat <&3); printf y >&3; exec 3>&-; `

func (b *bed) standby(script string) *Standby {
	b.Helper()
	s, err := b.m.Standby(shell(waitScript + script))
	if err != nil {
		b.Fatal(err)
	}
	return s
}

func awakening(s *Standby) Request {
	r := shell("echo cold")
	r.Standby, r.Wake = s, []byte("morning")
	return r
}

func TestStandby(t *testing.T) {
	b := newBed(t)
	r := b.run(awakening(b.standby(`echo got $x; echo err >&2; ls /proc/self/fd | wc -l; exit 7`)))
	b.wantExit(r, 7)
	if r.stdout != "got morning\n4\n" || r.stderr != "err\n" || r.pid == 0 {
		t.Errorf("stdout %q, stderr %q, pid %d", r.stdout, r.stderr, r.pid)
	}
	r = b.run(awakening(b.standby(`sleep 100 & sleep 100`)).with(func(r *Request) { r.Timeout = 300 * time.Millisecond }))
	if r.Status != TimedOut {
		t.Errorf("one that sleeps ended as %d", r.Status)
	}
	e := b.start(awakening(b.standby(`trap 'echo term; exit 3' TERM; echo ready; while :; do sleep 0.01; done`)))
	for e.LastEvent() < 2 {
		time.Sleep(time.Millisecond)
	}
	if err := e.Signal(int(unix.SIGTERM)); err != nil {
		t.Error(err)
	}
	if r := b.wait(e); r.Code != 3 {
		t.Errorf("code %d after a signal", r.Code)
	}
}

func (r Request) with(change func(*Request)) Request { change(&r); return r }

// TestStandbyReady: a command that says when it waits is not ready before, and can be used all the same.
func TestStandbyReady(t *testing.T) {
	b := newBed(t)
	says := shell(`printf r >&3; ` + waitScript + `echo got $x`)
	says.SaysReady = true
	s, err := b.m.Standby(says)
	if err != nil {
		t.Fatal(err)
	}
	for !s.Ready() {
		time.Sleep(time.Millisecond)
	}
	if r := b.run(awakening(s)); r.stdout != "got morning\n" || !s.Ready() {
		t.Errorf("ready: %q", r.stdout)
	}
	late := shell(`sleep 0.3; printf r >&3; ` + waitScript + `echo got $x`)
	late.SaysReady = true
	if s, err = b.m.Standby(late); err != nil {
		t.Fatal(err)
	}
	if s.Ready() {
		t.Error("ready before it said so")
	}
	if r := b.run(awakening(s)); r.stdout != "got morning\n" {
		t.Errorf("not yet ready: %q", r.stdout)
	}
	died := shell("true")
	died.SaysReady = true
	if s, err = b.m.Standby(died); err != nil {
		t.Fatal(err)
	}
	for !s.Ready() {
		time.Sleep(time.Millisecond)
	}
	if r := b.run(awakening(s)); r.stdout != "cold\n" {
		t.Errorf("it died: %q", r.stdout)
	}
}

// TestStandbyLost: whatever becomes of a standby, the exec runs.
func TestStandbyLost(t *testing.T) {
	b := newBed(t)
	cold := func(name string, s *Standby) {
		t.Helper()
		r := b.run(awakening(s))
		b.wantExit(r, 0)
		if r.stdout != "cold\n" {
			t.Errorf("%s: stdout %q", name, r.stdout)
		}
	}
	ended, err := b.m.Standby(shell("true"))
	if err != nil {
		t.Fatal(err)
	}
	cold("it ended", ended)
	unknown, err := b.m.Standby(request("/no/such/program"))
	if err != nil {
		t.Fatal(err)
	}
	cold("it did not start", unknown)
	deaf, err := b.m.Standby(shell("exec 3>&-; sleep 100"))
	if err != nil {
		t.Fatal(err)
	}
	cold("it does not listen", deaf)
	killed := b.standby("echo warm")
	_ = unix.Kill(killed.sup.pid, unix.SIGKILL)
	<-killed.sup.dead
	cold("its supervisor was killed", killed)
	discarded := b.standby("echo warm")
	b.m.Discard(discarded)
	cold("discarded", discarded)
	used := b.standby("echo warm")
	if r := b.run(awakening(used)); r.stdout != "warm\n" {
		t.Errorf("stdout %q", r.stdout)
	}
	cold("used", used)
	b.standby("echo warm") // Close ends it
}
