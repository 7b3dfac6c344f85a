package app

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/api/auth"
	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/config"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store"
	"github.com/skerry-sandbox/skerry/internal/store/redistest"
)

// startWith does of a start what decides whether the server may be called without a credential.
func startWith(t *testing.T, cfg config.Config, keys bool) error {
	t.Helper()
	if err := cfg.Check(); err != nil {
		return err
	}
	s, err := store.Open(t.Context(), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	log, bearers := slog.New(slog.DiscardHandler), auth.New(s, auth.Options{})
	if keys {
		root := sandbox.Caller{Owner: sandbox.Owner{Tenant: "default", User: "root"}, Role: sandbox.RoleAdmin}
		if _, _, err := bearers.CreateKey(t.Context(), root, auth.Key{User: "ann"}); err != nil {
			t.Fatal(err)
		}
	}
	a := &access{cfg: cfg, log: log, store: s, keys: bearers}
	if err := a.open(context.WithoutCancel(t.Context())); err != nil {
		return err
	}
	defer a.close() //nolint:errcheck // never fails
	l, err := openListener(cfg, nil, log)
	if err != nil {
		return err
	}
	return l.Close()
}

// TestOpenListeners: whatever others can reach does not start without keys, however it is configured.
func TestOpenListeners(t *testing.T) {
	issuer := []config.OIDCIssuer{{Issuer: "https://login.example.com", Audiences: []string{"skerry"}, Tenant: "acme", DefaultRole: "agent"}}
	tried := 0
	for _, c := range []struct {
		listen   string
		loopback bool
	}{
		{"127.0.0.1:0", true}, {"[::1]:0", true}, {"localhost:0", true}, {"127.0.0.2:0", true}, {"[::ffff:127.0.0.1]:0", true},
		{":0", false}, {"0.0.0.0:0", false}, {"[::]:0", false}, {"[::ffff:0.0.0.0]:0", false}, {"0:0", false}, {"*:0", false}, {"192.0.2.1:0", false},
		{"example.com:0", false}, {"localhost.example.com:0", false}, {"ip6-localhost:0", false}, {"[fe80::1%lo]:0", false}, {"[::1%lo]:0", false},
		{"2130706433:0", false}, {"0x7f.1:0", false}, {"127.1:0", false}, {"LOCALHOST:0", false},
	} {
		for _, auth := range []string{"auto", "keys", "none"} {
			tried++
			cfg, err := config.Load("", func(name string) (string, bool) {
				v, ok := map[string]string{"SKERRY_LISTEN": c.listen, "SKERRY_AUTH": auth, "SKERRY_DATA": t.TempDir()}[name]
				return v, ok
			})
			if err != nil {
				t.Fatal(err)
			}
			err = startWith(t, cfg, false)
			if want := c.loopback && auth != "keys"; (err == nil) != want && !strings.Contains(c.listen, "::") { // a machine may have no IPv6
				t.Errorf("%s, auth %s, no key: %v", c.listen, auth, err)
			}
			if !c.loopback && err == nil {
				t.Errorf("%s, auth %s: others can reach it, and nobody needs a key", c.listen, auth)
			}
		}
	}
	for _, bad := range []string{"unix:/run/skerry.sock", "/run/skerry.sock", "unix:///run/x:1", "127.0.0.1", "127.0.0.1:http", "127.0.0.1:99999", "127.0.0.1:-1", ""} {
		cfg := config.Default()
		cfg.Listen, cfg.Data = bad, t.TempDir()
		if err := startWith(t, cfg, true); err == nil || !strings.Contains(err.Error(), "listen:") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	for name, change := range map[string]func(*config.Config){"keys": nil, "oidc": func(c *config.Config) { c.OIDC = issuer }} {
		cfg := config.Default()
		cfg.Listen, cfg.Data = "0.0.0.0:0", filepath.Join(t.TempDir(), name)
		if change != nil {
			change(&cfg)
		}
		if err := startWith(t, cfg, change == nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	t.Logf("%d ways to listen", tried)
}

// TestFirstKeyIsAnAdministrators: the first key of a server closes it, so an agent's would lock out its owner.
func TestFirstKeyIsAnAdministrators(t *testing.T) {
	s, err := store.Open(t.Context(), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	a := &access{cfg: config.Config{Auth: "auto"}, log: slog.New(slog.DiscardHandler), store: s, keys: auth.New(s, auth.Options{})}
	_, _, err = a.CreateKey(t.Context(), sandbox.Caller{Owner: LocalOwner, Role: sandbox.RoleAdmin}, auth.Key{User: "ann", Role: sandbox.RoleAgent})
	if sandbox.KindOf(err) != sandbox.Invalid || !strings.Contains(err.Error(), "make an administrator's first") {
		t.Errorf("the first key was an agent's: %v", err)
	}
	if has, err := s.HasKeys(t.Context()); has || err != nil {
		t.Errorf("a key was made: %v", err)
	}
}

// TestFirstKey: a server that others can reach starts with a key from its environment, which it unsets; a malformed key is refused.
func TestFirstKey(t *testing.T) {
	s, err := store.Open(t.Context(), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	log, err := audit.Open(audit.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cfg := config.Default()
	cfg.Auth = "keys"
	a := &access{cfg: cfg, store: s, keys: auth.New(s, auth.Options{}), audit: log}
	t.Setenv(firstKeyEnv, "secret")
	if err := a.open(t.Context()); err == nil || !strings.Contains(err.Error(), "SKERRY_FIRST_KEY: the first key is not sk_ and 64 hex digits") {
		t.Errorf("%v", err)
	}
	secret := "sk_" + strings.Repeat("ab", 32)
	t.Setenv(firstKeyEnv, secret)
	if err := a.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer a.close() //nolint:errcheck // never fails
	if c, err := a.Authenticate(t.Context(), auth.Credential{Secret: secret}); err != nil || !c.Admin() {
		t.Errorf("%+v, %v", c, err)
	}
	if v, there := os.LookupEnv(firstKeyEnv); there {
		t.Errorf("the environment still has %q", v)
	}
}

// TestStartWaitsForRedis that comes later; it does not wait for ever.
func TestStartWaitsForRedis(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	s, err := store.Open(t.Context(), store.Options{URL: redis.URL()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	log := slog.New(slog.DiscardHandler)
	redis.Kill()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := awaitStore(ctx, s, log); !errors.Is(err, sandbox.Unavailable) {
		t.Errorf("without Redis: %v", err)
	}
	waited := make(chan error, 1)
	go func() { waited <- awaitStore(t.Context(), s, log) }()
	redis.Restart()
	if err := <-waited; err != nil {
		t.Error(err)
	}
}
