package auth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var root = sandbox.Caller{Owner: sandbox.Owner{Tenant: "acme", User: "root"}, Role: sandbox.RoleAdmin}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantKind(t *testing.T, err error, k sandbox.Kind) {
	t.Helper()
	if sandbox.KindOf(err) != k {
		t.Errorf("error %v of kind %q, want %q", err, sandbox.KindOf(err), k)
	}
}

// counted is a store that counts look-ups, and can fail or wait in them.
type counted struct {
	*store.Store
	lookups atomic.Int64
	err     error
	during  func()
}

func (c *counted) KeyByHash(ctx context.Context, hash string) (store.KeyRecord, error) {
	c.lookups.Add(1)
	if c.err != nil {
		return store.KeyRecord{}, c.err
	}
	rec, err := c.Store.KeyByHash(ctx, hash)
	if c.during != nil {
		c.during()
	}
	return rec, err
}

func setup(t *testing.T) (*Keys, *counted, *time.Time) {
	t.Helper()
	s, err := store.Open(t.Context(), store.Options{})
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	c := &counted{Store: s}
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return New(c, Options{Now: func() time.Time { return now }}), c, &now
}

func TestKeys(t *testing.T) {
	ctx := t.Context()
	k, _, now := setup(t)
	until := now.Add(time.Hour)
	first, _, err := k.CreateKey(ctx, root, Key{User: "root"})
	must(t, err)
	if first.Role != sandbox.RoleAdmin || !first.Admin {
		t.Errorf("the first key locks everybody out: %+v", first)
	}
	must(t, k.RevokeKey(ctx, root, first.ID))
	agent, _, err := k.CreateKey(ctx, root, Key{User: "root", Role: sandbox.RoleAgent})
	must(t, err)
	made, secret, err := k.CreateKey(ctx, root, Key{Name: "laptop", User: "ann", ExpiresAt: &until})
	must(t, err)
	must(t, k.RevokeKey(ctx, root, agent.ID))
	if !strings.HasPrefix(secret, "sk_") || len(secret) != 67 || made.Tenant != "acme" || made.ID == "" || !made.CreatedAt.Equal(*now) {
		t.Errorf("made %+v, secret of %d", made, len(secret))
	}
	if text, _ := json.Marshal(made); strings.Contains(string(text), made.Hash) || strings.Contains(made.Hash, secret) {
		t.Errorf("the hash is in %s", text)
	}
	c, err := k.Authenticate(ctx, Credential{Secret: secret})
	must(t, err)
	if c.Owner != (sandbox.Owner{Tenant: "acme", User: "ann"}) || c.KeyID != made.ID || c.Role != sandbox.RoleAgent || c.Method != sandbox.ByKey || c.Actor != "ann" {
		t.Errorf("caller %+v", c)
	}
	_, err = k.Authenticate(ctx, Credential{Secret: secret, OnBehalfOf: "bob"})
	wantKind(t, err, sandbox.Forbidden)
	list, err := k.ListKeys(ctx, root)
	must(t, err)
	if len(list) != 1 || list[0].ID != made.ID || list[0].Name != "laptop" {
		t.Errorf("listed %+v", list)
	}
	*now = until
	_, err = k.Authenticate(ctx, Credential{Secret: secret})
	wantKind(t, err, sandbox.Unauthorized)
	if !strings.Contains(err.Error(), "expired") {
		t.Error(err)
	}
}

