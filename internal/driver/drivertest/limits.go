package drivertest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/driver/drivertest/probewire"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/hardening"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// limits: each one is in force, seen by its effect inside and, for what a cgroup holds, on the host.
func (s *suite) limits(t *testing.T) {
	need(t, s.caps.Isolated, "Isolated")
	t.Run("Memory", s.limitMemory)
	t.Run("PIDs", s.limitPIDs)
	t.Run("Tmpfs", s.limitTmpfs)
	t.Run("Files", s.limitFiles)
	t.Run("Terminals", s.limitTerminals)
	t.Run("Core", s.limitCore)
	t.Run("CPU", s.limitCPU)
	t.Run("Cgroup", s.limitCgroup)
}

// limitMemory: the process that takes too much is ended, and the sandbox goes on. While the kernel still takes
// away the memory of a process that it has ended, it may find PID 1 alone to take more from; that must be rare, and
// told as what it is.
func (s *suite) limitMemory(t *testing.T) {
	for range 4 {
		if s.outOfMemory(t) {
			return
		}
	}
	t.Error("an exec out of memory took PID 1 along each time")
}

// outOfMemory reports whether the sandbox did what its runtime declares.
func (s *suite) outOfMemory(t *testing.T) bool {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	events, err := s.d.Watch(ctx)
	must(t, err)
	r := s.start(t, func(spec *sandbox.Spec) { spec.Limits.MemoryBytes = 192 << 20 })
	half := r.ask(t, probewire.Request{Op: probewire.OpAlloc, N: 64 << 20, Child: true})
	if half.Err != "" {
		t.Errorf("64 MiB of 192 MiB cannot be used: %+v", half)
	}
	resp, answered := r.tryAsk(t, probewire.Request{Op: probewire.OpAlloc, N: 512 << 20, Child: true}, answerTimeout)
	if s.oomEndsSandbox() {
		if answered {
			t.Fatalf("512 MiB of 192 MiB: %+v, want the sandbox to end", resp)
		}
		if got := r.awaitState(t, sandbox.Lost, 5*time.Second); !got.OOMKilled {
			t.Errorf("the end is not put down to memory: %+v", got)
		}
		if e := awaitEvent(t, events, r.spec.ID, 5*time.Second); !e.OOM {
			t.Errorf("the event does not say out of memory: %+v", e)
		}
		return true
	}
	if !answered {
		if got := r.awaitState(t, sandbox.Lost, 5*time.Second); !got.OOMKilled {
			t.Fatalf("512 MiB of 192 MiB: the sandbox ended, and not for want of memory: %+v", got)
		}
		return false
	}
	if resp.Signal != int(syscall.SIGKILL) {
		t.Fatalf("512 MiB of 192 MiB: %+v, want the process killed", resp)
	}
	if got := r.inspect(t); got.State != sandbox.Running {
		t.Errorf("after an exec ran out of memory the sandbox is %q", got.State)
	}
	return true
}

func (s *suite) limitPIDs(t *testing.T) {
	r := s.start(t, func(spec *sandbox.Spec) { spec.Limits.PIDs = 48 })
	// Every probe process has some ten threads, and each counts.
	resp, answered := r.tryAsk(t, probewire.Request{Op: probewire.OpFork, N: 500, Child: true}, answerTimeout)
	if answered && resp.Err == "" {
		t.Fatalf("%d processes could be started with a limit of 48", resp.N)
	}
	if !answered {
		t.Fatalf("too many processes ended the sandbox: %+v", r.inspect(t))
	}
	t.Logf("%d processes, then: %s", resp.N, resp.Err)
	r.ask(t, probewire.Request{Op: probewire.OpPing})
}

