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

// closed is a sealer that opens nothing.
type closed struct{ reversing }

func (closed) Open(string, []byte) ([]byte, error) { return nil, errors.New("it was opened") }

// TestHead: a list reads neither the environment nor the key, also of a file of an earlier version.
func TestHead(t *testing.T) {
	var log bytes.Buffer
	o := Options{DataDir: t.TempDir(), Sealer: closed{}, Log: slog.New(slog.NewTextHandler(&log, nil))}
	x := New(o)
	th := sandbox.Thread{Owner: sandbox.Owner{Tenant: "t", User: "u"}, ID: "t1"}
	if got := x.Head(th); got != nil {
		t.Errorf("%+v", got)
	}
	saved := Spec{Template: "base", Env: map[string]string{"K": strings.Repeat(secret, 10_000)}, Hibernated: &sandbox.Info{ID: "s"}}
	if err := x.Write(t.Context(), th, saved); err != nil {
		t.Fatal(err)
	}
	check := func(what string) {
		t.Helper()
		if got := x.Head(th); got == nil || got.Template != "base" || got.Hibernated == nil || got.Hibernated.ID != "s" || got.Env != nil || got.Sealed != nil {
			t.Errorf("%s: %+v", what, got)
		}
	}
	check("as it is written")
	if log.Len() > 0 {
		t.Error(log.String())
	}
	for what, text := range map[string]string{
		"cut where the environment is": cut(t, x.File(th)),
		"of an earlier version":        `{"template":"base","sealed_env":"` + strings.Repeat("AAAA", maxHead) + `","hibernated":{"id":"s"}}`,
	} {
		if err := os.WriteFile(x.File(th), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		check(what)
	}
	if err := os.WriteFile(x.File(th), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := x.Head(th); got != nil || !strings.Contains(log.String(), "cannot be read") {
		t.Errorf("%+v, %s", got, log.String())
	}
}

// cut returns a file as far as the sealed environment: who reads that far meets its end.
func cut(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, _, ok := strings.Cut(string(text), `"sealed_env"`)
	if !ok {
		t.Fatalf("no environment: %.200s", text)
	}
	return head
}

// TestAdmit: the environments of one user are bounded together, whatever their number; those of another user
// are not met, and room is there again when a thread's is forgotten or replaced.
func TestAdmit(t *testing.T) {
	x := New(Options{DataDir: t.TempDir(), UserBytes: 100 << 10, Log: slog.New(slog.DiscardHandler)})
	of := func(user, id string) sandbox.Thread {
		return sandbox.Thread{Owner: sandbox.Owner{Tenant: "t", User: user}, ID: id}
	}
	large := map[string]string{"K": strings.Repeat("x", 40<<10)}
	put := func(th sandbox.Thread, env map[string]string) error {
		t.Helper()
		err := x.Admit(th, env)
		if err == nil {
			err = x.Write(t.Context(), th, Spec{Template: "base", Env: env})
		}
		return err
	}
	for _, id := range []string{"a", "b"} { // twice: the second takes the place of the first
		if err := errors.Join(put(of("u", id), large), put(of("u", id), large)); err != nil {
			t.Fatal(err)
		}
	}
	if err := put(of("u", "c"), large); !errors.Is(err, sandbox.QuotaExceeded) {
		t.Errorf("120 KiB of 100: %v", err)
	}
	if err := errors.Join(put(of("u", "c"), map[string]string{"K": "small"}), put(of("v", "c"), large)); err != nil {
		t.Error(err)
	}
	if err := x.Restore(t.Context(), of("u", "d"), Spec{Template: "base", Env: large}); err != nil {
		t.Fatal(err)
	}
	if got := x.Read(of("u", "d")); got == nil || got.Template != "base" || got.Env != nil {
		t.Errorf("restored: %+v", got)
	}
	other := New(x.o) // as another server of the data folder counts
	if err := other.Admit(of("u", "e"), large); !errors.Is(err, sandbox.QuotaExceeded) {
		t.Errorf("another server: %v", err)
	}
	if err := x.Forget(of("u", "a")); err != nil {
		t.Fatal(err)
	}
	if err := New(x.o).Admit(of("u", "e"), large); err != nil {
		t.Errorf("after one was forgotten: %v", err)
	}
}
