package orchestrator

import (
	"strings"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// loosen takes back, in the Spec of a sandbox, what its template does not want of the hardening, and has a label say
// so: a server that adopts the sandbox tells what is, not what the template says by then.
func loosen(spec *sandbox.Spec, points []sandbox.Loosening) {
	if len(points) == 0 {
		return
	}
	names := make([]string, len(points))
	for i, point := range points {
		names[i] = string(point)
		if point == sandbox.LoosenPtrace { // sandboxd, too, keeps execs from it
			spec.Args = append(spec.Args, sandbox.LoosenArgument(point))
		}
	}
	spec.Loosen = points
	spec.Labels[sandbox.LabelLoosened] = strings.Join(names, ",")
}

// loosenedOf reads the label.
func loosenedOf(labels map[string]string) []sandbox.Loosening {
	var points []sandbox.Loosening
	for name := range strings.SplitSeq(labels[sandbox.LabelLoosened], ",") {
		if name != "" {
			points = append(points, sandbox.Loosening(name))
		}
	}
	return points
}

// recordLoosened puts into a record of a sandbox's start what the sandbox lacks of the hardening.
func recordLoosened(rec *audit.Record, points []sandbox.Loosening) {
	if len(points) > 0 {
		rec.Args, rec.ArgsHash = audit.Args(map[string][]sandbox.Loosening{"loosened": points})
	}
}
