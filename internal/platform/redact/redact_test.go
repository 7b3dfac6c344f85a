package redact

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

func hide(t *testing.T, values ...string) *Secrets {
	t.Helper()
	s, err := New(values...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestWhatIsHidden(t *testing.T) {
	const key = "-----BEGIN KEY-----\nMIIEowIBAAKCAQEA\nq83vEjRWeJo=\n-----END KEY-----\n"
	for name, c := range map[string]struct {
		values     []string
		text, want string
	}{
		"one":          {[]string{"hunter2hunter2"}, "a hunter2hunter2 b", "a [redacted] b"},
		"whole":        {[]string{"hunter2hunter2"}, "hunter2hunter2", "[redacted]"},
		"short":        {[]string{"1234567", ""}, "1234567", "1234567"},
		"not quite":    {[]string{"hunter2hunter2"}, "hunter2hunter", "hunter2hunter"},
		"again":        {[]string{"abababab"}, "xabababababy", "x[redacted]y"},
		"two in one":   {[]string{"password1234", "1234abcd5678"}, "password1234abcd5678.", "[redacted]."},
		"inner":        {[]string{"xsecretsecrety", "secretsecret"}, "xsecretsecretz", "x[redacted]z"},
		"neighbours":   {[]string{"aaaaaaaa1", "bbbbbbbb2"}, "aaaaaaaa1bbbbbbbb2", "[redacted]"},
		"false start":  {[]string{"aaaaaaab"}, "aaaaaaaaaaab", "aaaa[redacted]"},
		"line":         {[]string{key}, "x\nMIIEowIBAAKCAQEA\ny", "x\n[redacted]\ny"},
		"spaces":       {[]string{key}, strings.ReplaceAll(key, "\n", " "), "[redacted] [redacted] [redacted] [redacted] "},
		"not text":     {[]string{"\xff\xfe\x00\x01\xff\xfe\x00\x01"}, "a\xff\xfe\x00\x01\xff\xfe\x00\x01b", "a[redacted]b"},
		"percent":      {[]string{"p@ss w/rd+1"}, "u=" + url.QueryEscape("p@ss w/rd+1"), "u=[redacted]"},
		"percent path": {[]string{"p@ss w/rd+1"}, url.PathEscape("p@ss w/rd+1"), "[redacted]"},
	} {
		s := hide(t, c.values...)
		if got := s.String(c.text); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		for size := 1; size < 6; size++ {
			st, got := s.Stream(), ""
			for rest := c.text; rest != ""; rest = rest[min(size, len(rest)):] {
				got += string(st.Next([]byte(rest[:min(size, len(rest))])))
			}
			if got += string(st.End(false)); got != c.want {
				t.Errorf("%s in pieces of %d: %q, want %q", name, size, got, c.want)
			}
		}
	}
}

func TestEncoded(t *testing.T) {
	const secret = "sk-\"quoted\"\n<ü>\\1"
	s := hide(t, secret)
	quoted, err := json.Marshal(map[string]string{"key": secret})
	if err != nil {
		t.Fatal(err)
	}
	if got := s.String(string(quoted)); got != `{"key":"[redacted]"}` {
		t.Errorf("JSON: %s", got)
	}
	if got := s.String(`{"key":"sk-\"quoted\"\n<ü>\\1"}`); got != `{"key":"[redacted]"}` {
		t.Errorf("JSON of others: %s", got)
	}
	for _, before := range []string{"", "u", "us", "use", "user:"} {
		for _, after := range []string{"", "1", "12", "123"} {
			for _, e := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
				got := s.String(e.EncodeToString([]byte(before + secret + after)))
				if !strings.Contains(got, Marker) || len(got) > len(Marker)+len(before)*4/3+len(after)*4/3+9 {
					t.Errorf("base64 of %q+secret+%q: %s", before, after, got)
				}
			}
		}
	}
}

func TestHex(t *testing.T) {
	const secret = "sk-live-0123456789"
	s := hide(t, secret, strings.Repeat("c", maxHex+1))
	for _, format := range []string{"%x", "%X", "0x%x!", "key=%X"} {
		want := strings.NewReplacer("%x", Marker, "%X", Marker).Replace(format)
		if got := s.String(fmt.Sprintf(format, secret)); got != want {
			t.Errorf("%s: %s", format, got)
		}
	}
	if long := hex.EncodeToString([]byte(strings.Repeat("c", maxHex+1))); s.String(long) != long {
		t.Error("the digits of a long value cost memory for nothing")
	}
}

func TestEnvironments(t *testing.T) {
	s, err := Env([]string{"of-a-server-1"}, map[string]string{"A": "sk-live-0123456789", "PYTHONPATH": "/mnt/user-data/workspace"}, map[string]string{"B": "hunter2hunter2"})
	if err != nil {
		t.Fatal(err)
	}
	if got := s.String("of-a-server-1 sk-live-0123456789 hunter2hunter2 /mnt/user-data/workspace/a.py"); got != "[redacted] [redacted] [redacted] /mnt/user-data/workspace/a.py" {
		t.Error(got)
	}
	if s, err := Env(nil, nil, map[string]string{"DEBUG": "1"}); s != nil || err != nil {
		t.Error(s, err)
	}
}

func TestJSON(t *testing.T) {
	s := hide(t, "sk-live-0123456789", "1234567890123")
	for text, want := range map[string]string{
		`{"a":"sk-live-0123456789!","b":1}`:          `{"a":"[redacted]!","b":1}`,
		`{"a":1234567890123,"b":[91234567890123]}`:   `{"a":"[redacted]","b":["9[redacted]"]}`,
		`{"a":"\u0073k-live-01234567\u0038\u0039"}`:  `{"a":"[redacted]"}`,
		`{"\u0073k-live-0123456789":"ok"}`:           `{"[redacted]":"ok"}`,
		`["\u00e4", {"sk-live-0123456789":"1"}]`:     `["\u00e4", {"[redacted]":"1"}]`,
		`{"a":"\u0073k-live-0123456789","n":1.50e3}`: `{"a":"[redacted]","n":1.50e3}`,
		`{"clean": "\u00e4 text"}`:                   `{"clean": "\u00e4 text"}`,
		`no JSON sk-live-0123456789`:                 `no JSON [redacted]`,
		`"sk-live-0123456789"`:                       `"[redacted]"`,
		``:                                           ``,
	} {
		if got := string(s.JSON(json.RawMessage(text))); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

func TestCuts(t *testing.T) {
	s := hide(t, "correct-horse-battery", "aaaaaaaaaaaaaaab")
	for text, want := range map[string]string{
		"battery and on": "[redacted] and on",
		"rect-horse-batterycorrect-horse-battery": "[redacted]",
		"tery":             "[redacted]",
		"ery":              "ery",
		"attercup":         "attercup",
		"aaaaaaaaaaaaaaac": "aaaaaaaaaaaaaaac",
		"aaaaaaab":         "[redacted]",
		"":                 "",
	} {
		if got := string(s.Tail([]byte(text))); got != want {
			t.Errorf("tail %q: %q, want %q", text, got, want)
		}
	}
	for text, want := range map[string]string{"go correct-horse": "go [redacted]", "go cor": "go cor"} {
		st := s.Stream()
		if got := string(st.Next([]byte(text))) + string(st.End(true)); got != want {
			t.Errorf("head %q: %q, want %q", text, got, want)
		}
	}
}

// TestNothingIsKeptBackWithoutReason: what cannot be the beginning of a secret is given at once.
func TestNothingIsKeptBackWithoutReason(t *testing.T) {
	st := hide(t, "secretsecret").Stream()
	if got := string(st.Next([]byte("password: "))); got != "password: " {
		t.Errorf("%q", got)
	}
	if got := string(st.Next([]byte("se"))); got != "" {
		t.Errorf("%q", got)
	}
	if got := string(st.Next([]byte("t"))); got != "set" {
		t.Errorf("%q", got)
	}
}

func TestNoSecretsCostNothing(t *testing.T) {
	for _, env := range []map[string]string{nil, {}, {"DEBUG": "1"}} {
		s, err := Env(nil, env)
		if s != nil || err != nil {
			t.Fatalf("%v: %v, %v", env, s, err)
		}
		text := []byte("a text")
		st := s.Stream()
		if n := testing.AllocsPerRun(100, func() {
			if b := s.Bytes(text); &b[0] != &text[0] {
				t.Error("copied")
			}
			if b := st.Next(text); &b[0] != &text[0] {
				t.Error("copied")
			}
		}); n != 0 || st.End(true) != nil || s.String("a") != "a" || string(s.Tail(text)) != "a text" {
			t.Errorf("%v: %f allocations", env, n)
		}
	}
}

func TestTooMuch(t *testing.T) {
	if _, err := Env(nil, map[string]string{"A": strings.Repeat("ab", MaxTotal/4), "B": strings.Repeat("cd", MaxTotal/4+1)}); !errors.Is(err, sandbox.Invalid) {
		t.Errorf("%v", err)
	}
	s := hide(t, strings.Repeat("ab", MaxTotal/2))
	if got := s.String("x" + strings.Repeat("ab", MaxTotal/2) + "y"); got != "x[redacted]y" {
		t.Errorf("%.80q", got)
	}
}

func TestReader(t *testing.T) {
	s := hide(t, "secretsecret")
	text := strings.Repeat("a secretsecret b", 5000)
	want := strings.Repeat("a [redacted] b", 5000)
	for name, r := range map[string]io.Reader{
		"plain": strings.NewReader(text), "bytes": iotest.OneByteReader(strings.NewReader(text)), "err with data": iotest.DataErrReader(strings.NewReader(text)),
	} {
		got, err := io.ReadAll(iotest.HalfReader(s.Reader(r)))
		if err != nil || string(got) != want {
			t.Errorf("%s: %v, %d bytes", name, err, len(got))
		}
	}
	if _, err := io.ReadAll(s.Reader(iotest.ErrReader(io.ErrUnexpectedEOF))); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%v", err)
	}
}

// FuzzStream: however a text is cut, no secret is left, nothing else is lost, and the answer is that of
// the whole text.
func FuzzStream(f *testing.F) {
	f.Add("secretsecret", "etsecrets", "a secretsecretsecrets b", uint8(3))
	f.Add("abababab", "babababa", "xababababababax", uint8(1))
	f.Add("aaaaaaaab", "aaaaaaaa", "aaaaaaaaaaaaaaab", uint8(7))
	f.Add("\x00\x00\x00\x00\x00\x00\x00\x00", "line one\nline two", "line one line two", uint8(2))
	f.Fuzz(func(t *testing.T, a, b, text string, size uint8) {
		s, err := New(a, b)
		if err != nil || s == nil {
			return
		}
		step := int(size)%9 + 1
		st, got := s.Stream(), []byte(nil)
		for rest := []byte(text); len(rest) > 0; rest = rest[min(step, len(rest)):] {
			got = append(got, st.Next(rest[:min(step, len(rest))])...)
		}
		got = append(got, st.End(false)...)
		want := model(s, text)
		if string(got) != want || s.String(text) != want {
			t.Errorf("%q and %q in %q by %d: %q, whole %q, want %q", a, b, text, step, got, s.String(text), want)
		}
		if len(a) < MinLength || strings.Contains(text, Marker) || strings.Contains(a, "\x00") {
			return
		}
		if tail := strings.ReplaceAll(string(s.Tail([]byte(text))), Marker, "\x00"); strings.Contains(tail, a) {
			t.Errorf("tail of %q: %q", text, tail)
		}
	})
}

// model hides the slow and simple way: every place where a value stands is marked.
func model(s *Secrets, text string) string {
	marked := make([]bool, len(text))
	for _, v := range s.values {
		for i := 0; i+len(v) <= len(text); i++ {
			if text[i:i+len(v)] == v {
				for j := i; j < i+len(v); j++ {
					marked[j] = true
				}
			}
		}
	}
	var out strings.Builder
	for i := range len(text) {
		if !marked[i] {
			out.WriteByte(text[i])
		} else if i == 0 || !marked[i-1] {
			out.WriteString(Marker)
		}
	}
	return out.String()
}

// BenchmarkNew is what a set of ten keys costs before the exec that has them.
func BenchmarkNew(b *testing.B) {
	var values []string
	for i := range 10 {
		values = append(values, fmt.Sprintf("sk-proj-%d-0123456789abcdef0123456789abcdef", i))
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := New(values...); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkStream(b *testing.B) {
	s, err := New("sk-proj-0123456789abcdef", "postgres://user:password@host/db")
	if err != nil {
		b.Fatal(err)
	}
	text := []byte(strings.Repeat("2026-01-01 INFO a line of a log that says something\n", 700))
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		st := s.Stream()
		st.Next(text)
	}
}
