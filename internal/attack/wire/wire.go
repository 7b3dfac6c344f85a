// Package wire is what the attack suite and its program in the sandbox say to each other.
package wire

import (
	"fmt"
	"strings"
)

// Outcome is how one attempt ended: one line of JSON on the program's output.
type Outcome struct {
	Attack string `json:"attack"`
	// Refused is the name of the error ("EPERM") or a reason; "" means that the attack succeeded.
	Refused string `json:"refused,omitempty"`
	// Evidence says what a successful attack got, or which step was refused.
	Evidence string `json:"evidence,omitempty"`
	// Broken says why the attempt could not be made at all: that is neither.
	Broken string `json:"broken,omitempty"`
}

// Facts are what an attacker is told, so that it need not guess: paths, ports, names, numbers of what it is to reach.
type Facts map[string]string

// Args returns f as arguments, NAME=VALUE.
func (f Facts) Args() []string {
	out := make([]string, 0, len(f))
	for k, v := range f {
		out = append(out, k+"="+v)
	}
	return out
}

// ParseFacts parses what Args returned.
func ParseFacts(args []string) (Facts, error) {
	f := make(Facts, len(args))
	for _, a := range args {
		k, v, ok := strings.Cut(a, "=")
		if !ok {
			return nil, fmt.Errorf("argument %q: want NAME=VALUE", a)
		}
		f[k] = v
	}
	return f, nil
}
