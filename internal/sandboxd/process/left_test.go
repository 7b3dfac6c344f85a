package process

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// leaving is a command that may leave processes.
func leaving(script string) Request {
	r := shell(script)
	r.Leave = true
	return r
}

func (b *bed) left() []Listed {
	b.Helper()
	list, err := b.m.Processes(false)
	if err != nil {
		b.Fatal(err)
	}
	return list
}

// eventually waits for ok.
func (b *bed) eventually(what string, ok func() bool) {
	b.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.Fatal("never: ", what)
		}
	}
}

func alive(pid int) bool { return unix.Kill(pid, 0) == nil }

func pidIn(t *testing.T, text string) int {
	t.Helper()
	pid, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// TestLeave: an exec ends with its command, and what it left stays, also what forked twice, until it is killed.
func TestLeave(t *testing.T) {
	b := newBed(t)
	e := b.start(leaving("nohup sleep 101 >/dev/null 2>&1 & (setsid sh -c 'sleep 102 & wait' &) ; echo $!; exit 3"))
	r := b.wait(e)
	b.wantExit(r, 3)
	if r.Left < 2 || r.Left > 3 || r.Duration > 5*time.Second {
		t.Errorf("%d left after %v, reason %q", r.Left, r.Duration, r.Reason)
	}
	sleeper := pidIn(t, r.stdout)
	list := b.left()
	for end := time.Now().Add(30 * time.Second); len(list) < 3 && time.Now().Before(end); list = b.left() {
		time.Sleep(10 * time.Millisecond) // the shell that forked twice may not have started its own sleep yet
	}
	var names []string
	for _, p := range list {
		names = append(names, p.Command)
		if p.Exec != e.ID() || p.RSS <= 0 || time.Since(p.Started).Abs() > time.Minute {
			t.Errorf("%+v", p)
		}
	}
	if all := strings.Join(names, ";"); !strings.Contains(all, "sleep 101") || !strings.Contains(all, "sleep 102") {
		t.Errorf("%q", all)
	}
	b.wantExit(b.run(shell("sleep 0.01")), 0) // another exec takes no notice
	if err := b.m.KillProcess(t.Context(), sleeper); err != nil || alive(sleeper) {
		t.Error(err, alive(sleeper))
	}
	if err := b.m.KillProcess(t.Context(), sleeper); !errors.Is(err, ErrNoProcess) {
		t.Error(err)
	}
	if got := len(b.left()); got != len(list)-1 {
		t.Errorf("%d left of %d", got, len(list))
	}
	if _, err := b.m.KillLeft(t.Context(), e.ID()); err != nil || len(b.left()) != 0 {
		t.Error(err, b.left())
	}
	if _, err := b.m.KillLeft(t.Context(), e.ID()); err != nil {
		t.Error(err)
	}
}

// TestLeaveNothing: without the option all ends with the command, and a command that leaves nothing says so.
func TestLeaveNothing(t *testing.T) {
	b := newBed(t)
	r := b.run(shell("sleep 100 >/dev/null 2>&1 & echo $!"))
	b.wantExit(r, 0)
	if pid := pidIn(t, r.stdout); r.Left != 0 || alive(pid) || len(b.left()) != 0 {
		t.Errorf("%d left, alive: %v", r.Left, alive(pid))
	}
	b.eventually("a process that ends with its command is none that was left", func() bool { // it may end later
		r = b.run(leaving("sleep 0.01 & true"))
		b.wantExit(r, 0)
		return r.Left == 0 && len(b.left()) == 0
	})
	r = b.run(leaving("echo a; exec 1>&2; echo b"))
	if r.Left != 0 || r.stdout != "a\n" || r.stderr != "b\n" {
		t.Errorf("%q %q", r.stdout, r.stderr)
	}
}

// TestLeftOutput: a process that keeps the output open does not keep the exec, gets no error when it writes, and is read by
// none.
func TestLeftOutput(t *testing.T) {
	b := newBed(t)
	file := t.TempDir() + "/wrote"
	e := b.start(leaving("echo first; (sleep 0.3; head -c 300000 /dev/zero && echo more >&2 && echo ok >" + file + "; sleep 100) & true"))
	r := b.wait(e)
	b.wantExit(r, 0)
	if r.stdout != "first\n" || r.stderr != "" || r.Left == 0 || r.Duration > 5*time.Second {
		t.Errorf("%q %q, %d left after %v", r.stdout, r.stderr, r.Left, r.Duration)
	}
	b.eventually("the left process writes", func() bool { return b.run(request("cat", file)).stdout == "ok\n" })
	if _, err := b.m.KillLeft(t.Context(), e.ID()); err != nil {
		t.Error(err)
	}
}

// TestLeftEndsWithExec: what was detached ends at the deadline, with a kill, and with sandboxd.
func TestLeftEndsWithExec(t *testing.T) {
	b := newBed(t)
	script := "(setsid sleep 100 >/dev/null 2>&1 &); pgrep -n -x sleep; sleep 99"
	q := leaving(script)
	q.Timeout = 500 * time.Millisecond
	r := b.run(q)
	if r.Status != TimedOut || r.Left != 0 || len(b.left()) != 0 {
		t.Errorf("%+v", r.Exit)
	}
	e := b.start(leaving(script))
	b.eventually("it runs", func() bool { return e.LastEvent() >= 2 })
	if err := e.Kill(t.Context()); err != nil || len(b.left()) != 0 {
		t.Error(err, b.left())
	}
	b.wantExit(b.run(leaving("nohup sleep 100 >/dev/null 2>&1 &")), 0)
	b.wantExit(b.run(leaving("nohup sleep 100 &")), 0)
	if len(b.left()) != 2 {
		t.Errorf("%v", b.left())
	}
	b.m.Close(context.Background())
	b.noChildren()
}

// TestLeftByItself: a supervisor whose left processes ended by themselves ends, and a place is free again.
func TestLeftByItself(t *testing.T) {
	b := newBed(t)
	r := b.run(leaving("sleep 0.5 & echo $!"))
	b.wantExit(r, 0)
	if r.Left != 1 || len(b.left()) != 1 {
		t.Errorf("%d left", r.Left)
	}
	b.eventually("it is gone", func() bool {
		b.m.left.mu.Lock()
		defer b.m.left.mu.Unlock()
		return len(b.m.left.trees) == 0
	})
}

// TestLeftTooMany: the commands beyond the bound end with all that they started, and say so.
func TestLeftTooMany(t *testing.T) {
	b := newBed(t)
	for range MaxLeft {
		r := b.run(leaving("sleep 100 & true"))
		b.wantExit(r, 0)
		if r.Left != 1 {
			t.Fatalf("%d left: %s", r.Left, r.Reason)
		}
	}
	r := b.run(leaving("sleep 100 & echo $!"))
	b.wantExit(r, 0)
	if r.Left != 0 || !r.LeftTooMany || alive(pidIn(t, r.stdout)) {
		t.Errorf("%d left, reason %q", r.Left, r.Reason)
	}
	list := b.left()
	if len(list) != MaxLeft {
		t.Fatalf("%d listed", len(list))
	}
	if err := b.m.KillProcess(t.Context(), list[0].PID); err != nil {
		t.Fatal(err)
	}
	b.eventually("there is a place again", func() bool {
		r := b.run(leaving("sleep 100 & true"))
		return r.Left == 1
	})
}

// TestLeftSupervisorDies: what was left ends with its supervisor.
func TestLeftSupervisorDies(t *testing.T) {
	b := newBed(t)
	r := b.run(leaving("sleep 100 & echo $!"))
	pid := pidIn(t, r.stdout)
	for sup := range b.m.left.of() {
		_ = unix.Kill(sup, unix.SIGKILL)
	}
	b.eventually("it is killed", func() bool { return !alive(pid) && len(b.left()) == 0 })
}

// TestLeftKillsOnlyLeft: the processes of running execs, and those of sandboxd, cannot be named.
func TestLeftKillsOnlyLeft(t *testing.T) {
	b := newBed(t)
	e := b.start(leaving("sleep 100"))
	b.eventually("it runs", func() bool { return e.LastEvent() >= 1 })
	events, err := e.Next(t.Context(), 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range []int{1, 0, -1, unix.Getpid(), events[0].Started.PID} {
		if err := b.m.KillProcess(t.Context(), pid); !errors.Is(err, ErrNoProcess) {
			t.Errorf("%d: %v", pid, err)
		}
	}
	if left, err := b.m.KillLeft(t.Context(), e.ID()); err != nil || left || e.Ended() {
		t.Error(err, e.Ended())
	}
	if err := e.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
}
