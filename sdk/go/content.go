package skerry

import "encoding/base64"

// OK reports whether it exited with code 0.
func (r *Result) OK() bool { return r.ExitCode != nil && *r.ExitCode == 0 }

// StdoutBytes is stdout as it was written.
func (r *Result) StdoutBytes() []byte { return decoded(r.Stdout, r.Encoding) }

// StderrBytes is stderr as it was written.
func (r *Result) StderrBytes() []byte { return decoded(r.Stderr, r.Encoding) }

func decoded(text, encoding string) []byte {
	if encoding == "base64" {
		if raw, err := base64.StdEncoding.DecodeString(text); err == nil {
			return raw
		}
	}
	return []byte(text)
}

// Data is the content of a download as it was written.
func (t Transferred) Data() []byte { return decoded(t.Content, t.Encoding) }