func (s *suite) limitTmpfs(t *testing.T) {
	r := s.start(t, func(spec *sandbox.Spec) {
		spec.Limits.TmpBytes = 4 << 20
		spec.Limits.FileBytes = 200 << 20
	})
	own := ownKernel(t, r)
	for path, limit := range map[string]int64{"/tmp/fill": 4 << 20, sandbox.HomeDir + "/fill": 4 << 20, "/dev/shm/fill": 64 << 20} {
		if own && path == "/dev/shm/fill" && !s.keeps(t, driver.TmpfsFiles) {
			continue // that kernel has one of its own there, and its memory limit bounds it
		}
		resp := r.ask(t, probewire.Request{Op: probewire.OpFill, Path: path, N: 2 * limit, Child: true})
		if resp.Errno != int(syscall.ENOSPC) || resp.N > limit || resp.N < limit/2 {
			t.Errorf("%s: %d bytes, then %q; want no space after about %d", path, resp.N, resp.Err, limit)
		}
	}
	for _, dir := range []string{"/tmp", sandbox.HomeDir} {
		if got := r.ask(t, probewire.Request{Op: probewire.OpWrite, Path: dir + "/a file", Data: "x"}); got.Err != "" {
			t.Errorf("%s cannot be written after that: %s", dir, got.Err)
		}
		if own || !s.keeps(t, driver.TmpfsFiles) {
			continue // that kernel does not count files; its memory limit bounds them
		}
		got := r.ask(t, probewire.Request{Op: probewire.OpMakeFiles, Path: dir, N: 3000, Child: true})
		if got.Errno != int(syscall.ENOSPC) || got.N > 1<<10 || got.N < 900 {
			t.Errorf("%s: %d empty files, then %q; want no space after about 1024", dir, got.N, got.Err)
		}
	}
}

// limitCore: a crash dumps no core, also when the process lowered its limit to 0. At 0 the kernel would
// still pass the core to a program of the host.
func (s *suite) limitCore(t *testing.T) {
	r := s.start(t)
	for _, limit := range []int64{1, 0} {
		got := r.ask(t, probewire.Request{Op: probewire.OpCrash, N: limit, Child: true})
		if got.Signal != int(syscall.SIGABRT) || got.Core {
			t.Errorf("a crash with a limit of %d: %+v, want SIGABRT and no core dump", limit, got)
		}
	}
}

// limitTerminals: a sandbox leaves pseudo terminals to its neighbours.
func (s *suite) limitTerminals(t *testing.T) {
	if !s.keeps(t, driver.Terminals) {
		t.Skip("capability Unkept: the engine mounts the terminals")
	}
	r := s.start(t)
	if ownKernel(t, r) {
		t.Skip("that kernel has terminals of its own")
	}
	resp := r.ask(t, probewire.Request{Op: probewire.OpOpenFiles, Path: "/dev/ptmx", N: 2 * hardening.MaxTerminals, Child: true})
	if resp.Errno != int(syscall.ENOSPC) || resp.N != hardening.MaxTerminals {
		t.Errorf("%d terminals, then %q; want no space after %d", resp.N, resp.Err, hardening.MaxTerminals)
	}
}

func (s *suite) limitFiles(t *testing.T) {
	r := s.start(t, func(spec *sandbox.Spec) {
		spec.Limits.OpenFiles = 100
		spec.Limits.FileBytes = 2 << 20
	})
	for _, child := range []bool{false, true} {
		resp := r.ask(t, probewire.Request{Op: probewire.OpOpenFiles, N: 500, Child: child})
		if resp.Errno != int(syscall.EMFILE) || resp.N >= 100 {
			t.Errorf("child=%v: %d files open, then %q; want too many after less than 100", child, resp.N, resp.Err)
		}
	}
	resp := r.ask(t, probewire.Request{Op: probewire.OpFill, Path: sandbox.WorkspaceDir + "/large", N: 8 << 20, Child: true})
	if resp.N > 2<<20 || (resp.Errno != int(syscall.EFBIG) && resp.Signal != int(syscall.SIGXFSZ)) {
		t.Errorf("a file of %d bytes, then %q; want too large after 2 MiB", resp.N, resp.Err)
	}
	for _, line := range r.ask(t, probewire.Request{Op: probewire.OpLimits, Child: true}).Lines {
		want := map[string]string{"nofile": "100 100", "fsize": "2097152 2097152", "core": "1 1"}
		if name, values, _ := strings.Cut(line, " "); want[name] != values {
			t.Errorf("limit %s is %s, want %s", name, values, want[name])
		}
	}
}

func (s *suite) limitCPU(t *testing.T) {
	const millis, wall = 250, 1500
	r := s.start(t, func(spec *sandbox.Spec) { spec.Limits.CPUMillis = millis })
	r.ask(t, probewire.Request{Op: probewire.OpPing})
	pid := s.h.PID(t, r.spec.ID)
	before, start := cpuMicros(t, pid), time.Now()
	r.ask(t, probewire.Request{Op: probewire.OpBurn, N: wall, Child: true})
	used, took := cpuMicros(t, pid)-before, time.Since(start).Microseconds()
	share := float64(used) / float64(took)
	t.Logf("two busy threads got %.2f of a core", share)
	limit := float64(millis+s.h.ExtraCPUMillis) / 1000
	if share > 1.5*limit {
		t.Errorf("two busy threads got %.2f of a core, the limit is %.2f", share, limit)
	}
}

