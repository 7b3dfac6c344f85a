package savedspec

import (
	"bytes"
	"errors"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

const secret = "sk-live-0123456789"

// reversing is a sealer of which everybody sees through, but not strings.Contains.
type reversing struct{ stale bool }

func (reversing) Seal(purpose string, plain []byte) ([]byte, error) {
	out := slices.Clone(plain)
	slices.Reverse(out)
	return append([]byte(purpose+"\n"), out...), nil
}

func (reversing) Open(purpose string, sealed []byte) ([]byte, error) {
	text, ok := bytes.CutPrefix(sealed, []byte(purpose+"\n"))
	if !ok {
		return nil, errors.New("sealed as something else")
	}
	out := slices.Clone(text)
	slices.Reverse(out)
	return out, nil
}

func (r reversing) Stale(string, []byte) bool { return r.stale }

// What is kept of a sandbox does not show its environment, also not what a former version has kept.
func TestKeptEnvironment(t *testing.T) {
	dir := t.TempDir()
	specs := func(s Sealer) *Specs {
		return New(Options{DataDir: dir, Sealer: s, Log: slog.New(slog.DiscardHandler)})
	}
	x := specs(nil)
	th := sandbox.Thread{Owner: sandbox.Owner{Tenant: "t", User: "u"}, ID: "t1"}
	saved := Spec{Template: "base", Env: map[string]string{"K": secret}}
	if err := x.Write(t.Context(), th, saved); err != nil {
		t.Fatal(err)
	}
	file := func() string {
		t.Helper()
		text, err := os.ReadFile(x.File(th))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if !strings.Contains(file(), secret) {
		t.Fatal("the control: it is not in the file of a former version")
	}
	x = specs(reversing{})
	for range 2 {
		if got := x.Read(th); got == nil || !maps.Equal(got.Env, saved.Env) {
			t.Errorf("%+v", got)
		}
		if _, err := x.Renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(file(), secret) || !strings.Contains(file(), "sealed_env") {
			t.Error(file())
		}
	}
	for stale, want := range map[bool]int{false: 0, true: 1} {
		x = specs(reversing{stale})
		if n, err := x.Renew(t.Context()); n != want || err != nil {
			t.Errorf("stale %v: %d, %v", stale, n, err)
		}
	}
	other := sandbox.Thread{Owner: sandbox.Owner{Tenant: "t", User: "u"}, ID: "t2"}
	if err := os.WriteFile(x.File(other), []byte(file()), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := x.Read(other); got != nil {
		t.Errorf("another thread has it: %+v", got)
	}
}