// TestFirstKey: a key that was given counts as long as there is none, also when two servers store it at once; afterwards it is a key as any
// other, and does not come back when it was revoked.
func TestFirstKey(t *testing.T) {
	ctx := t.Context()
	k, _, _ := setup(t)
	secret, operators := "sk_"+strings.Repeat("0123456789abcdef", 4), sandbox.Owner{Tenant: "acme", User: "local"}
	for _, bad := range []string{"", "secret", strings.ToUpper(secret), secret[:66]} {
		_, ok, err := k.CreateFirstKey(ctx, operators, bad)
		wantKind(t, err, sandbox.Invalid)
		if ok {
			t.Errorf("%q was made", bad)
		}
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if _, _, err := k.CreateFirstKey(ctx, operators, secret); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	c, err := k.Authenticate(ctx, Credential{Secret: secret, OnBehalfOf: "ann"})
	must(t, err)
	if c.Owner != (sandbox.Owner{Tenant: "acme", User: "ann"}) {
		t.Errorf("caller %+v", c)
	}
	list, err := k.ListKeys(ctx, root)
	must(t, err)
	if len(list) != 1 || list[0].Role != sandbox.RoleAdmin {
		t.Fatalf("listed %+v", list)
	}
	_, _, err = k.CreateKey(ctx, root, Key{User: "ann"})
	must(t, err)
	must(t, k.RevokeKey(ctx, root, list[0].ID))
	if _, ok, err := k.CreateFirstKey(ctx, operators, secret); ok || err != nil {
		t.Errorf("made again: %v", err)
	}
	_, err = k.Authenticate(ctx, Credential{Secret: secret})
	wantKind(t, err, sandbox.Unauthorized)
}

func TestOnBehalfOf(t *testing.T) {
	ctx := t.Context()
	k, _, _ := setup(t)
	_, secret, err := k.CreateKey(ctx, root, Key{User: "backend", Admin: true, ActFor: true})
	must(t, err)
	c, err := k.Authenticate(ctx, Credential{Secret: secret, OnBehalfOf: "bob@example.org"})
	must(t, err)
	if c.Owner != (sandbox.Owner{Tenant: "acme", User: "bob@example.org"}) || c.Role != sandbox.RoleDeveloper || c.Actor != "backend" || !c.OnBehalf() || c.KeyID == "" {
		t.Errorf("caller %+v: acting for a user gives that user's rights", c)
	}
	if c, err = k.Authenticate(ctx, Credential{Secret: secret}); err != nil || !c.Admin() || c.User != "backend" {
		t.Errorf("caller %+v, %v", c, err)
	}
	for _, bad := range []string{"../x", "a b", strings.Repeat("x", 200), "-x"} {
		_, err = k.Authenticate(ctx, Credential{Secret: secret, OnBehalfOf: bad})
		wantKind(t, err, sandbox.Invalid)
	}
}

func TestUnauthorizedSaysWhatIsMissing(t *testing.T) {
	k, c, _ := setup(t)
	for secret, want := range map[string]string{
		"":                              "Authorization: Bearer",
		"hello":                         "not a key",
		"sk_" + strings.Repeat("A", 64): "not a key",
		"sk_" + strings.Repeat("a", 65): "not a key",
		"sk_" + strings.Repeat("a", 64): "not known",
	} {
		_, err := k.Authenticate(t.Context(), Credential{Secret: secret})
		wantKind(t, err, sandbox.Unauthorized)
		if err == nil || !strings.Contains(err.Error(), want) || secret != "" && strings.Contains(err.Error(), secret) {
			t.Errorf("%q: %v", secret, err)
		}
	}
	if n := c.lookups.Load(); n != 1 {
		t.Errorf("%d look-ups; only what looks like a key is worth one", n)
	}
}

func TestAdministratorsOnly(t *testing.T) {
	ctx := t.Context()
	k, _, _ := setup(t)
	made, secret, err := k.CreateKey(ctx, root, Key{User: "ann", Role: sandbox.RoleAgent})
	must(t, err)
	plain, err := k.Authenticate(ctx, Credential{Secret: secret})
	must(t, err)
	other := sandbox.Caller{Owner: sandbox.Owner{Tenant: "other", User: "eve"}, Role: sandbox.RoleAdmin}

	_, _, err = k.CreateKey(ctx, plain, Key{User: "ann"})
	wantKind(t, err, sandbox.Forbidden)
	_, err = k.ListKeys(ctx, plain)
	wantKind(t, err, sandbox.Forbidden)
	wantKind(t, k.RevokeKey(ctx, plain, made.ID), sandbox.Forbidden)
	_, _, err = k.CreateKey(ctx, other, Key{Tenant: "acme", User: "eve"})
	wantKind(t, err, sandbox.Forbidden)
	wantKind(t, k.RevokeKey(ctx, other, made.ID), sandbox.NotFound)
	if list, err := k.ListKeys(ctx, other); err != nil || len(list) != 0 {
		t.Errorf("another tenant's administrator sees %v, %v", list, err)
	}
}

func TestBadKeys(t *testing.T) {
	k, _, now := setup(t)
	past := now.Add(-time.Second)
	for _, bad := range []Key{
		{User: ""}, {User: "a/b"}, {User: "ann", Name: "a\nb"}, {User: "ann", Name: strings.Repeat("x", 129)},
		{User: "ann", Name: "\xff"}, {User: "ann", ExpiresAt: &past},
		{User: "ann", Role: "root"}, {User: "ann", Role: sandbox.RoleAgent, Admin: true}, {User: "ann", Role: sandbox.RoleAuditor, ActFor: true},
		{User: "ann", Capabilities: []string{"a b"}}, {User: "ann", Threads: []string{"*"}}, {User: "ann", Threads: []string{"a*b"}},
		{User: "ann", Role: sandbox.RoleAuditor, Threads: []string{"a"}},
	} {
		_, _, err := k.CreateKey(t.Context(), root, bad)
		wantKind(t, err, sandbox.Invalid)
	}
}

// TestOldKeys: keys from before there were roles keep what they could do.
func TestOldKeys(t *testing.T) {
	ctx := t.Context()
	k, c, _ := setup(t)
	for admin, want := range map[bool]sandbox.Role{true: sandbox.RoleAdmin, false: sandbox.RoleDeveloper} {
		secret := secretPrefix + strings.Repeat("0", 63) + map[bool]string{true: "1", false: "0"}[admin]
		must(t, c.PutKey(ctx, store.KeyRecord{ID: "key_" + string(want), Tenant: "acme", User: "ann", Admin: admin, Hash: hashOf(secret)}))
		got, err := k.Authenticate(ctx, Credential{Secret: secret})
		must(t, err)
		if got.Role != want || got.Threads != nil || got.Capabilities != nil {
			t.Errorf("admin %v: %+v", admin, got)
		}
	}
	list, err := k.ListKeys(ctx, root)
	must(t, err)
	for _, key := range list {
		if key.Admin != (key.Role == sandbox.RoleAdmin) || key.Role == "" {
			t.Errorf("%+v", key)
		}
	}
}

// TestScopes: what a key is restricted to comes with its caller.
func TestScopes(t *testing.T) {
	ctx := t.Context()
	k, _, _ := setup(t)
	made, secret, err := k.CreateKey(ctx, root, Key{User: "ann", Role: sandbox.RoleAgent, Capabilities: []string{"mail.send", "crm", "crm"}, Threads: []string{"ci-*", "main"}})
	must(t, err)
	c, err := k.Authenticate(ctx, Credential{Secret: secret})
	must(t, err)
	if !slices.Equal(c.Capabilities, []string{"crm", "mail.send"}) || !slices.Equal(made.Capabilities, c.Capabilities) {
		t.Errorf("capabilities %q", c.Capabilities)
	}
	for thread, want := range map[string]bool{"ci-1": true, "ci-": true, "ci": false, "main": true, "main2": false, "": false} {
		if c.MayUse(thread) != want {
			t.Errorf("thread %q: %v", thread, !want)
		}
	}
}

func TestRevoke(t *testing.T) {
	ctx := t.Context()
	k, c, now := setup(t)
	elsewhere := New(c, Options{Now: func() time.Time { return *now }}) // another server
	made, secret, err := k.CreateKey(ctx, root, Key{User: "ann"})
	must(t, err)
	for _, at := range []*Keys{k, elsewhere} {
		_, err = at.Authenticate(ctx, Credential{Secret: secret})
		must(t, err)
	}
	must(t, k.RevokeKey(ctx, root, made.ID))
	_, err = k.Authenticate(ctx, Credential{Secret: secret})
	wantKind(t, err, sandbox.Unauthorized)
	*now = now.Add(knownFor)
	_, err = elsewhere.Authenticate(ctx, Credential{Secret: secret})
	wantKind(t, err, sandbox.Unauthorized)
	wantKind(t, k.RevokeKey(ctx, root, made.ID), sandbox.NotFound)
}

// TestRevokeDuringLookup: an answer that was on its way when the key was revoked is not remembered.
func TestRevokeDuringLookup(t *testing.T) {
	ctx := t.Context()
	k, c, _ := setup(t)
	made, secret, err := k.CreateKey(ctx, root, Key{User: "ann"})
	must(t, err)
	c.during = func() {
		c.during = nil
		must(t, k.RevokeKey(ctx, root, made.ID))
	}
	_, _ = k.Authenticate(ctx, Credential{Secret: secret})
	_, err = k.Authenticate(ctx, Credential{Secret: secret})
	wantKind(t, err, sandbox.Unauthorized)
}

func TestCache(t *testing.T) {
	ctx := t.Context()
	k, c, now := setup(t)
	_, secret, err := k.CreateKey(ctx, root, Key{User: "ann"})
	must(t, err)
	unknown := "sk_" + strings.Repeat("0", 64)
	ask := func(secret string, want int64) {
		t.Helper()
		c.lookups.Store(0)
		for range 3 {
			_, _ = k.Authenticate(ctx, Credential{Secret: secret})
		}
		if n := c.lookups.Load(); n != want {
			t.Errorf("%d look-ups, want %d", n, want)
		}
	}
	ask(secret, 1)
	ask(unknown, 1)
	*now = now.Add(unknownFor)
	ask(secret, 0)
	ask(unknown, 1)
	*now = now.Add(knownFor - unknownFor)
	ask(secret, 1)

	// The store is away: a remembered key works for its time, then nothing does.
	c.err = sandbox.Errorf(sandbox.Unavailable, "away")
	ask(secret, 0)
	*now = now.Add(knownFor)
	_, err = k.Authenticate(ctx, Credential{Secret: secret})
	wantKind(t, err, sandbox.Unavailable)
	c.err = nil
	_, err = k.Authenticate(ctx, Credential{Secret: secret})
	must(t, err)
}

// TestGuessesDoNotEvict: many wrong secrets neither grow the caches nor push out good keys.
func TestGuessesDoNotEvict(t *testing.T) {
	ctx := t.Context()
	k, c, _ := setup(t)
	_, secret, err := k.CreateKey(ctx, root, Key{User: "ann"})
	must(t, err)
	_, err = k.Authenticate(ctx, Credential{Secret: secret})
	must(t, err)
	for i := range cacheSize + 100 {
		_, _ = k.Authenticate(ctx, Credential{Secret: guess(i), Source: fmt.Sprintf("192.0.%d.%d", i>>8, i&0xff)})
	}
	if n := len(k.unknown.items); n != cacheSize || k.unknown.order.Len() != n {
		t.Errorf("%d secrets remembered", n)
	}
	c.err = errors.New("must not be asked")
	_, err = k.Authenticate(ctx, Credential{Secret: secret})
	must(t, err)
}

func TestConcurrent(t *testing.T) {
	ctx := t.Context()
	s, err := store.Open(ctx, store.Options{Journal: filepath.Join(t.TempDir(), "j")})
	must(t, err)
	defer s.Close()
	k := New(s, Options{})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 10 {
				from := fmt.Sprintf("192.0.%d.%d", g, i)
				made, secret, err := k.CreateKey(ctx, root, Key{User: "ann"})
				if err == nil {
					_, err = k.Authenticate(ctx, Credential{Secret: secret, Source: from})
				}
				if err == nil {
					err = k.RevokeKey(ctx, root, made.ID)
				}
				if err != nil {
					t.Error(err)
				}
				if _, err := k.Authenticate(ctx, Credential{Secret: secret, Source: from}); !errors.Is(err, sandbox.Unauthorized) {
					t.Errorf("after the revocation: %v", err)
				}
			}
		})
	}
	wg.Wait()
}

