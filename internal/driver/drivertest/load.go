package drivertest

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/driver/drivertest/probewire"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// weigh: the kernel knows the new weight, also when another server than the sandbox's maker sets it.
func (s *suite) weigh(t *testing.T) {
	weigher, ok := s.d.(driver.Weigher)
	need(t, ok, "Weigher")
	r := s.start(t)
	next := s.h.New(t)
	defer next.Close() //nolint:errcheck // a driver of the test
	for _, step := range []struct {
		by     driver.Weigher
		weight driver.Weight
	}{
		{weigher, driver.LowWeight}, {weigher, driver.LowWeight}, {weigher, driver.UsualWeight},
		{next.(driver.Weigher), driver.LowWeight}, {weigher, driver.UsualWeight}, //nolint:forcetypeassert // as s.d
	} {
		must(t, step.by.Weigh(callCtx(t), r.spec.ID, step.weight))
		if s.caps.Isolated {
			s.weighs(t, r, step.weight)
		}
	}
	must(t, s.d.Remove(callCtx(t), r.spec.ID))
	if err := weigher.Weigh(callCtx(t), r.spec.ID, driver.LowWeight); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("Weigh of what is not there: %v, want not_found", err)
	}
}

// weighs looks at the cgroup on the host.
func (s *suite) weighs(t *testing.T, r *rig, want driver.Weight) {
	t.Helper()
	file, value := "cpu.shares", int(want)*1024/100
	if unifiedCgroups() {
		file, value = "cpu.weight", int(want)
	}
	data, err := os.ReadFile(filepath.Join(cgroupDir(t, s.h.PID(t, r.spec.ID), "cpu"), file))
	if got, _ := strconv.Atoi(strings.TrimSpace(string(data))); err != nil || got != value {
		t.Errorf("%s is %q (%v), want %d", file, data, err, value)
	}
}

// load: the time that a program computed, and the processes that it was refused, are told on the host.
func (s *suite) load(t *testing.T) {
	meter, ok := s.d.(driver.Meter)
	need(t, ok, "Meter")
	r := s.start(t, func(spec *sandbox.Spec) { spec.Limits.PIDs = 48 })
	before, err := meter.Load(callCtx(t), r.spec.ID)
	must(t, err)
	if s.caps.Isolated {
		r.ask(t, probewire.Request{Op: probewire.OpBurn, N: 400, Child: true})
		after, err := meter.Load(callCtx(t), r.spec.ID)
		must(t, err)
		// On a busy machine it gets little of the time that it wants.
		if used := after.CPU - before.CPU; used < 20*time.Millisecond {
			t.Errorf("two threads that computed for 400 ms used %v", used)
		}
		if after.PIDs < 1 || after.Memory < 1<<10 {
			t.Errorf("a running sandbox has %d processes and %d bytes", after.PIDs, after.Memory)
		}
		if after.Refused != 0 {
			t.Errorf("%d processes were refused before the limit was reached", after.Refused)
		}
		r.ask(t, probewire.Request{Op: probewire.OpFork, N: 500, Child: true})
		full, err := meter.Load(callCtx(t), r.spec.ID)
		must(t, err)
		if own := ownKernel(t, r); !own && full.PIDs > 48 {
			t.Errorf("%d processes of 48", full.PIDs)
		}
		if own := ownKernel(t, r); (full.Refused == 0) != own {
			t.Errorf("after the limit of processes was reached, %d were refused; a kernel of its own: %v", full.Refused, own)
		}
	}
	must(t, s.d.Remove(callCtx(t), r.spec.ID))
	if _, err := meter.Load(callCtx(t), r.spec.ID); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("Load of what is not there: %v, want not_found", err)
	}
}
