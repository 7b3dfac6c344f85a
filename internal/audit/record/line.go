package record

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"time"
	"unicode/utf8"
)

// A line of the log is the JSON of a Record, whose last member is hash. The hash is the sha256 of the very
// same bytes with an empty hash. So a check needs no second opinion on how JSON is written, and a line of an
// older version with fewer members stays valid.
const (
	hashMember = `"hash":"`
	lineEnd    = `"}`
	hashLen    = 2 * sha256.Size
)

// Encode fills in r.Hash and returns its line, with the newline.
func Encode(r *Record) ([]byte, error) {
	r.Hash = ""
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(text)
	r.Hash = hex.EncodeToString(sum[:])
	text = append(text[:len(text)-len(lineEnd)], r.Hash...)
	return append(text, lineEnd+"\n"...), nil
}

// Decode reads a line (without its newline). intact: it is a record, and its hash is right.
func Decode(line []byte) (r Record, intact bool) {
	head, hash, ok := SplitHash(line)
	if !ok {
		_ = json.Unmarshal(line, &r) // to name the record, if it can be
		return r, false
	}
	sum := sha256.New()
	sum.Write(head)
	sum.Write([]byte(lineEnd))
	want := hex.EncodeToString(sum.Sum(nil))
	err := json.Unmarshal(line, &r)
	return r, err == nil && r.Hash == want && string(hash) == want && r.Seq > 0
}

// SplitHash parts a line before and after the value of its last member, the hash.
func SplitHash(line []byte) (head, hash []byte, ok bool) {
	n := len(line) - hashLen - len(lineEnd)
	if n < len(hashMember) || !bytes.HasSuffix(line, []byte(lineEnd)) || !bytes.HasSuffix(line[:n], []byte(hashMember)) {
		return nil, nil, false
	}
	return line[:n], line[n : n+hashLen], true
}

// Limits of a record, in bytes. What is longer is cut.
const (
	MaxSubject = 1 << 10
	maxDetail  = 1 << 10
	maxArgs    = 4 << 10
	MaxAgent   = 512
	maxName    = 256
)

// Clean makes a record fit to be written: every text valid UTF-8 (else its JSON would not be the
// JSON of what it is read back as) and bounded, the arguments redacted.
func Clean(r Record) Record {
	for _, f := range []struct {
		text *string
		max  int
	}{
		{&r.Subject, MaxSubject}, {&r.Detail, maxDetail}, {&r.UserAgent, MaxAgent},
		{&r.Tenant, maxName}, {&r.User, maxName}, {&r.Thread, maxName}, {&r.Sandbox, maxName}, {&r.Exec, maxName},
		{&r.Parent, maxName}, {&r.Phase, maxName}, {&r.Action, maxName}, {&r.ArgsHash, maxName}, {&r.Outcome, maxName},
		{&r.OutHash, maxName}, {&r.KeyID, maxName}, {&r.RequestID, maxName}, {&r.Source, maxName},
		{&r.Auth, maxName}, {&r.Role, maxName}, {&r.Actor, maxName}, {&r.TraceID, maxName},
	} {
		*f.text = cut(*f.text, f.max)
	}
	if r.Args != nil && needsRedaction(r.Args) {
		r.Args = redact(r.Args)
	}
	if r.Why != nil && needsRedaction(r.Why) {
		r.Why = redact(r.Why)
	}
	return r
}

// cut returns the longest beginning of s that is at most max bytes of valid UTF-8. Bytes that are no
// UTF-8 become U+FFFD.
func cut(s string, max int) string {
	if len(s) > max {
		s = s[:max]
		// The last character may have been parted.
		for i := 1; i < utf8.UTFMax && i <= len(s); i++ {
			if c := s[len(s)-i]; utf8.RuneStart(c) {
				if !utf8.FullRuneInString(s[len(s)-i:]) {
					s = s[:len(s)-i]
				}
				break
			}
		}
	}
	if utf8.ValidString(s) {
		return s
	}
	return cutValid(strings.ToValidUTF8(s, "\uFFFD"), max)
}

// cutValid cuts valid UTF-8 between characters.
func cutValid(s string, max int) string {
	if len(s) <= max {
		return s
	}
	for max > 0 && !utf8.RuneStart(s[max]) {
		max--
	}
	return s[:max]
}

// Indexed is the part of a record that an index knows.
type Indexed struct {
	Seq     uint64     `json:"seq"`
	Time    UnixMillis `json:"time"`
	Tenant  string     `json:"tenant"`
	User    string     `json:"user"`
	Thread  string     `json:"thread"`
	Exec    string     `json:"exec"`
	Action  string     `json:"action"`
	Subject string     `json:"subject"`
	Outcome string     `json:"outcome"`
}

// ParseIndexed reads a line. ok: it is one of a record, whether or not its hash is right.
func ParseIndexed(line []byte) (r Indexed, ok bool) {
	err := json.Unmarshal(line, &r)
	return r, err == nil && r.Seq > 0
}

// UnixMillis reads a time of JSON as Unix milliseconds.
type UnixMillis int64

// UnmarshalJSON reads the time.
func (m *UnixMillis) UnmarshalJSON(text []byte) error {
	var t time.Time
	if err := t.UnmarshalJSON(text); err != nil {
		return err
	}
	*m = UnixMillis(t.UnixMilli())
	return nil
}
