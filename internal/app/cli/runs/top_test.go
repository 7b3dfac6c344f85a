package runs

import (
	"strings"
	"testing"
	"time"

	sdk "github.com/skerry-sandbox/skerry/sdk/go"
)

// TestTop: what was computed between two looks comes first, as a share of a core, and a sandbox that nobody measures has its
// processes all the same.
func TestTop(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	metrics := func(at time.Time, cpu int64) *sdk.SandboxMetrics {
		return &sdk.SandboxMetrics{Disk: &sdk.SandboxDisk{Bytes: 5 << 20, LimitBytes: 1 << 30}, At: at, CPUMillis: cpu, CPULimitMillis: 1500, MemoryBytes: 64 << 20, MemoryLimitBytes: 1 << 30, PIDs: 3, PIDsLimit: 0}
	}
	before := usage{Metrics: metrics(at, 1000), at: at, Processes: []sdk.Process{{PID: 7, CPUMillis: 900}, {PID: 8, CPUMillis: 100}}}
	now := usage{Metrics: metrics(at.Add(2*time.Second), 2500), at: at.Add(2 * time.Second), Processes: []sdk.Process{
		{PID: 7, CPUMillis: 900, ExecID: "e1", Command: "idle"}, {PID: 8, CPUMillis: 1600, ExecID: "e2", Running: true, Command: "busy \x1b[2J"},
	}}
	var out strings.Builder
	if err := printTop(&out, before, now, true); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	if lines[0] != "CPU 0.75 of 1.5 cores   memory 64 of 1024 MiB   processes 3 of any number of   files 5 of 1024 MiB" {
		t.Error(lines[0])
	}
	if !strings.HasPrefix(lines[3], "8    75 ") || !strings.Contains(lines[4], "e1 (ended)") || strings.Contains(out.String(), "\x1b") {
		t.Error(out.String())
	}
	now.Metrics = nil
	out.Reset()
	if err := printTop(&out, before, now, true); err != nil || !strings.Contains(out.String(), "does not measure") || !strings.Contains(out.String(), "busy") {
		t.Error(out.String(), err)
	}
	for range 30 {
		now.Processes = append(now.Processes, sdk.Process{PID: 9})
	}
	out.Reset()
	if err := printTop(&out, before, now, false); err != nil || !strings.HasSuffix(out.String(), "… and 12 more\n") {
		t.Error(out.String(), err)
	}
}
