package oci_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/driver/drivertest"
	"github.com/skerry-sandbox/skerry/internal/driver/oci"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// TestProbeRefuses: a runsc that is run without what a sandbox needs is found out, and refused.
func TestProbeRefuses(t *testing.T) {
	program, err := exec.LookPath("runsc")
	if err != nil {
		drivertest.Missing(t, "runsc", err)
	}
	for name, c := range map[string]struct {
		without, with string
		want          string
	}{
		"NoHostSockets": {"--host-uds=all", "--host-uds=none", "--host-uds=all"},
		"OnlyOpen":      {"--host-uds=all", "--host-uds=open", "--host-uds=all"},
		"NoSeccomp":     {"--oci-seccomp", "--oci-seccomp=false", "--oci-seccomp"},
		"NoLimits":      {"--oci-seccomp", "--oci-seccomp --ignore-cgroups", "--ignore-cgroups"},
	} {
		t.Run(name, func(t *testing.T) {
			wrapper := filepath.Join(t.TempDir(), "runsc")
			script := fmt.Sprintf("#!/bin/sh\nfor a; do shift; case $a in %s) set -- \"$@\" %s;; *) set -- \"$@\" \"$a\";; esac; done\nexec %s \"$@\"\n", c.without, c.with, program)
			if err := os.WriteFile(wrapper, []byte(script), 0o755); err != nil {
				t.Fatal(err)
			}
			d, err := oci.New(oci.Options{
				Root: tempRoot(t), Runtimes: map[string]string{"runsc": wrapper},
				CgroupParent: cgroupParent, Probe: drivertest.Program(t),
			})
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close() //nolint:errcheck // a driver of the test
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			caps, err := d.Capabilities(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if problem := caps.RuntimeProblems["runsc"]; len(caps.Runtimes) != 0 || !strings.Contains(problem, c.want) {
				t.Errorf("runtimes %v, problem %q; want it to name %s", caps.Runtimes, problem, c.want)
			}
			if problem := caps.RuntimeProblems["runc"]; !strings.Contains(problem, "not installed") {
				t.Errorf("problem of runc: %q", problem)
			}
			_, err = d.Create(ctx, sandbox.Spec{
				ID: "skerry-0123456789abcdef", Runtime: "runsc", UID: 1_000_000, Daemon: drivertest.Program(t),
				Limits: sandbox.Limits{MemoryBytes: 64 << 20, CPUMillis: 1000, PIDs: 32, OpenFiles: 64, FileBytes: 1 << 20, TmpBytes: 1 << 20, DiskBytes: 1},
			})
			if sandbox.KindOf(err) != sandbox.NotSupported || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Create: %v, want not_supported and the reason", err)
			}
		})
	}
}

// TestOneRuntimeThatFailsIsNoReasonToStop: a runtime that does not tell what runs cannot be used. The others can.
func TestOneRuntimeThatFailsIsNoReasonToStop(t *testing.T) {
	runc, err := exec.LookPath("runc")
	if err != nil {
		drivertest.Missing(t, "runc", err)
	}
	silent := filepath.Join(t.TempDir(), "runsc")
	const script = "#!/bin/sh\nfor a; do shift; case $a in list) exit 1;; --platform*|--host-uds*|--network*|--oci-seccomp|--overlay2*) ;; *) set -- \"$@\" \"$a\";; esac; done\nexec runc \"$@\"\n"
	if err := os.WriteFile(silent, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	d, err := oci.New(oci.Options{
		Root: tempRoot(t), Runtimes: map[string]string{"runc": runc, "runsc": silent}, CgroupParent: cgroupParent, Probe: drivertest.Program(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close() //nolint:errcheck // a driver of the test
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	caps, err := d.Capabilities(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if problem := caps.RuntimeProblems["runsc"]; problem == "" || len(caps.Runtimes) != 1 || caps.Runtimes[0] != "runc" {
		t.Errorf("runtimes %v, problem of runsc %q", caps.Runtimes, problem)
	}
}
