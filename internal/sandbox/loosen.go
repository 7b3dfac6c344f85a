package sandbox

import (
	"slices"
	"strings"
)

// Loosening names one point of the hardening that a template takes back, because programs need it that are
// worth it. There is none for privileges, the host's network or root: no setting grants a sandbox those.
type Loosening string

// The points that can be loosened.
const (
	// LoosenPtrace lets a program trace and change others of its sandbox, and switch off the randomising of its
	// addresses: what gdb, strace, py-spy and leak sanitizers need. An exec can then reach into its neighbours.
	LoosenPtrace Loosening = "seccomp.ptrace"
	// LoosenNamespaces lets a program make namespaces, and mount in its own: what Chromium's sandbox and bubblewrap
	// need. It opens the part of the kernel in which most ways out of containers were found.
	LoosenNamespaces Loosening = "seccomp.namespaces"
	// LoosenCoreDumps lets a crash dump core, up to the largest file. Where the host's core_pattern names a program,
	// that program of the host reads it. Not with runsc, whose kernel makes none.
	LoosenCoreDumps Loosening = "core_dumps"
	// LoosenShm lets /dev/shm hold half of the memory limit in place of 64 MiB: what browsers, databases and
	// PyTorch's loaders need. It counts against the memory limit as ever.
	LoosenShm Loosening = "large_shm"
)

// Loosenings are all points, sorted.
func Loosenings() []Loosening {
	return []Loosening{LoosenCoreDumps, LoosenShm, LoosenNamespaces, LoosenPtrace}
}

// CheckLoosening reports, as an Invalid error, why a point cannot be loosened on a runtime.
func CheckLoosening(point Loosening, runtime string) error {
	if !slices.Contains(Loosenings(), point) {
		names := make([]string, 0, len(Loosenings()))
		for _, l := range Loosenings() {
			names = append(names, string(l))
		}
		return Errorf(Invalid, "%.40q cannot be loosened: want one of %s", string(point), strings.Join(names, ", "))
	}
	if point == LoosenCoreDumps && runtime == "runsc" {
		return Errorf(Invalid, "%s: the kernel of runsc makes no core dumps", point)
	}
	return nil
}

// LoosenArgument is the argument with which skerry-sandboxd is told of a loosened point.
func LoosenArgument(point Loosening) string { return "loosen=" + string(point) }
