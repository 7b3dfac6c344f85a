package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/sandboxd/procfs"
)

func TestMain(m *testing.M) {
	SuperviseIfAsked()
	goleak.VerifyTestMain(m)
}

func TestRun(t *testing.T) {
	b := newBed(t)
	r := b.run(request("echo", "hello", "world"))
	b.wantExit(r, 0)
	if r.stdout != "hello world\n" || r.stderr != "" || r.pid <= 1 || r.Duration <= 0 || r.MaxRSS <= 0 {
		t.Errorf("%+v %+v", r, r.Exit)
	}
	r = b.run(shell("pwd; echo $HOME-$X; echo err >&2; exit 7"))
	b.wantExit(r, 7)
	if r.stdout != "/tmp\n-\n" || r.stderr != "err\n" {
		t.Errorf("%q %q", r.stdout, r.stderr)
	}
	q := shell("echo $X; cd ..")
	q.Env = append(q.Env, "X=a b=c")
	b.wantExit(b.run(q), 0)
	b.wantExit(b.run(shell("kill -TERM $$")), 128+int(unix.SIGTERM))
	b.wantExit(b.run(shell("kill -KILL $$")), 128+int(unix.SIGKILL))
	r = b.run(shell("for i in $(seq 20000); do :; done"))
	if r.CPU <= 0 {
		t.Error("no CPU time was counted")
	}
}

func TestDescriptorsOfCommand(t *testing.T) {
	b := newBed(t)
	r := b.run(shell("until [ $(ps -o ni= $$) = 19 ]; do :; done; ls /proc/$$/fd; cat /proc/$$/oom_score_adj; ps -o ni= $$")) // a moment after it began
	b.wantExit(r, 0)
	if got := strings.Fields(r.stdout); strings.Join(got, " ") != "0 1 2 1000 19" && strings.Join(got, " ") != "0 1 2 255 1000 19" {
		t.Errorf("descriptors, oom_score_adj, nice: %q", got)
	}
	// Blocking pipes: a program does not expect EAGAIN on its stdout.
	r = b.run(request("grep", "flags", "/proc/self/fdinfo/1", "/proc/self/fdinfo/2"))
	for _, line := range strings.Split(strings.TrimSpace(r.stdout), "\n") {
		flags, err := strconv.ParseInt(line[strings.LastIndexByte(line, '\t')+1:], 8, 64)
		if err != nil || flags&unix.O_NONBLOCK != 0 {
			t.Errorf("%s", line)
		}
	}
}

