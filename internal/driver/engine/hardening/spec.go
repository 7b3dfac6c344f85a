package hardening

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Least values of limits: below them no sandbox starts, and the engine's own message would say so
// only after a lot of work.
const (
	MinMemoryBytes = 16 << 20
	MinCPUMillis   = 10 // the kernel's shortest quota, 1 ms, in a period of 100 ms
	MinPIDs        = 8  // a Go program as PID 1 has that many threads
	MinOpenFiles   = 32
	MinTmpBytes    = 64 << 10
)

// Bounds of what a driver stores for a sandbox.
const (
	MaxLabels     = 64
	MaxLabelBytes = 16 << 10 // all names and values together
	MaxMounts     = 512
	MaxUID        = 1<<32 - 3 // the two last ones mean "no change" and "overflow" to the kernel
)

// DefaultHostname is the name of a sandbox whose Spec has none.
const DefaultHostname = "sandbox"

var (
	idPattern       = regexp.MustCompile(`^skerry-[0-9a-f]{16}$`)
	hostnamePattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
)

// mountRoots are the only places where a Spec may put a mount: everything else belongs to the image
// or to the hardening, and a mount there could undo it.
var mountRoots = []string{"/mnt", sandbox.RunDir, "/srv", sandbox.HomeDir}

// CheckID reports, as an Invalid error, why id cannot name a sandbox. Ids become file and container
// names, so every method of a driver checks them first.
func CheckID(id sandbox.ID) error {
	if !idPattern.MatchString(string(id)) {
		return sandbox.Errorf(sandbox.Invalid, "sandbox id %.64q: want skerry- and 16 hex digits", string(id))
	}
	return nil
}

// CheckSpec reports the first rule that spec breaks, as an Invalid error. It looks at the Spec only,
// not at the host.
func CheckSpec(spec sandbox.Spec) error {
	if err := CheckID(spec.ID); err != nil {
		return err
	}
	if spec.UID <= 0 || spec.UID > MaxUID {
		return sandbox.Errorf(sandbox.Invalid, "uid %d: a sandbox never runs as root", spec.UID)
	}
	if !path.IsAbs(spec.Daemon) {
		return sandbox.Errorf(sandbox.Invalid, "the sandbox has no daemon to run")
	}
	if spec.Hostname != "" && !hostnamePattern.MatchString(spec.Hostname) {
		return sandbox.Errorf(sandbox.Invalid, "hostname %.80q: use 1 to 63 of a-z 0-9 -", spec.Hostname)
	}
	for _, arg := range spec.Args {
		if strings.ContainsRune(arg, 0) {
			return sandbox.Errorf(sandbox.Invalid, "an argument of the daemon holds a NUL byte")
		}
	}
	for i, point := range spec.Loosen {
		if err := sandbox.CheckLoosening(point, spec.Runtime); err != nil {
			return err
		}
		if slices.Contains(spec.Loosen[:i], point) {
			return sandbox.Errorf(sandbox.Invalid, "%s is loosened twice", point)
		}
	}
	if err := checkLimits(spec.Limits); err != nil {
		return err
	}
	if err := checkLabels(spec.Labels); err != nil {
		return err
	}
	return checkMounts(spec.Mounts)
}

func checkLimits(l sandbox.Limits) error {
	for _, c := range []struct {
		name       string
		value, min int64
	}{
		{"memory_bytes", l.MemoryBytes, MinMemoryBytes},
		{"cpu_millis", l.CPUMillis, MinCPUMillis},
		{"pids", l.PIDs, MinPIDs},
		{"open_files", l.OpenFiles, MinOpenFiles},
		{"file_bytes", l.FileBytes, 1},
		{"tmp_bytes", l.TmpBytes, MinTmpBytes},
		{"disk_bytes", l.DiskBytes, 1},
	} {
		if c.value < c.min {
			return sandbox.Errorf(sandbox.Invalid, "limit %s is %d: at least %d is needed, there is no unlimited sandbox", c.name, c.value, c.min)
		}
	}
	return nil
}

func checkLabels(labels map[string]string) error {
	if len(labels) > MaxLabels {
		return sandbox.Errorf(sandbox.Invalid, "%d labels: at most %d", len(labels), MaxLabels)
	}
	total := 0
	for k, v := range labels {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.ContainsRune(v, 0) {
			return sandbox.Errorf(sandbox.Invalid, "label %.64q: a name is not empty and without =, and nothing holds NUL", k)
		}
		total += len(k) + len(v)
	}
	if total > MaxLabelBytes {
		return sandbox.Errorf(sandbox.Invalid, "labels of %d bytes: at most %d", total, MaxLabelBytes)
	}
	return nil
}

func checkMounts(mounts []sandbox.Mount) error {
	if len(mounts) > MaxMounts {
		return sandbox.Errorf(sandbox.Invalid, "%d mounts: at most %d", len(mounts), MaxMounts)
	}
	for _, m := range mounts {
		if path.Clean(m.Target) != m.Target || strings.ContainsRune(m.Target, 0) || !mayMountAt(m.Target) {
			return sandbox.Errorf(sandbox.Invalid, "mount target %.200q: want a clean path under %s", m.Target, strings.Join(mountRoots, ", "))
		}
		if !path.IsAbs(m.Source) || path.Clean(m.Source) == "/" || strings.ContainsRune(m.Source, 0) {
			return sandbox.Errorf(sandbox.Invalid, "mount at %.200q: its source is not a usable host path", m.Target)
		}
	}
	return nil
}

func mayMountAt(target string) bool {
	for _, root := range mountRoots {
		if strings.HasPrefix(target, root+"/") || (target == root && root == sandbox.RunDir) {
			return true
		}
	}
	return false
}
