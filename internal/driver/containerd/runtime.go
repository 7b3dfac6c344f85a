package containerd

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/typeurl/v2"

	"github.com/skerry-sandbox/skerry/internal/driver/engine/hardening"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/ociconfig"
	"github.com/skerry-sandbox/skerry/internal/platform/lockedfile"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// flags go before every command of a runtime. runsc must not get --ignore-cgroups: it would remove
// every limit. --host-uds=all lets the sandbox reach the server's sockets, --oci-seccomp makes runsc
// apply the profile, and --overlay2=none keeps it from making a file for what is written to the root
// file system, which is read-only.
var flags = map[string][]string{
	"runsc": {"--platform=systrap", "--host-uds=all", "--network=none", "--oci-seccomp", "--overlay2=none"},
}

// stateRoot is where the shim's runtimes keep their state: one folder each, because each reads what
// lies in its own. Below /run, so that nothing of it is there after a restart of the host.
var stateRoot = map[string]string{"runc": "/run/containerd/runc", "runsc": "/run/containerd/runsc"}

// ociRuntime is a runtime with its program.
type ociRuntime struct {
	hardening.Runtime
	program string                 // of the host
	info    containers.RuntimeInfo // what containerd is told

	featuresOnce sync.Once
	how          ociconfig.Binding

	// without says why sandboxes have no user namespace of their own; "" when they have. It is written by the
	// probe, and read by who has its answer.
	without string
}

func findRuntimes(root string, programs map[string]string) (map[string]*ociRuntime, error) {
	found := make(map[string]*ociRuntime)
	for _, known := range hardening.Runtimes() {
		program := programs[known.Name]
		if programs == nil {
			program, _ = exec.LookPath(known.Name) //nolint:errcheck // not found is ""
		}
		if program == "" {
			continue
		}
		program, err := filepath.Abs(program)
		if err != nil {
			return nil, err
		}
		binary, err := withFlags(filepath.Join(root, known.Name), program, flags[known.Name])
		if err != nil {
			return nil, fmt.Errorf("runtime %s: %w", known.Name, err)
		}
		shimOptions, err := typeurl.MarshalAny(&options.Options{BinaryName: binary, Root: stateRoot[known.Name]})
		if err != nil {
			return nil, fmt.Errorf("runtime %s: %w", known.Name, err)
		}
		found[known.Name] = &ociRuntime{
			Runtime: known,
			program: program,
			info:    containers.RuntimeInfo{Name: shim, Options: shimOptions},
		}
	}
	return found, nil
}

// withFlags returns a program that runs another one with flags before all other arguments: a script in
// file, or the program itself when there are no flags. Shims of sandboxes that run use the same file.
func withFlags(file, program string, flags []string) (string, error) {
	if len(flags) == 0 {
		return program, nil
	}
	quoted := "'" + strings.ReplaceAll(program, "'", `'\''`) + "'"
	script := fmt.Appendf(nil, "#!/bin/sh\nexec %s %s \"$@\"\n", quoted, strings.Join(flags, " "))
	if have, err := os.ReadFile(file); err == nil && bytes.Equal(have, script) {
		return file, nil
	}
	// Renamed into place: a shim may run it at any moment.
	return file, lockedfile.Swap(file, script, 0o755)
}

// binding tells how the runtime can bind a folder with what is mounted below it.
func (r *ociRuntime) binding(ctx context.Context) ociconfig.Binding {
	r.featuresOnce.Do(func() { r.how = ociconfig.BindingOf(ctx, r.Runtime, r.program) })
	return r.how
}

// runtime returns the named runtime if it is known and has a program, whether or not it was probed.
func (d *Driver) runtime(name string) (*ociRuntime, error) {
	if rt := d.runtimes[name]; rt != nil {
		return rt, nil
	}
	if _, err := hardening.FindRuntime(name); err != nil {
		return nil, err
	}
	return nil, sandbox.Errorf(sandbox.NotSupported, "runtime %q is not installed on this host", name)
}