// limitCgroup: the numbers of the Spec stand in the cgroup.
func (s *suite) limitCgroup(t *testing.T) {
	if !s.keeps(t, driver.EngineLimits) {
		t.Skip("capability Unkept: the cgroup is the engine's")
	}
	r := s.start(t, func(spec *sandbox.Spec) {
		spec.Limits.MemoryBytes, spec.Limits.PIDs, spec.Limits.CPUMillis = 200<<20, 100, 750
	})
	pid := s.h.PID(t, r.spec.ID)
	memory := strconv.Itoa(200 << 20)
	type check struct{ controller, file, want string }
	checks := []check{
		{"memory", "memory.limit_in_bytes", memory}, {"memory", "memory.memsw.limit_in_bytes", memory},
		{"cpu", "cpu.cfs_quota_us", "7500"}, {"cpu", "cpu.cfs_period_us", "10000"},
	}
	if unifiedCgroups() {
		checks = []check{{"", "memory.max", memory}, {"", "memory.swap.max", "0"}, {"", "cpu.max", "7500 10000"}}
	}
	for _, c := range checks {
		data, err := os.ReadFile(filepath.Join(cgroupDir(t, pid, c.controller), c.file))
		if err != nil || strings.TrimSpace(string(data)) != c.want {
			t.Errorf("%s is %q (%v), want %s", c.file, data, err, c.want)
		}
	}
	score, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid))
	if err != nil || strings.TrimSpace(string(score)) != strconv.Itoa(hardening.OOMScore) {
		t.Errorf("oom_score_adj is %q (%v), want %d: the host would end the server first", score, err, hardening.OOMScore)
	}
	if !ownKernel(t, r) {
		// The sandbox sees its own cgroup, as its root: sandboxd reads there whether memory ran out.
		for _, c := range checks {
			path := filepath.Join("/sys/fs/cgroup", c.controller, c.file)
			if got := r.ask(t, probewire.Request{Op: probewire.OpRead, Path: path}); strings.TrimSpace(got.Text) != c.want {
				t.Errorf("inside, %s is %q %s, want %s", path, got.Text, got.Err, c.want)
			}
		}
	}
	data, err := os.ReadFile(filepath.Join(cgroupDir(t, pid, "pids"), "pids.max"))
	must(t, err)
	// A runtime with a kernel of its own has several threads for each process inside.
	most := 100
	if ownKernel(t, r) {
		most = 1000
	}
	if n, err := strconv.Atoi(strings.TrimSpace(string(data))); err != nil || n < 100 || n > most {
		t.Errorf("pids.max is %q, want 100 to %d", data, most)
	}
}

func unifiedCgroups() bool {
	_, err := os.Stat("/sys/fs/cgroup/cgroup.controllers")
	return err == nil
}

// cgroupDir returns a process's cgroup on the host. controller is "" with cgroup version 2.
func cgroupDir(t testing.TB, pid int, controller string) string {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	must(t, err)
	if unifiedCgroups() {
		controller = ""
	}
	for line := range strings.Lines(string(data)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		for name := range strings.SplitSeq(parts[1], ",") {
			if name == controller {
				if parts[2] == "/" {
					t.Fatalf("process %d is not in a cgroup of its own", pid)
				}
				return filepath.Join("/sys/fs/cgroup", controller, parts[2])
			}
		}
	}
	t.Fatalf("process %d has no cgroup for %q", pid, controller)
	return ""
}

// cpuMicros returns the CPU time that a process's cgroup used, in microseconds.
func cpuMicros(t testing.TB, pid int) int64 {
	t.Helper()
	if !unifiedCgroups() {
		data, err := os.ReadFile(filepath.Join(cgroupDir(t, pid, "cpuacct"), "cpuacct.usage"))
		must(t, err)
		nanos, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
		must(t, err)
		return nanos / 1000
	}
	data, err := os.ReadFile(filepath.Join(cgroupDir(t, pid, ""), "cpu.stat"))
	must(t, err)
	for line := range strings.Lines(string(data)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), "usage_usec "); ok {
			micros, err := strconv.ParseInt(value, 10, 64)
			must(t, err)
			return micros
		}
	}
	t.Fatal("cpu.stat has no usage_usec")
	return 0
}
