package drivertest

import (
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/driver/drivertest/probewire"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// opened are the attempts that a loosened point lets through; all others stay refused.
var opened = map[sandbox.Loosening][]string{
	sandbox.LoosenPtrace:     {"personality", "process_vm_readv", "process_vm_writev", "ptrace"},
	sandbox.LoosenNamespaces: {"clone-newuser", "mount-in-own", "setns", "unshare-user"},
	sandbox.LoosenCoreDumps:  {"lower-core-limit"},
	sandbox.LoosenShm:        {},
}

// shmTaken is more than /dev/shm holds, and less than it does with LoosenShm and modestLimits.
const shmTaken = 96 << 20

// loosened: each named point loosens what it names, and nothing else.
func (s *suite) loosened(t *testing.T) {
	need(t, s.caps.Isolated, "Isolated")
	for _, point := range sandbox.Loosenings() {
		t.Run(string(point), func(t *testing.T) {
			change := func(spec *sandbox.Spec) {
				spec.Loosen, spec.Limits.FileBytes = []sandbox.Loosening{point}, 2*shmTaken
			}
			if sandbox.CheckLoosening(point, s.h.Runtime) != nil {
				r := s.rig(t, change)
				_, err := s.d.Create(callCtx(t), r.spec)
				refused(t, err, sandbox.Invalid)
				return
			}
			if len(opened[point]) > 0 && !s.keeps(t, driver.LooseFilter) && point != sandbox.LoosenCoreDumps {
				r := s.rig(t, change)
				_, err := s.d.Create(callCtx(t), r.spec)
				refused(t, err, sandbox.NotSupported)
				return
			}
			s.loosenedPoint(t, s.start(t, change), point)
		})
	}
}

func (s *suite) loosenedPoint(t *testing.T, r *rig, point sandbox.Loosening) {
	own := ownKernel(t, r)
	names := r.ask(t, probewire.Request{Op: probewire.OpSyscalls}).Lines
	want := opened[point]
	if own && point == sandbox.LoosenNamespaces {
		want = append([]string{"clone-newtime"}, want...) // that kernel has none, and takes no notice of the flag
	}
	if let := letThrough(t, r, names, own); !slices.Equal(let, want) {
		t.Errorf("let through: %v, want %v", let, want)
	}
	s.identity(t, r)
	if s.caps.Network == "none" {
		s.network(t, r)
	}
	filled := r.ask(t, probewire.Request{Op: probewire.OpFill, Path: "/dev/shm/fill", N: shmTaken, Child: true})
	if large := filled.N == shmTaken; large != (point == sandbox.LoosenShm) {
		t.Errorf("/dev/shm takes %d bytes, then %q", filled.N, filled.Err)
	}
	dumps := point == sandbox.LoosenCoreDumps
	crash := r.ask(t, probewire.Request{Op: probewire.OpCrash, N: r.spec.Limits.FileBytes, Child: true})
	switch {
	case !dumps && !own && (crash.Signal != int(syscall.SIGABRT) || crash.Core):
		t.Errorf("a crash: %+v, want SIGABRT and no core dump", crash)
	case dumps && crash.Signal != int(syscall.SIGABRT):
		t.Errorf("a crash: %+v, want SIGABRT", crash)
	case dumps && dumpsToFiles(t) && !crash.Core:
		t.Errorf("a crash dumped no core: %+v", crash)
	}
}

// dumpsToFiles reports whether this host puts core dumps into the folder of who crashed, and not into another or
// into a program.
func dumpsToFiles(t *testing.T) bool {
	t.Helper()
	pattern, err := os.ReadFile("/proc/sys/kernel/core_pattern")
	must(t, err)
	return !strings.HasPrefix(string(pattern), "|") && !strings.Contains(string(pattern), "/")
}
