package containerd

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/typeurl/v2"

	"github.com/skerry-sandbox/skerry/internal/driver/engine/runtimes"
	"github.com/skerry-sandbox/skerry/internal/platform/lockedfile"
)

// stateRoot is where the shim's runtimes keep their state: one folder each, because each reads what
// lies in its own. Below /run, so that nothing of it is there after a restart of the host.
var stateRoot = map[string]string{"runc": "/run/containerd/runc", "runsc": "/run/containerd/runsc"}

// ociRuntime is a runtime with its program, and what containerd is told of it.
type ociRuntime struct {
	*runtimes.Program
	info containers.RuntimeInfo
}

func findRuntimes(root string, programs map[string]string) (runtimes.Set[*ociRuntime], error) {
	found := make(runtimes.Set[*ociRuntime])
	for _, p := range runtimes.Find(programs) {
		var err error
		if p.Path, err = filepath.Abs(p.Path); err != nil {
			return nil, err
		}
		binary, err := withFlags(filepath.Join(root, p.Name), p.Path, p.Flags)
		if err != nil {
			return nil, fmt.Errorf("runtime %s: %w", p.Name, err)
		}
		shimOptions, err := typeurl.MarshalAny(&options.Options{BinaryName: binary, Root: stateRoot[p.Name]})
		if err != nil {
			return nil, fmt.Errorf("runtime %s: %w", p.Name, err)
		}
		found[p.Name] = &ociRuntime{p, containers.RuntimeInfo{Name: shim, Options: shimOptions}}
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
