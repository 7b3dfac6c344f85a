package auth

import (
	"crypto/sha256"
	"sync"
	"time"
)

// Guesses slows who guesses what is no key, and is dear to look at: by address, as those who send wrong keys. What was good not
// long ago is never slowed.
type Guesses struct {
	mu      sync.Mutex
	sources *buckets
	good    *cache[struct{}] // by digest
	now     func() time.Time
}

// NewGuesses makes one that knows nobody.
func NewGuesses() *Guesses {
	return &Guesses{sources: newBuckets(sourceBurst, sourcePause), good: newCache[struct{}](cacheSize), now: time.Now}
}

// Look calls check, which says whether a secret from an address is good, unless too many wrong ones came from there.
func (g *Guesses) Look(source, secret string, check func() bool) bool {
	sum := sha256.Sum256([]byte(secret))
	key, now := string(sum[:]), g.now()
	g.mu.Lock()
	_, known := g.good.get(key, now)
	slow := !known && g.sources.wait(site(source), now) > 0
	g.mu.Unlock()
	if slow {
		return false
	}
	good := check()
	g.mu.Lock()
	defer g.mu.Unlock()
	if good {
		g.good.put(key, struct{}{}, now.Add(goodFor))
	} else {
		g.sources.take(site(source), now)
	}
	return good
}

// Wait is how long a source has to wait before it may try again; 0: not at all.
func (g *Guesses) Wait(source string) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.sources.wait(site(source), g.now())
}

// Wrong notes a try of a source that failed.
func (g *Guesses) Wrong(source string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sources.take(site(source), g.now())
}
