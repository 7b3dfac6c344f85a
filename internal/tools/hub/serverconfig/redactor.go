package serverconfig

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"

	"github.com/skerry-sandbox/skerry/internal/platform/redact"
)

// Redactor takes secrets out of texts: those of the configuration, and the tokens of logins. Errors and
// logs are rid of everything that the configuration put in, also of folders of this host; what a server answers
// only of what is surely a secret, in all its forms, because the rest may be what was asked for.
type Redactor struct {
	mu      sync.RWMutex
	fixed   []string // surely secrets, of the configuration
	tokens  []string // of a login, the newest last
	guessed []string
	words   *strings.Replacer
	forms   *redact.Secrets
}

// maxSecrets bounds the tokens that are remembered: the oldest has ended long ago.
const maxSecrets = 256

// NewRedactor hides secrets everywhere, and guessed values in errors and logs. An error is that there is too much of it.
func NewRedactor(secrets, guessed []string) (*Redactor, error) {
	r := &Redactor{fixed: secrets, guessed: guessed}
	return r, r.build()
}

// build makes what hides: of the tokens as many of the newest as there is room for.
func (r *Redactor) build() error {
	forms, err := redact.New(r.fixed...)
	if err != nil {
		return err
	}
	values, room := slices.Clone(r.fixed), redact.MaxTotal
	for _, v := range r.fixed {
		room -= len(v)
	}
	for _, t := range slices.Backward(r.tokens) {
		if room -= len(t); room >= 0 {
			values = append(values, t)
		}
	}
	if len(values) > len(r.fixed) {
		if with, err := redact.New(values...); err == nil {
			forms = with
		}
	}
	var pairs []string
	for _, s := range longestFirst(slices.Concat(r.fixed, r.tokens, r.guessed)) {
		pairs = append(pairs, s, Mask)
	}
	r.words, r.forms = strings.NewReplacer(pairs...), forms
	return nil
}

// Replace returns s, which is for an error or the log, without the secrets.
func (r *Redactor) Replace(s string) string {
	if r == nil {
		return s
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.forms.String(r.words.Replace(s))
}

// JSON returns what a server says, a JSON text, without what is surely a secret.
func (r *Redactor) JSON(text json.RawMessage) json.RawMessage {
	if r == nil {
		return text
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.forms.JSON(text)
}

// String is JSON for a plain text.
func (r *Redactor) String(text string) string {
	if r == nil {
		return text
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.forms.String(text)
}

// Hide adds tokens of a login.
func (r *Redactor) Hide(tokens ...string) {
	known := func(s string) bool {
		return len(s) < minSecret || slices.Contains(r.tokens, s) || slices.Contains(r.fixed, s)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	fresh := slices.DeleteFunc(slices.Clone(tokens), known)
	if len(fresh) == 0 {
		return
	}
	r.tokens = append(slices.Clone(r.tokens), fresh...)
	if over := len(r.tokens) - maxSecrets; over > 0 {
		r.tokens = r.tokens[over:]
	}
	_ = r.build() // what is fixed has fitted before
}
