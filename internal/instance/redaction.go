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
	redactor *redact.Secrets   // of seen and of, when known
	given    *redact.Secrets   // of seen, when known
	of       map[string]string // the environment that redactor is for
	known    bool
}

// maxSeen bounds the values that a sandbox's execs got by name and that are hidden in later ones, in bytes.
const maxSeen = redact.MaxTotal / 2

// Hiding returns what hides the secrets of an exec. output hides the values of its own environment and of the
// sandbox's, and the ones that execs of the sandbox got by name, of which named are the newest. given hides only
// the latter: a caller who chooses what the audit log hides could hide what it runs. Only a new value makes them
// anew.
func (x *redaction) Hiding(common, env, named map[string]string) (output, given *redact.Secrets, err error) {
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
		if output, err = redact.Env(x.seen, common); err != nil {
			return nil, nil, err
		}
		if given, err = redact.New(x.seen...); err != nil {
			return nil, nil, err
		}
		x.redactor, x.given, x.of, x.known = output, given, common, true
	}
	if len(env) == 0 {
		return x.redactor, x.given, nil
	}
	output, err = redact.Env(x.seen, common, env)
	return output, x.given, err
}