func BenchmarkAuthenticate(b *testing.B) {
	s, err := store.Open(b.Context(), store.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	k := New(s, Options{})
	_, secret, err := k.CreateKey(b.Context(), root, Key{User: "ann"})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := k.Authenticate(b.Context(), Credential{Secret: secret}); err != nil {
			b.Fatal(err)
		}
	}
}

// fakeTokens takes one token for ann's.
type fakeTokens struct{}

func (fakeTokens) Authenticate(_ context.Context, token string) (sandbox.Caller, error) {
	if token != "eyJ.a.b" {
		return sandbox.Caller{}, sandbox.Errorf(sandbox.Unauthorized, "the token is not valid")
	}
	return sandbox.Caller{Owner: sandbox.Owner{Tenant: "acme", User: "ann"}, Role: sandbox.RoleAdmin, Method: sandbox.ByToken}, nil
}

// TestTokens: what has the shape of a token is one, costs no round trip, and acts for its user only.
func TestTokens(t *testing.T) {
	ctx := t.Context()
	_, c, _ := setup(t)
	k := New(c, Options{Tokens: fakeTokens{}})
	if got, err := k.Authenticate(ctx, Credential{Secret: "eyJ.a.b"}); err != nil || got.User != "ann" {
		t.Errorf("%+v, %v", got, err)
	}
	_, err := k.Authenticate(ctx, Credential{Secret: "eyJ.a.c"})
	wantKind(t, err, sandbox.Unauthorized)
	_, err = k.Authenticate(ctx, Credential{Secret: "eyJ.a.b", OnBehalfOf: "bob"})
	wantKind(t, err, sandbox.Forbidden)
	_, err = k.Authenticate(ctx, Credential{Secret: "eyJ.a.c", OnBehalfOf: "bob"})
	wantKind(t, err, sandbox.Unauthorized)
	_, err = New(c, Options{}).Authenticate(ctx, Credential{Secret: "eyJ.a.b"})
	wantKind(t, err, sandbox.Unauthorized)
	if n := c.lookups.Load(); n != 0 {
		t.Errorf("%d look-ups", n)
	}
}
