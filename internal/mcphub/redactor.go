package mcphub

import (
	"slices"
	"strings"
	"sync"
)

// redactor takes secrets out of texts: those of the configuration, and the tokens that a login gave.
type redactor struct {
	mu      sync.RWMutex
	secrets []string
	words   *strings.Replacer
}

// maxSecrets bounds what is remembered: the oldest token has ended long ago.
const maxSecrets = 256

func newRedactor(secrets []string) *redactor {
	r := &redactor{secrets: secrets}
	r.words = wordsOf(secrets)
	return r
}

func wordsOf(secrets []string) *strings.Replacer {
	var pairs []string
	for _, s := range longestFirst(secrets) {
		pairs = append(pairs, s, mask)
	}
	return strings.NewReplacer(pairs...)
}

// Replace gives s without the secrets.
func (r *redactor) Replace(s string) string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.words.Replace(s)
}

// hide adds secrets.
func (r *redactor) hide(secrets ...string) {
	known := func(s string) bool { return len(s) < minSecret || slices.Contains(r.secrets, s) }
	r.mu.RLock()
	fresh := slices.DeleteFunc(slices.Clone(secrets), known)
	r.mu.RUnlock()
	if len(fresh) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.secrets = append(slices.Clone(r.secrets), fresh...)
	if over := len(r.secrets) - maxSecrets; over > 0 {
		r.secrets = r.secrets[over:]
	}
	r.words = wordsOf(r.secrets)
}
