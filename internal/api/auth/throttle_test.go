package auth

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store"
)

func guess(i int) string { return fmt.Sprintf("sk_%016x%048x", uint64(i)*0x9e3779b97f4a7c15, i) }

// TestGuessing: a client that sends wrong keys is slowed before the store is asked; keys that were good are not, not even
// from the same address.
func TestGuessing(t *testing.T) {
	ctx := t.Context()
	k, c, now := setup(t)
	_, secret, err := k.CreateKey(ctx, root, Key{User: "ann"})
	must(t, err)
	fresh := guess(1 << 20)
	must(t, c.PutKey(ctx, store.KeyRecord{ID: "key_new", Tenant: "acme", User: "new", Hash: hashOf(fresh)})) // by another server
	from := func(secret, source string) error {
		_, err := k.Authenticate(ctx, Credential{Secret: secret, Source: source})
		return err
	}
	must(t, from(secret, "192.0.2.1"))
	c.lookups.Store(0)
	var many *TooMany
	slowed := 0
	for i := range 500 {
		switch err := from(guess(i), "192.0.2.1"); {
		case errors.As(err, &many):
			slowed++
		case !errors.Is(err, sandbox.Unauthorized):
			t.Fatal(err)
		}
	}
	if n := c.lookups.Load(); n != sourceBurst || slowed != 500-sourceBurst || many.Wait <= 0 || many.Wait > sourcePause {
		t.Errorf("500 guesses cost %d look-ups, %d were slowed, by %v", n, slowed, many)
	}
	if err := from(fresh, "192.0.2.1"); !errors.As(err, &many) {
		t.Errorf("a key that was never seen, from there: %v", err)
	}
	must(t, from(fresh, "192.0.2.2"))
	*now = now.Add(knownFor) // the caches of good keys are empty
	for i := range 2 * sourceBurst {
		_ = from(guess(1000+i), "192.0.2.1")
	}
	must(t, from(secret, "192.0.2.1"))
	must(t, from(fresh, "192.0.2.1"))
	if err := from("hello", "192.0.2.1"); !errors.As(err, &many) {
		t.Errorf("what is no key: %v", err)
	}
	*now = now.Add(sourcePause)
	if err := from(guess(2000), "192.0.2.1"); !errors.Is(err, sandbox.Unauthorized) {
		t.Errorf("after the wait: %v", err)
	}
}

// TestGuessingFromManyAddresses: keys that begin alike are slowed wherever they come from, and an IPv6 network is one address.
func TestGuessingFromManyAddresses(t *testing.T) {
	k, c, _ := setup(t)
	var many *TooMany
	for i := range 100 {
		_, err := k.Authenticate(t.Context(), Credential{Secret: "sk_01234567" + fmt.Sprintf("%056x", i), Source: fmt.Sprintf("192.0.2.%d", i)})
		if want := i >= prefixBurst; errors.As(err, &many) != want {
			t.Errorf("guess %d: %v", i, err)
		}
	}
	if n := c.lookups.Load(); n != prefixBurst {
		t.Errorf("%d look-ups", n)
	}
	c.lookups.Store(0)
	for i := range 100 {
		_, _ = k.Authenticate(t.Context(), Credential{Secret: guess(i), Source: fmt.Sprintf("2001:db8::%x:%x", i, i)})
	}
	if n := c.lookups.Load(); n != sourceBurst {
		t.Errorf("one network: %d look-ups", n)
	}
	for _, same := range [][2]string{{"::ffff:192.0.2.1", "192.0.2.1"}, {"fe80::1%eth0", "fe80::2%eth1"}} {
		if site(same[0]) != site(same[1]) {
			t.Errorf("%s and %s: %s, %s", same[0], same[1], site(same[0]), site(same[1]))
		}
	}
}

// TestThrottleMemory: a flood from everywhere takes a bounded place.
func TestThrottleMemory(t *testing.T) {
	th := newThrottle()
	now := time.Now()
	for i := range throttled + 5000 {
		th.wrong(fmt.Sprintf("2001:db8:%x:%x::1", i>>16, i&0xffff), fmt.Sprintf("sk_%08x", i), now)
	}
	if a, b := len(th.sources.c.items), len(th.prefixes.c.items); a != throttled || b != throttled {
		t.Errorf("%d addresses, %d beginnings", a, b)
	}
}

