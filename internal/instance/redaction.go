package instance

import (
	"reflect"
	"slices"
	"sync"

	"github.com/skerry-sandbox/skerry/internal/platform/redact"
)

// redaction hides the secrets of an instance's execs.
type redaction struct {
	mu       sync.Mutex
	seen     []string          // values that execs got by name, the newest last
	redactor *redact.Secrets   // of seen and of, when known; nil: they are too large
	refused  error             // why redactor is nil
	given    *redact.Secrets   // of seen, when known
	of       map[string]string // the environment that redactor is for
	known    bool
}

// maxSeen bounds the values that a sandbox's execs got by name and that are hidden in later ones, in bytes.
const maxSeen = redact.MaxTotal / 2

// Hidden is what hides the secrets of an exec. A nil redactor hides nothing.
type Hidden struct {
	// Output is for what the caller sees of the exec: Given, or All when the caller asked for it.
	Output *redact.Secrets
	// Given hides the values that execs of the sandbox got by name, of which those of this exec are the newest.
	Given *redact.Secrets
	// All also hides the values of the exec's environment and of the sandbox's. A caller who chooses what the audit
	// log hides could hide what it runs, so there it is for the environment alone.
	All *redact.Secrets
	// TooLarge: the values are more than can be looked for, so All is only Given.
	TooLarge bool
}

// Hiding returns what hides the secrets of an exec. With all, its output hides the values of its own environment and of
// the sandbox's, too. Values that are too large together to be looked for are refused then, and else only named is
// hidden. Only a new value makes the redactors anew.
func (x *redaction) Hiding(common, env, named map[string]string, all bool) (Hidden, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, v := range named {
		if !slices.Contains(x.seen, v) {
			x.seen, x.known = append(x.seen, v), false
		}
	}
	for total, i := 0, len(x.seen)-1; i >= 0; i-- {
		if total += len(x.seen[i]); total > maxSeen {
			x.seen = x.seen[i+1:]
			break
		}
	}
	// The same map is the same environment: it is replaced, never changed, and kept here so that its address is.
	if !x.known || reflect.ValueOf(common).Pointer() != reflect.ValueOf(x.of).Pointer() {
		given, err := redact.New(x.seen...)
		if err != nil {
			return Hidden{}, err
		}
		x.redactor, x.refused = redact.Env(x.seen, common)
		x.given, x.of, x.known = given, common, true
	}
	h, err := Hidden{Output: x.given, Given: x.given, All: x.redactor}, x.refused
	if len(env) > 0 {
		h.All, err = redact.Env(x.seen, common, env)
	}
	if all {
		h.Output = h.All
		return h, err
	}
	if err != nil {
		h.All, h.TooLarge = x.given, true
	}
	return h, nil
}
