package remote

import (
	"syscall"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/driver/drivertest"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// TestConformance is the suite of all drivers, against a real server of our own that serves E2B's API.
func TestConformance(t *testing.T) {
	if testing.Short() {
		t.Skip("without -short: a service of sandboxes has another server below it, whose driver passes the suite")
	}
	b := newBed(t)
	drivertest.Run(t, drivertest.Harness{
		New: b.newDriver, Runtime: "runc", Image: "nest", UnknownImage: "no-such-template", Inside: b.inside, ReportWithin: 10 * time.Second,
		Kill: func(t testing.TB, id sandbox.ID) { must(t, syscall.Kill(b.pid(t, id), syscall.SIGKILL)) },
		PID:  b.pid,
		Cut:  func(t testing.TB, id sandbox.ID, broken bool) { b.way.set(b.thread(t, id), broken) },
	})
}
