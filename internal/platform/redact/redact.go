// Package redact hides secret values in text that goes out: whole texts, and streams that come in pieces
// of any size.
//
// A value is hidden as it is, and line by line when it has many lines. It is also hidden as JSON, a URL,
// base64 or, up to maxHex bytes, hexadecimal digits would write it, anywhere in a larger base64 text. That
// is for accidents: a tool that prints its configuration, a request that is logged. Code that wants to tell
// a secret can always write it backwards.
package redact

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

const (
	// MinLength is the length in bytes from which on a value is taken for a secret: "1", "true" and "debug"
	// are not, and hiding them would garble every output.
	MinLength = 8
	// MaxTotal bounds all values together, in bytes: what finds them takes up to 560 bytes of memory for
	// each of theirs.
	MaxTotal = 64 << 10
	// maxHex is the length up to which a value is looked for as hexadecimal digits: tokens and keys are
	// dumped so, certificates are not, and each form takes memory.
	maxHex = 512
	// Marker stands for what was hidden. Neighbouring secrets become one.
	Marker = "[redacted]"
)

// Secrets is a set of values to hide. A nil one hides nothing and costs nothing. It does not change: any
// number of goroutines may use it.
type Secrets struct {
	nodes  []node
	first  [256]int32 // children of the root, which most bytes of an output ask for
	values []string   // all that is looked for
}

// New takes the values to hide; those shorter than MinLength are ignored, and nil is for none. An error
// is Invalid: the values are longer than MaxTotal together.
func New(values ...string) (*Secrets, error) {
	total := 0
	var s *Secrets
	for _, v := range values {
		if len(v) < MinLength {
			continue
		}
		if total += len(v); total > MaxTotal {
			return nil, sandbox.Errorf(sandbox.Invalid,
				"the values that are to be kept out of the output (those of %d bytes and more) have more than %d bytes together; give what is larger by stdin or a file", MinLength, MaxTotal)
		}
		if s == nil {
			s = &Secrets{nodes: make([]node, 1)}
		}
		for _, form := range forms(v) {
			s.add(form)
		}
	}
	s.link()
	return s, nil
}

// IsPath reports whether a value is a path below /mnt/, where every sandbox has its files. It tells nothing, and
// hiding it would garble each list of them.
func IsPath(value string) bool { return strings.HasPrefix(value, "/mnt/") }

// Env is New for the values of environments, but for paths, and for more of them.
func Env(more []string, envs ...map[string]string) (*Secrets, error) {
	var values []string
	for _, env := range envs {
		for _, v := range env {
			if !IsPath(v) {
				values = append(values, v)
			}
		}
	}
	return New(append(values, more...)...)
}

// forms are the ways in which a value is looked for.
func forms(v string) []string {
	all := []string{v}
	if quoted, err := json.Marshal(v); err == nil {
		all = append(all, string(quoted[1:len(quoted)-1]))
	}
	all = append(all, strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\t", `\t`, "\r", `\r`).Replace(v)) // JSON as others write it: no <
	all = append(all, url.QueryEscape(v), url.PathEscape(v))
	all = append(all, inBase64(v)...)
	if len(v) <= maxHex {
		digits := hex.EncodeToString([]byte(v))
		all = append(all, digits, strings.ToUpper(digits))
	}
	if strings.Contains(v, "\n") {
		for line := range strings.Lines(v) {
			if line = strings.TrimSpace(line); len(line) >= MinLength {
				all = append(all, line)
			}
		}
	}
	return all
}

// inBase64 returns the part of a base64 text that depends on v alone. It covers each of the three places in
// a group of three bytes at which v may begin, in both alphabets.
func inBase64(v string) []string {
	var all []string
	for before := range 3 {
		bits, first := 8*before, 0
		if bits > 0 {
			first = bits/6 + 1 // the characters that also hold bits of what stands before
		}
		last := (bits + 8*len(v)) / 6 // and those with bits of what comes after
		padded := strings.Repeat("\x00", before) + v
		for _, e := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			all = append(all, e.EncodeToString([]byte(padded))[first:last])
		}
	}
	return all
}

// Bytes returns b without secrets; b itself when none is in it. b is not changed.
func (s *Secrets) Bytes(b []byte) []byte {
	if s == nil || !s.in(b) {
		return b
	}
	st := s.Stream()
	return append(st.Next(b), st.End(false)...)
}

// String returns text without secrets.
func (s *Secrets) String(text string) string {
	if s == nil {
		return text
	}
	return string(s.Bytes([]byte(text)))
}

// Tail is Bytes for a text whose beginning was cut off: the rest of a secret that may stand there is
// hidden, too.
func (s *Secrets) Tail(b []byte) []byte {
	if s == nil || len(b) == 0 {
		return b
	}
	st := s.Stream()
	if rest := s.longestRest(b); rest >= minPart {
		st.rest = rest
	}
	return append(st.Next(b), st.End(false)...)
}

// minPart is the length from which on a part of a secret at a cut is hidden: shorter ones are there by
// chance, and tell little.
const minPart = 4
