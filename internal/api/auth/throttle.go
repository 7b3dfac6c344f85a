package auth

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// A wrong key costs a look at the store, so callers with many are slowed before it: by their address and,
// for guesses from many addresses, by the first digits of the keys. A key that was good not long ago is
// never slowed: behind a proxy all come from one address, the good and the bad.
const (
	// sourceBurst wrong credentials are free for one address, one more every sourcePause; the same for the keys that
	// begin alike.
	sourceBurst = 50
	sourcePause = time.Second
	prefixBurst = 10
	prefixPause = 6 * time.Second
	// prefixDigits of a key are what keys that begin alike have in common.
	prefixDigits = 8
	// throttled bounds the addresses and beginnings that are watched, each.
	throttled = 16 << 10
	// goodFor is how long a key that was good once counts as good.
	goodFor = 24 * time.Hour
	// sourceBitsV6 of an IPv6 address are one site: its other half is free to choose.
	sourceBitsV6 = 64
)

// TooMany is the error of a credential that was not looked at, because too many wrong ones came before it.
type TooMany struct {
	Wait time.Duration // when to try again
}

func (e *TooMany) Error() string {
	return fmt.Sprintf("too many wrong credentials came from here, or began like this one: wait %d s", e.Seconds())
}

// Seconds is Wait in whole seconds, rounded up.
func (e *TooMany) Seconds() int { return int((e.Wait + time.Second - 1) / time.Second) }

// Is makes it a kind of its package's errors.
func (e *TooMany) Is(target error) bool { return target == sandbox.QuotaExceeded }

// bucket holds what is left of a burst at a time; it fills up again by one every pause.
type bucket struct {
	left float64
	at   time.Time
}

// buckets are those of the addresses, or of the beginnings. Its owner locks them.
type buckets struct {
	burst float64
	pause time.Duration
	c     *cache[bucket]
}

func newBuckets(burst float64, pause time.Duration) *buckets {
	return &buckets{burst: burst, pause: pause, c: newCache[bucket](throttled)}
}

// now returns the bucket of a name as it is now.
func (b *buckets) now(name string, now time.Time) bucket {
	at, ok := b.c.get(name, now)
	if !ok {
		return bucket{left: b.burst, at: now}
	}
	return bucket{left: min(b.burst, at.left+float64(now.Sub(at.at))/float64(b.pause)), at: now}
}

// wait is how long a name has to wait; 0: not at all.
func (b *buckets) wait(name string, now time.Time) time.Duration {
	if left := b.now(name, now).left; left < 1 {
		return time.Duration((1 - left) * float64(b.pause))
	}
	return 0
}

// take notes a wrong credential. A bucket that is full again is forgotten.
func (b *buckets) take(name string, now time.Time) {
	bk := b.now(name, now)
	bk.left = max(0, bk.left-1)
	b.c.put(name, bk, now.Add(time.Duration((b.burst-bk.left)*float64(b.pause))))
}

// throttle slows who sends wrong credentials. Its owner locks it.
type throttle struct {
	sources, prefixes *buckets
	good              *cache[struct{}] // hashes of credentials that were
}

func newThrottle() *throttle {
	return &throttle{
		sources: newBuckets(sourceBurst, sourcePause), prefixes: newBuckets(prefixBurst, prefixPause), good: newCache[struct{}](cacheSize),
	}
}

// wait says how long to wait before a credential is looked at.
func (t *throttle) wait(source, prefix string, now time.Time) time.Duration {
	return max(t.sources.wait(site(source), now), t.prefixes.wait(prefix, now))
}

func (t *throttle) wrong(source, prefix string, now time.Time) {
	t.sources.take(site(source), now)
	if prefix != "" {
		t.prefixes.take(prefix, now)
	}
}

// site is what one sender can be expected to have of addresses: an IPv4 address, or an IPv6 network.
func site(source string) string {
	a, err := netip.ParseAddr(source)
	if err != nil {
		return source
	}
	if a = a.Unmap(); a.Is6() {
		if p, err := a.WithZone("").Prefix(sourceBitsV6); err == nil {
			return p.String()
		}
	}
	return a.String()
}

// prefixOf is what keys that begin alike have in common; "" of what is no key.
func prefixOf(secret string) string {
	if !looksLikeSecret(secret) {
		return ""
	}
	return secret[:len(secretPrefix)+prefixDigits]
}
