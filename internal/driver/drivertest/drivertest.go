// Package drivertest is the one suite that every driver passes on every runtime that it declares. It asserts
// the contract of package driver from outside. From inside it asserts the limits and the hardening of design
// §4, with a program of its own as PID 1 (folder probe).
//
// A driver's test calls Main from TestMain and Run with a Harness for each runtime:
//
//	func TestMain(m *testing.M) { drivertest.Main(m) }
//
//	func TestConformance(t *testing.T) {
//		drivertest.Run(t, drivertest.Harness{New: …, Runtime: "runc"})
//	}
//
// What a driver cannot do it says in its Capabilities; only that makes a test skip, and the skip names
// the capability.
package drivertest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/driver/drivertest/probewire"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// callTimeout bounds every call of a driver: far beyond what one takes on a busy machine.
const callTimeout = 60 * time.Second

// Harness is how the suite gets at one driver and one of its runtimes.
type Harness struct {
	// New makes a driver. Each call is a server that has just been started: all drivers see the same
	// sandboxes. The suite closes them.
	New func(t testing.TB) driver.Driver
	// Runtime to test; the driver must declare it usable.
	Runtime string
	// Image for the sandboxes.
	Image string
	// UnknownImage is the name of a missing image.
	UnknownImage string
	// Kill ends a sandbox from outside, as a crash would, without the driver.
	Kill func(t testing.TB, id sandbox.ID)
	// PID returns the host's number of a process of the sandbox. Needed when the driver is Isolated.
	PID func(t testing.TB, id sandbox.ID) int
	// Inside does something in a sandbox that runs, without the driver and as its uid: the program of the suite does it as
	// "DaemonPath child <request in JSON>". Needed when the driver is a driver.Remote.
	Inside func(t testing.TB, id sandbox.ID, req probewire.Request) probewire.Response
	// Cut breaks the connections between servers and a sandbox, and lets no new ones be, or ends that. nil: it cannot
	// be done here.
	Cut func(t testing.TB, id sandbox.ID, broken bool)
	// ReportWithin is how soon the end of a killed sandbox is told; 0 = the second of the contract. Longer only
	// where the engine itself notices later.
	ReportWithin time.Duration
	// ExtraCPUMillis is what a sandbox may compute beyond its limit, as what its engine starts beside it shares one with it.
	ExtraCPUMillis int64
	// Anchored: the sandbox does not see the sockets of the server, and PID 1 alone reaches them (package anchor). The
	// suite's program passes connections to sandbox.BridgePort on to sandbox.ControlSocket.
	Anchored bool
}

// Run runs the suite.
func Run(t *testing.T, h Harness) {
	s := newSuite(t, h)
	for _, p := range s.parts() {
		t.Run(p.name, func(t *testing.T) {
			t.Cleanup(func() { s.outcome(p.name, t) })
			p.test(t)
		})
	}
	s.checkTable(t)
}

// part is a part of the suite, and a row of the table in docs/drivers.md.
type part struct {
	name string
	test func(*testing.T)
}

func (s *suite) parts() []part {
	return []part{
		{"Lifecycle", s.lifecycle},
		{"Idempotence", s.idempotence},
		{"Concurrency", s.concurrency},
		{"Restart", s.restart},
		{"List", s.list},
		{"Watch", s.watch},
		{"FailedCreate", s.failedCreate},
		{"Refused", s.refused},
		{"Pause", s.pause},
		{"Weigh", s.weigh},
		{"Load", s.load},
		{"Limits", s.limits},
		{"Hardening", s.hardening},
		{"Loosened", s.loosened},
		{"MountsBelow", s.mountsBelow},
		{"HostPrograms", s.hostPrograms},
		{"Remote", s.remote},
		{"Volumes", s.volumes},
		{"NothingLeft", s.nothingLeft},
	}
}

// Main runs the tests of a package, removes what the suite built, and fails on goroutines that a
// driver left behind.
func Main(m *testing.M) {
	code := m.Run()
	if err := removeProgram(); err != nil {
		fmt.Fprintln(os.Stderr, "drivertest:", err)
		code = 1
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, "drivertest:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// Missing ends a test whose engine or runtime is not on this machine: a skip on a developer's, a
// failure in CI, where everything must be there.
func Missing(t testing.TB, what string, reason any) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf("%s is missing: %v", what, reason)
	}
	t.Skipf("%s is missing: %v", what, reason)
}

// NoFiles fails the test when files match the patterns of filepath.Match: a sandbox left them. crun keeps what it compiled of
// seccomp profiles in .cache, for all sandboxes.
func NoFiles(t testing.TB, patterns ...string) {
	t.Helper()
	for _, pattern := range patterns {
		left, err := filepath.Glob(pattern)
		left = slices.DeleteFunc(left, func(path string) bool { return filepath.Base(path) == ".cache" && strings.Contains(path, "/runc/") })
		if len(left) > 0 || err != nil {
			t.Errorf("left over: %v, %v", left, err)
		}
	}
}

// Runtimes are those with which a driver runs the suite: all of them, and with -short the first one.
func Runtimes(all ...string) []string {
	if testing.Short() {
		return all[:1]
	}
	return all
}

// suite is one run.
type suite struct {
	h       Harness
	d       driver.Driver
	caps    driver.Capabilities
	program string
	run     string // value of runLabel on all sandboxes of this run

	outcomes map[string]string // of the parts that ran, as the table says them
}

// runLabel tells the sandboxes of one run from all others.
const runLabel = "io.skerry.drivertest"

func newSuite(t *testing.T, h Harness) *suite {
	t.Helper()
	s := &suite{h: h, d: h.New(t), run: newID().hex(), program: Program(t)}
	t.Cleanup(func() { _ = s.d.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute) // it probes each runtime, which a slow machine takes a minute for
	defer cancel()
	caps, err := s.d.Capabilities(ctx)
	if err != nil {
		t.Fatalf("Capabilities: %v", err)
	}
	s.caps = caps
	if slices.Contains(caps.Runtimes, h.Runtime) {
		return s
	}
	t.Fatalf("runtime %q is not usable: %s", h.Runtime, caps.RuntimeProblems[h.Runtime])
	return nil
}

// need skips a test that asks for what the driver declares it lacks.
func need(t *testing.T, have bool, capability string) {
	t.Helper()
	if !have {
		t.Skipf("capability %s: the driver declares that it lacks it", capability)
	}
}

// keeps reports whether the driver promises a point of the hardening that depends on its engine.
func (s *suite) keeps(t testing.TB, p driver.Promise) bool {
	t.Helper()
	why, unkept := s.caps.Unkept[p]
	if unkept {
		t.Logf("capability Unkept: %s: %s", p, why)
	}
	return !unkept
}

// oomEndsSandbox reports whether the runtime declares that running out of memory ends everything.
func (s *suite) oomEndsSandbox() bool {
	return slices.Contains(s.caps.OOMEndsSandbox, s.h.Runtime)
}

// callCtx returns the context of one call.
func callCtx(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	t.Cleanup(cancel)
	return ctx
}

// nothingLeft asserts that the suite's own clean-up worked.
func (s *suite) nothingLeft(t *testing.T) {
	left, err := s.d.List(callCtx(t), map[string]string{runLabel: s.run})
	if err != nil {
		t.Fatalf("List: %v", err)
	}
	if len(left) != 0 {
		t.Errorf("sandboxes left over: %+v", left)
	}
}
