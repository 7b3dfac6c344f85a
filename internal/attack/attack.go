package attack

import (
	"slices"
	"strings"
)

// Drivers and Runtimes are those on which the attacks from inside are made, each with each.
var (
	Drivers  = []string{"docker", "oci", "containerd", InPods}
	Runtimes = []string{"runc", "runsc"}
)

// InPods is the driver whose sandboxes are pods of a cluster.
const InPods = "kubernetes"

// ControlPlace is where results of controls stand. Those of attacks stand under "driver/runtime".
const ControlPlace = "control"

// Succeeds is the result of a control that proves its guards: without them the attack succeeds.
const Succeeds = "succeeds"

// Lacking begins the result of a control on a kernel that lacks what the attack uses: then there is no
// proof that a guard holds it, and the attack does not count.
const Lacking = "no such thing in this kernel"

// Attack is one named attempt from inside a sandbox.
type Attack struct {
	Name  string // lower case with dashes, unique
	Class string // at most MaxOfClass of a class count
	What  string // what hostile code does, a sentence without its full stop
	// Refused lists the refusals that count: names of errors ("EPERM"), or reasons that the attempt states.
	Refused []string
	// OwnKernel lists further accepted refusals on a kernel in user space (gVisor).
	OwnKernel []string
	// Pod lists further accepted refusals in a pod, each with what holds the attack off there.
	Pod map[string]string
	// Guards is what holds the attack off, and what its control takes away: any one of them is enough.
	Guards []string
	// OnV1 lists those of Guards that hold the attack off only where there is cgroup v1.
	OnV1 []string
	// Absent lists the errors by which a kernel says, in the control, that it lacks what the attack uses.
	Absent []string
}

// MaxOfClass bounds how many attacks of a class count: many variants of one idea prove little.
const MaxOfClass = 3

// All returns every attack from inside, in the order of the document.
func All() []Attack {
	return slices.Concat(insideFiles(), insideMounts(), insideProcesses(), insideKernel(), insideNetwork())
}

// Places returns the places where an attack has results, the control last.
func Places() []string {
	var out []string
	for _, d := range Drivers {
		for _, r := range Runtimes {
			out = append(out, d+"/"+r)
		}
	}
	return append(out, ControlPlace)
}

// Accepts reports whether a refusal counts as one of a at a place.
func (a Attack) Accepts(refusal, place string) bool {
	_, pod := a.Pod[refusal]
	return slices.Contains(a.Refused, refusal) || strings.HasSuffix(place, "/runsc") && slices.Contains(a.OwnKernel, refusal) ||
		strings.HasPrefix(place, InPods+"/") && pod
}

// Result is how the document shows a refusal: in a pod with what holds the attack off, when that is another guard than elsewhere.
func (a Attack) Result(refusal, place string) string {
	if guard := a.Pod[refusal]; guard != "" && strings.HasPrefix(place, InPods+"/") {
		return refusal + shownBy + guard
	}
	return refusal
}

const shownBy = ": "

// refusalOf returns what Result was made of.
func refusalOf(result string) string {
	refusal, _, _ := strings.Cut(result, shownBy)
	return refusal
}
