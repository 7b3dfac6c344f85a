package policy

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const denyAll = "version: 1\ndefault: deny\n"
const allowAll = "version: 1\ndefault: allow\n"
const denyX = "version: 1\ndefault: allow\nrules:\n- {id: x, effect: deny, match: {tool: x}}\n"

func engine(t *testing.T, o EngineOptions) *Engine {
	t.Helper()
	e, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func effectOf(e *Engine, tenant string) Effect {
	return e.Decide(context.Background(), Sample{Server: "s", Tool: "x", Tenant: tenant}.Request()).Effect()
}

// until waits for what other goroutines do.
func until(t *testing.T, what string, yes func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !yes(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 30 s: %s", what)
		}
	}
}

// TestReload: a change of the file counts without a restart; a wrong or missing file leaves the rules that were, and
// is told.
func TestReload(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "policy.yaml")
	var mu sync.Mutex
	var told []Status
	e := engine(t, EngineOptions{File: file, Tenants: filepath.Join(dir, "tenants"), Changed: func(_ string, s Status) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, s)
	}})
	if s := e.Status(""); s.Source != "built-in" || s.Digest != Default().Digest || effectOf(e, "t") != Allow {
		t.Fatalf("%+v", s)
	}
	write(t, file, denyAll)
	until(t, "the new file counts", func() bool { return effectOf(e, "t") == Deny })
	write(t, file, "version: 1\ndefault: alow\n")
	until(t, "the wrong file is told", func() bool { return e.Status("").Problem != nil })
	if s := e.Status(""); effectOf(e, "t") != Deny || s.Digest != digest([]byte(denyAll)) || !strings.Contains(s.Problem.Error(), "line 2: default") || len(e.Problems()) != 1 {
		t.Errorf("%+v", s)
	}
	write(t, file, allowAll)
	until(t, "the right file counts", func() bool { return effectOf(e, "t") == Allow && e.Status("").Problem == nil })
	write(t, filepath.Join(dir, "tenants", "acme.yaml"), denyX)
	until(t, "the tenant's rules count", func() bool { return effectOf(e, "acme") == Deny })
	if effectOf(e, "other") != Allow {
		t.Error("a tenant's rules count for another one")
	}
	mu.Lock()
	defer mu.Unlock()
	if len(told) < 4 || told[1].Problem == nil {
		t.Errorf("told %+v", told)
	}
}

// TestGone: the server's rules do not vanish with their file.
func TestGone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "policy.yaml")
	write(t, file, denyAll)
	for _, needed := range []bool{true, false} {
		e := engine(t, EngineOptions{File: file, Needed: needed})
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		e.Look(time.Now())
		if effectOf(e, "t") != Deny || e.Status("").Problem == nil {
			t.Errorf("needed %t: %s, %+v", needed, effectOf(e, "t"), e.Status(""))
		}
		write(t, file, denyAll)
	}
}

// TestOpenBroken: a server does not start without its rules; a tenant whose rules cannot be read may do nothing.
func TestOpenBroken(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "policy.yaml")
	if _, err := Open(EngineOptions{File: file, Needed: true}); err == nil {
		t.Error("starts without the file that is configured")
	}
	write(t, file, "version: 1\ndefault: allow\nrules: 5\n")
	if _, err := Open(EngineOptions{File: file}); err == nil || !strings.Contains(err.Error(), "policy.yaml:\nline 3: rules: want a list") {
		t.Errorf("error %v", err)
	}
	write(t, file, allowAll)
	write(t, filepath.Join(dir, "tenants", "acme.yaml"), denyAll) // its default is not a tenant's to choose
	e := engine(t, EngineOptions{File: file, Tenants: filepath.Join(dir, "tenants")})
	if effectOf(e, "acme") != Deny || effectOf(e, "other") != Allow || e.Problems()["acme"] == nil {
		t.Errorf("%s, %s, %v", effectOf(e, "acme"), effectOf(e, "other"), e.Problems())
	}
}