// TestRefusals: a flood of refusals is some records and a count.
func TestRefusals(t *testing.T) {
	var records []string
	r := NewRefusals(func(_ context.Context, c sandbox.Caller, reason string) {
		records = append(records, c.Source+": "+reason)
	})
	for i := range 1000 {
		r.Add(t.Context(), sandbox.Caller{Source: "192.0.2.1", RequestID: fmt.Sprint("r", i)}, "wrong", i > 500)
	}
	r.Add(t.Context(), sandbox.Caller{Source: "192.0.2.2"}, "wrong", false)
	if len(records) != refusalsEach+1 {
		t.Errorf("%d records", len(records))
	}
	records = nil
	r.Summarize(t.Context())
	if len(records) != 1 || !strings.HasPrefix(records[0], "192.0.2.1: 990 more") || !strings.Contains(records[0], "r999") {
		t.Errorf("summary %q", records)
	}
	records = nil
	for i := range 100_000 {
		r.Add(t.Context(), sandbox.Caller{Source: fmt.Sprintf("2001:db8:%x:%x::1", i>>16, i&0xffff)}, "wrong", false)
	}
	each := len(records)
	r.Summarize(t.Context())
	if each != refusalsInAll || len(records) > refusalsInAll+refusalSources+1 {
		t.Errorf("a flood from everywhere: %d records, and %d summaries", each, len(records)-each)
	}
	total := each
	for _, rec := range records[each:] {
		var n int
		if _, err := fmt.Sscanf(rec[strings.Index(rec, ": ")+2:], "%d more", &n); err != nil {
			t.Errorf("%q: %v", rec, err)
		}
		total += n
	}
	if total != 100_000 {
		t.Errorf("%d are accounted for", total)
	}
}

// TestRevokedElsewhere: when another server revokes a key, it stops working here as soon as this server
// hears of it, without waiting for the cache. A key that the other server makes works.
func TestRevokedElsewhere(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	k, c, now := setup(t)
	elsewhere := New(c, Options{Now: func() time.Time { return *now }})
	heard := make(chan struct{}, 100)
	ended := make(chan struct{})
	go func() { defer close(ended); elsewhere.Run(ctx, func() { heard <- struct{}{} }) }()
	<-heard // it listens
	made, secret, err := k.CreateKey(ctx, root, Key{User: "ann"})
	must(t, err)
	<-heard
	_, err = elsewhere.Authenticate(ctx, Credential{Secret: secret})
	must(t, err)
	must(t, k.RevokeKey(ctx, root, made.ID))
	<-heard
	_, err = elsewhere.Authenticate(ctx, Credential{Secret: secret}) // the clock stands still: the cache would still have it
	wantKind(t, err, sandbox.Unauthorized)
	end()
	<-ended
}

// TestLastUsed: when a key was used is known at once here, and everywhere once it is written; using it writes nothing.
func TestLastUsed(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	k, c, now := setup(t)
	_, secret, err := k.CreateKey(ctx, root, Key{User: "ann"})
	must(t, err)
	last := func(k *Keys) time.Time {
		list, err := k.ListKeys(t.Context(), root)
		must(t, err)
		if list[0].LastUsedAt == nil {
			return time.Time{}
		}
		return *list[0].LastUsedAt
	}
	if !last(k).IsZero() {
		t.Error("a key that was never used")
	}
	*now = now.Add(time.Minute)
	_, err = k.Authenticate(ctx, Credential{Secret: secret})
	must(t, err)
	elsewhere := New(c, Options{})
	if !last(k).Equal(*now) || !last(elsewhere).IsZero() {
		t.Errorf("used at %s: here %s, elsewhere %s", now, last(k), last(elsewhere))
	}
	ended := make(chan struct{})
	go func() { defer close(ended); k.Run(ctx, nil) }()
	end()
	<-ended
	if !last(elsewhere).Equal(*now) {
		t.Errorf("written: %s", last(elsewhere))
	}
}
