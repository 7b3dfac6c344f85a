package instance

import (
	"strings"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Loosen takes back, in the Spec of a sandbox, what its template does not want of the hardening, and has a label say
// so: a server that adopts the sandbox tells what is, not what the template says by then.
func Loosen(spec *sandbox.Spec, points []sandbox.Loosening) {
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

// LoosenedOf reads the label.
func LoosenedOf(labels map[string]string) []sandbox.Loosening {
	var points []sandbox.Loosening
	for name := range strings.SplitSeq(labels[sandbox.LabelLoosened], ",") {
		if name != "" {
			points = append(points, sandbox.Loosening(name))
		}
	}
	return points
}

// RecordLoosened puts into a record of a sandbox's start what the sandbox lacks of the hardening.
func RecordLoosened(rec *audit.Record, points []sandbox.Loosening) {
	if len(points) > 0 {
		rec.Args, rec.ArgsHash = audit.Args(map[string][]sandbox.Loosening{"loosened": points})
	}
}