// TestFilesThatAreNotRead: a tenant whose rules are there and are not read may do nothing, and a server that cannot know
// which tenants have rules does not start.
func TestFilesThatAreNotRead(t *testing.T) {
	dir := t.TempDir()
	o := EngineOptions{File: filepath.Join(dir, "policy.yaml"), Tenants: filepath.Join(dir, "tenants")}
	write(t, o.File, allowAll)
	write(t, filepath.Join(dir, "a file"), "")
	if e, err := Open(EngineOptions{File: o.File, Tenants: filepath.Join(dir, "a file")}); err == nil {
		t.Error("starts without the rules of tenants")
		_ = e.Close()
	}
	write(t, filepath.Join(o.Tenants, "acme.yml"), allowAll)
	write(t, filepath.Join(o.Tenants, "bank.yaml"), allowAll)
	write(t, filepath.Join(o.Tenants, "city.yaml"), allowAll)
	e, err := open(o, 2) // the server's and one more
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close() //nolint:errcheck // a test's
	for tenant, want := range map[string]Effect{"acme": Deny, "bank": Allow, "city": Deny, "other": Allow} {
		if got := effectOf(e, tenant); got != want {
			t.Errorf("%s: %s, want %s", tenant, got, want)
		}
	}
	if _, err := e.Put(t.Context(), "dome", allowAll, ""); sandbox.KindOf(err) != sandbox.QuotaExceeded {
		t.Errorf("rules that a server would not read again: %v", err)
	}
	if err := os.Rename(filepath.Join(o.Tenants, "acme.yml"), filepath.Join(dir, "away")); err != nil {
		t.Fatal(err)
	}
	e.Look(time.Now())
	if effectOf(e, "acme") != Allow || effectOf(e, "city") != Deny {
		t.Errorf("after the file went: %s, %s", effectOf(e, "acme"), effectOf(e, "city"))
	}
}

// TestPut: rules that are put count at once, wrong ones change nothing, and no caller overwrites what it has not seen.
func TestPut(t *testing.T) {
	dir, ctx := t.TempDir(), context.Background()
	o := EngineOptions{File: filepath.Join(dir, "a", "policy.yaml"), Tenants: filepath.Join(dir, "a", "tenants")}
	e, other := engine(t, o), engine(t, o)
	if _, err := e.Put(ctx, "", "version: 1\ndefault: deny\nrules:\n- {id: a, efect: deny}", ""); sandbox.KindOf(err) != sandbox.Invalid || effectOf(e, "t") != Allow {
		t.Errorf("wrong rules: %v", err)
	} else if known := (*sandbox.Error)(nil); !errors.As(err, &known) || len(known.Fields) != 2 || known.Fields[0].Name != "rules[0].efect" {
		t.Errorf("fields %+v", known)
	}
	s, err := e.Put(ctx, "", denyAll, Default().Digest)
	if err != nil || s.Source != "file" || effectOf(e, "t") != Deny {
		t.Fatalf("%+v, %v", s, err)
	}
	until(t, "the other server follows", func() bool { return effectOf(other, "t") == Deny })
	if _, err := other.Put(ctx, "", allowAll, Default().Digest); sandbox.KindOf(err) != sandbox.Conflict || effectOf(other, "t") != Deny {
		t.Errorf("an old digest: %v", err)
	}
	if _, err := other.Put(ctx, "", "", ""); sandbox.KindOf(err) != sandbox.Invalid {
		t.Errorf("no rules at all: %v", err)
	}
	if _, err := other.Put(ctx, "", allowAll, s.Digest); err != nil || effectOf(other, "t") != Allow {
		t.Errorf("%v", err)
	}
	if _, err := other.Put(ctx, "acme", denyX, ""); err != nil || effectOf(other, "acme") != Deny {
		t.Errorf("%v", err)
	}
	if _, err := other.Put(ctx, "acme", denyAll, ""); sandbox.KindOf(err) != sandbox.Invalid {
		t.Errorf("a tenant's default: %v", err)
	}
	if s, err := other.Put(ctx, "acme", "", ""); err != nil || s.Source != "none" || effectOf(other, "acme") != Allow {
		t.Errorf("%+v, %v", s, err)
	}
	until(t, "the first server follows", func() bool { return effectOf(e, "acme") == Allow && effectOf(e, "t") == Allow })
}

// TestTry: rules are tried without counting.
func TestTry(t *testing.T) {
	e := engine(t, EngineOptions{File: filepath.Join(t.TempDir(), "policy.yaml")})
	r := Sample{Server: "s", Tool: "x", Tenant: "acme"}.Request()
	for _, c := range []struct {
		tenant, text string
		want         Effect
	}{{"", "", Allow}, {"", denyAll, Deny}, {"acme", denyX, Deny}, {"other", denyX, Allow}} {
		rules, err := e.With(c.tenant, c.text)
		if err != nil {
			t.Fatal(err)
		}
		if d := rules.Decide(context.Background(), r); d.Effect() != c.want {
			t.Errorf("%+v: %s", c, d.Effect())
		}
	}
	if _, err := e.With("", "x"); sandbox.KindOf(err) != sandbox.Invalid {
		t.Errorf("%v", err)
	}
	if effectOf(e, "acme") != Allow {
		t.Error("what was tried counts")
	}
}