func TestFailedToStart(t *testing.T) {
	b := newBed(t)
	dir := t.TempDir()
	script := filepath.Join(dir, "script")
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(script, []byte("#!/no/such/interpreter -x\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(plain, []byte("nothing to run"), 0o755); err != nil {
		t.Fatal(err)
	}
	noCwd := request("true")
	noCwd.Cwd = "/no/such/folder"
	fileCwd := request("/bin/true")
	fileCwd.Cwd = script
	for name, c := range map[string]struct {
		r    Request
		want string
		code int
	}{
		"no program":        {request("no-such-program"), `no such program: "no-such-program" is not in PATH`, 127},
		"no path":           {request("/no/such/program"), `no such program: "/no/such/program"`, 127},
		"relative":          {request("./absent"), `no such program: "/tmp/absent"`, 127},
		"no interpreter":    {request(script), `/script" does not exist ("#!/no/such/interpreter -x")`, 127},
		"no format":         {request(plain), "neither a program for this machine", 126},
		"not executable":    {request("/etc/passwd"), `"/etc/passwd" is not executable`, 126},
		"no folder":         {noCwd, `no such folder: "/no/such/folder"`, 127},
		"folder is a file":  {fileCwd, "not a folder", 127},
		"argument too long": {request("echo", strings.Repeat("x", 200<<10)), "too long for the kernel", 126},
	} {
		r := b.run(c.r)
		if r.Status != FailedToStart || !strings.Contains(r.Reason, c.want) || r.Code != c.code || r.pid != 0 {
			t.Errorf("%s: status %d, code %d, reason %q, want %q", name, r.Status, r.Code, r.Reason, c.want)
		}
	}
	b.wantExit(b.run(request("true")), 0) // the supervisor is of use still
}

func TestInvalidRequests(t *testing.T) {
	b := newBed(t)
	change := func(f func(*Request)) Request { r := request("true"); f(&r); return r }
	for name, r := range map[string]Request{
		"no argv":     change(func(r *Request) { r.Argv = nil }),
		"NUL":         change(func(r *Request) { r.Argv = []string{"a\x00"} }),
		"long argv":   change(func(r *Request) { r.Argv = []string{strings.Repeat("x", maxArgs+1)} }),
		"cwd":         change(func(r *Request) { r.Cwd = "relative" }),
		"env name":    change(func(r *Request) { r.Env = []string{"1X=y"} }),
		"env":         change(func(r *Request) { r.Env = []string{"X"} }),
		"env NUL":     change(func(r *Request) { r.Env = []string{"X=\x00"} }),
		"long env":    change(func(r *Request) { r.Env = []string{"X=" + strings.Repeat("x", maxEnviron)} }),
		"stdin":       change(func(r *Request) { r.Stdin = make([]byte, maxStdin+1) }),
		"no timeout":  change(func(r *Request) { r.Timeout = 0 }),
		"max output":  change(func(r *Request) { r.MaxOutput = maxOutput + 1 }),
		"minus spill": change(func(r *Request) { r.MaxSpill = -1 }),
	} {
		if _, _, err := b.m.Start(name, r); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestStdin(t *testing.T) {
	b := newBed(t)
	r := request("wc", "-c")
	r.Stdin = bytes.Repeat([]byte("x"), 1<<20)
	if got := b.run(r); strings.TrimSpace(got.stdout) != "1048576" {
		t.Errorf("wc: %q", got.stdout)
	}
	if got := b.run(request("wc", "-c")); strings.TrimSpace(got.stdout) != "0" {
		t.Errorf("no stdin: %q", got.stdout)
	}
	r = request("true") // reads nothing
	r.Stdin = make([]byte, 1<<20)
	b.wantExit(b.run(r), 0)

	r = request("cat")
	r.Stdin, r.KeepStdin = []byte("a"), true
	e := b.start(r)
	for _, s := range []string{"b", "c"} {
		if err := e.WriteStdin(t.Context(), []byte(s), s == "c"); err != nil {
			t.Fatal(err)
		}
	}
	if got := b.wait(e); got.stdout != "abc" {
		t.Errorf("cat: %q", got.stdout)
	}
	if err := e.WriteStdin(t.Context(), []byte("d"), false); !errors.Is(err, ErrNoStdin) {
		t.Errorf("write after the end: %v", err)
	}

	r = request("sleep", "30")
	r.KeepStdin = true
	e = b.start(r)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := e.WriteStdin(ctx, make([]byte, 1<<20), false); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("write to one that does not read: %v", err)
	}
	if err := e.WriteStdin(t.Context(), nil, true); err != nil {
		t.Errorf("close: %v", err)
	}
	if err := e.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := b.start(request("sleep", "0.1")).WriteStdin(t.Context(), nil, false); !errors.Is(err, ErrNoStdin) {
		t.Errorf("write without KeepStdin: %v", err)
	}
}

// tree starts a setsid child, a daemon that forked twice, and a child of the shell itself; all print
// their pid to a file.
func tree(file string) string {
	return fmt.Sprintf(`
setsid sleep 321 & echo $! >> %[1]s
( ( trap '' TERM HUP INT; echo $BASHPID >> %[1]s; exec sleep 322 ) & ) 
perl -e 'use POSIX; if (!fork) { setsid; if (!fork) { open F, ">>", "%[1]s"; print F "$$\n"; close F; sleep 323 } exit } wait'
sleep 324 & echo $! >> %[1]s
`, file)
}

func (b *bed) wantGone(file string, want int) {
	b.Helper()
	data, err := os.ReadFile(file)
	pids := strings.Fields(string(data))
	if err != nil || len(pids) != want {
		b.Fatalf("pids %q, %v; want %d", pids, err, want)
	}
	for _, p := range pids {
		pid, _ := strconv.Atoi(p)
		if stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); syscall.Kill(pid, 0) == nil && !dead(stat) {
			b.Errorf("process %d lives on: %s", pid, stat)
		}
	}
}

// dead: a process that was killed and that its parent, who may be PID 1 of the machine, has yet to reap.
func dead(stat []byte) bool {
	_, after, ok := strings.Cut(string(stat), ") ")
	return !ok || after[0] == 'Z' || after[0] == 'X'
}

func TestTreeEndsWithExec(t *testing.T) {
	b := newBed(t)
	for name, end := range map[string]struct {
		script string
		want   Status
	}{
		"exit":    {"sleep 0.2; exit 3", Exited},
		"timeout": {"sleep 60", TimedOut},
		"kill":    {"sleep 60", Killed},
	} {
		file := filepath.Join(t.TempDir(), "pids")
		r := shell(tree(file) + end.script)
		if name == "timeout" {
			r.Timeout = 700 * time.Millisecond
		}
		e := b.start(r)
		if name == "kill" {
			for i := 0; i < 100; i++ {
				if data, _ := os.ReadFile(file); bytes.Count(data, []byte("\n")) == 4 {
					break
				}
				time.Sleep(10 * time.Millisecond)
			}
			if err := e.Kill(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := e.Kill(t.Context()); err != nil { // again: no error
				t.Fatal(err)
			}
		}
		got := b.wait(e)
		if got.Status != end.want || name == "exit" && got.Code != 3 {
			t.Errorf("%s: status %d, code %d", name, got.Status, got.Code)
		}
		if name == "timeout" && (got.Duration < 700*time.Millisecond || got.Duration > 6*time.Second) {
			t.Errorf("timeout of 0.7 s after %v", got.Duration)
		}
		b.wantGone(file, 4)
	}
}

func TestForkBomb(t *testing.T) {
	b := newBed(t)
	// Each process forks until there are 150, and again when one is gone.
	r := request("python3", "-c", `
import os, time
n = 0
while True:
    if len([p for p in os.listdir('/proc') if p.isdigit()]) < 300:
        try:
            if os.fork() == 0: os.setsid()
        except OSError: pass
    else: time.sleep(0.001)
`)
	r.Timeout = time.Second
	start := time.Now()
	got := b.run(r)
	if got.Status != TimedOut || time.Since(start) > 20*time.Second {
		t.Errorf("status %d after %v", got.Status, time.Since(start))
	}
	procs, err := procfs.Scan()
	if err != nil {
		t.Fatal(err)
	}
	b.m.wardens.mu.Lock()
	defer b.m.wardens.mu.Unlock()
	for _, pid := range procfs.Descendants(procs, os.Getpid()) {
		if b.m.wardens.live[pid] == nil {
			t.Errorf("process %d is left", pid)
		}
	}
}

func TestSupervisorKilled(t *testing.T) {
	b := newBed(t)
	for _, sig := range []string{"KILL", "TERM", "STOP"} {
		file := filepath.Join(t.TempDir(), "pids")
		// The filter keeps a command from its own supervisor, so a sibling does it.
		r := shell(tree(file) + "sleep 60")
		r.Timeout = time.Second
		victim := b.start(r)
		if err := victim.Hold(time.Minute); err != nil { // the deadline is not to pass before the signal
			t.Fatal(err)
		}
		b.eventually("the tree is whole", func() bool {
			data, _ := os.ReadFile(file)
			return bytes.Count(data, []byte("\n")) == 4
		})
		victim.mu.Lock()
		sup := victim.sup
		victim.mu.Unlock()
		if sup == nil {
			t.Fatalf("%s: it ended before the signal", sig)
		}
		b.wantExit(b.run(shell(fmt.Sprintf("kill -%s %d", sig, sup.pid))), 0)
		if err := victim.Hold(0); err != nil {
			t.Fatal(err)
		}
		got := b.wait(victim)
		want := Killed
		if sig == "STOP" {
			want = TimedOut // it is woken at the deadline
		}
		if got.Status != want {
			t.Errorf("%s: status %d (%s)", sig, got.Status, got.Reason)
		}
		b.wantGone(file, 4)
	}
	b.wantExit(b.run(request("true")), 0)
}

func TestIdleSupervisorsKilled(t *testing.T) {
	b := newBed(t)
	b.wantExit(b.run(request("true")), 0)
	for range 3 {
		b.m.wardens.mu.Lock()
		live := maps.Clone(b.m.wardens.live)
		b.m.wardens.mu.Unlock()
		for pid, sup := range live {
			_ = unix.Kill(pid, unix.SIGKILL)
			<-sup.dead
		}
		b.wantExit(b.run(request("true")), 0)
	}
}

// TestSignalAtOnce: who has heard that an exec started can signal it.
func TestSignalAtOnce(t *testing.T) {
	b := newBed(t)
	for range 30 {
		e := b.start(request("sleep", "100"))
		if _, err := e.Next(t.Context(), 0, 1); err != nil {
			t.Fatal(err)
		}
		if err := e.Signal(int(unix.SIGTERM)); err != nil {
			t.Fatal(err)
		}
		b.wantExit(b.wait(e), 128+int(unix.SIGTERM))
	}
}

func TestSignal(t *testing.T) {
	b := newBed(t)
	e := b.start(shell("trap 'echo got; exit 5' USR1; echo ready; while :; do sleep 0.05; done"))
	for e.LastEvent() < 2 { // "ready"
		time.Sleep(time.Millisecond)
	}
	if err := e.Signal(int(unix.SIGUSR1)); err != nil {
		t.Fatal(err)
	}
	r := b.wait(e)
	b.wantExit(r, 5)
	if r.stdout != "ready\ngot\n" {
		t.Errorf("%q", r.stdout)
	}
	if err := e.Signal(int(unix.SIGUSR1)); !errors.Is(err, ErrEnded) {
		t.Errorf("signal after the end: %v", err)
	}
	if err := e.Signal(0); err == nil {
		t.Error("signal 0 was accepted")
	}
}

func TestAttach(t *testing.T) {
	b := newBed(t)
	e := b.start(shell("for i in 1 2 3; do echo $i; sleep 0.05; done"))
	same, started, err := b.m.Start(e.ID(), request("other"))
	if err != nil || started || same != e {
		t.Fatalf("starting a known id: %v, %v", started, err)
	}
	var wg sync.WaitGroup
	for after := range uint64(4) {
		wg.Go(func() {
			for e.LastEvent() < after {
				time.Sleep(time.Millisecond)
			}
			r, err := follow(t.Context(), e, after)
			if err != nil || r.Exit == nil || r.stdout != "1\n2\n3\n"[2*max(int(after)-1, 0):] {
				t.Errorf("after %d: %q, %v", after, r.stdout, err)
			}
		})
	}
	wg.Wait()
	if _, err := e.Next(t.Context(), 100, 1); !errors.Is(err, ErrOutOfRange) {
		t.Errorf("after=100: %v", err)
	}
	if got, err := b.m.Get(e.ID()); err != nil || got != e {
		t.Errorf("Get: %v", err)
	}
	if err := b.m.Forget(e.ID()); err != nil {
		t.Error(err)
	}
	if _, err := b.m.Get(e.ID()); !errors.Is(err, ErrNotFound) {
		t.Errorf("Get after Forget: %v", err)
	}
	running := b.start(request("sleep", "60"))
	if err := b.m.Forget(running.ID()); !errors.Is(err, ErrRunning) {
		t.Errorf("Forget of one that runs: %v", err)
	}
	if n := len(b.m.List()); n != 1 {
		t.Errorf("%d execs are listed", n)
	}
}

func TestManyAtOnce(t *testing.T) {
	b := newBed(t)
	var wg sync.WaitGroup
	for i := range 64 {
		e := b.start(shell(fmt.Sprintf("sleep 0.3; echo %d", i)))
		wg.Go(func() {
			r, err := follow(t.Context(), e, 0)
			if err != nil || r.Status != Exited || r.stdout != fmt.Sprintln(i) {
				t.Errorf("%d: %+v %q %v", i, r.Exit, r.stdout, err)
			}
		})
	}
	wg.Wait()
	b.m.wardens.mu.Lock()
	defer b.m.wardens.mu.Unlock()
	if n := len(b.m.wardens.idle); n > idleSupervisors {
		t.Errorf("%d idle supervisors", n)
	}
}

func TestTooMany(t *testing.T) {
	b := newBed(t)
	b.m.mu.Lock()
	b.m.running += maxRunning
	b.m.mu.Unlock()
	if _, _, err := b.m.Start("x", request("true")); !errors.Is(err, ErrBusy) {
		t.Errorf("%v", err)
	}
	b.m.mu.Lock()
	b.m.running -= maxRunning
	b.m.mu.Unlock()
}

// A pipe that something outside the tree holds open does not delay the end for long.
func TestPipeHeldOpen(t *testing.T) {
	b := newBed(t)
	e := b.start(shell("echo $$; sleep 0.3"))
	for e.LastEvent() < 2 {
		time.Sleep(time.Millisecond)
	}
	events, err := e.Next(t.Context(), 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	held, err := os.OpenFile(fmt.Sprintf("/proc/%s/fd/1", bytes.TrimSpace(events[0].Data)), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	r := b.wait(e)
	b.wantExit(r, 0)
	if r.Duration > 2*time.Second {
		t.Errorf("ended after %v", r.Duration)
	}
}

func TestCleanupRunsOnce(t *testing.T) {
	b := newBed(t)
	for _, argv := range []string{"true", "no-such-program"} {
		done := make(chan struct{})
		r := request(argv)
		r.Cleanup = func() { close(done) } // a second call panics
		b.run(r)
		<-done
	}
	r := Request{Refuse: "there is no such interpreter", Cwd: "/", Timeout: time.Second}
	if got := b.run(r); got.Status != FailedToStart || got.Reason != r.Refuse || got.Code != CodeNoInterpreter {
		t.Errorf("refused: %+v", got.Exit)
	}
}

func TestCloseEndsAll(t *testing.T) {
	b := newBed(t)
	file := filepath.Join(t.TempDir(), "pids")
	e := b.start(shell(tree(file) + "sleep 60"))
	for range 200 {
		if data, _ := os.ReadFile(file); bytes.Count(data, []byte("\n")) == 4 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	b.m.Close(t.Context())
	if r := b.wait(e); r.Status != Killed {
		t.Errorf("status %d", r.Status)
	}
	b.wantGone(file, 4)
	if _, _, err := b.m.Start("late", request("true")); !errors.Is(err, ErrClosed) {
		t.Errorf("start after Close: %v", err)
	}
}

func TestExpire(t *testing.T) {
	b := newBed(t)
	e := b.start(request("echo"))
	b.wait(e)
	for range 100 { // it is noted as ended just after its last event
		b.m.mu.Lock()
		n := len(b.m.ended)
		b.m.mu.Unlock()
		if n == 1 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	b.m.expire(time.Now().Add(keptFor - time.Second))
	if _, err := b.m.Get(e.ID()); err != nil {
		t.Error("forgotten too early")
	}
	b.m.expire(time.Now().Add(keptFor + time.Second))
	if _, err := b.m.Get(e.ID()); !errors.Is(err, ErrNotFound) {
		t.Error("kept for too long")
	}
}

func BenchmarkExecTrue(b *testing.B) {
	exe, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	m, err := New(Options{Supervisor: []string{exe, SuperviseCommand}, SpillRoot: b.TempDir(), OOMCounters: procfs.OOMCounters, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close(context.Background())
	for i := 0; b.Loop(); i++ {
		e, _, err := m.Start(strconv.Itoa(i), request("/bin/true"))
		if err != nil {
			b.Fatal(err)
		}
		if r, err := follow(b.Context(), e, 0); err != nil || r.Status != Exited {
			b.Fatal(r, err)
		}
	}
}

// BenchmarkOOMCounter is what each exec pays to tell whether the kernel killed it.
func BenchmarkOOMCounter(b *testing.B) {
	c := procfs.OpenOOMCounter(procfs.OOMCounters)
	defer c.Close()
	b.ReportAllocs()
	for b.Loop() {
		c.Kills()
	}
}

// TestHold: what waits for a person has time, and no more than it was given.
func TestHold(t *testing.T) {
	b := newBed(t)
	r := shell("sleep 1; echo done")
	r.Timeout = 500 * time.Millisecond
	e := b.start(r)
	if err := e.Hold(30 * time.Second); err != nil {
		t.Fatal(err)
	}
	if x := b.wait(e); x.Status != Exited || x.stdout != "done\n" {
		t.Errorf("an exec whose deadline is held: %+v", x)
	}
	if err := e.Hold(time.Second); err != nil {
		t.Errorf("after its end: %v", err)
	}
	for name, hold := range map[string]func(e *Exec) error{
		"a hold that nobody renews": func(e *Exec) error { return e.Hold(300 * time.Millisecond) },
		"one that is ended":         func(e *Exec) error { return errors.Join(e.Hold(30*time.Second), e.Hold(0)) },
	} {
		r := shell("while :; do :; done")
		r.Timeout = 500 * time.Millisecond
		e := b.start(r)
		if err := hold(e); err != nil {
			t.Fatal(err)
		}
		if x := b.wait(e); x.Status != TimedOut {
			t.Errorf("%s: %+v", name, x)
		}
	}
	for _, d := range []time.Duration{-1, maxHold + 1} {
		if e.Hold(d) == nil {
			t.Errorf("a hold of %v is taken", d)
		}
	}
}
