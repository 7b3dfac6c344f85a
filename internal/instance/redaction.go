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
	of       map[string]string // the environment that redactor is for
	known    bool
}

// maxSeen bounds the values that a sandbox's execs got by name and that are hidden in later ones, in bytes.
const maxSeen = redact.MaxTotal / 2

// Hiding returns what hides the secrets of an exec: the values of its own environment and of the sandbox's,
// and the ones that its execs got by name, of which named are the newest. Only a new value makes it anew.
func (x *redaction) Hiding(common, env, named map[string]string) (*redact.Secrets, error) {
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
	if len(env) > 0 {
		return redact.Env(x.seen, common, env)
	}
	// The same map is the same environment: it is replaced, never changed, and kept here so that its address is.
	if !x.known || reflect.ValueOf(common).Pointer() != reflect.ValueOf(x.of).Pointer() {
		hide, err := redact.Env(x.seen, common)
		if err != nil {
			return nil, err
		}
		x.redactor, x.of, x.known = hide, common, true
	}
	return x.redactor, nil
}
