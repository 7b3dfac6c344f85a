package template

import (
	"go.yaml.in/yaml/v4"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// What a pool has when its template does not say, and its bounds.
const (
	poolMin     = 1
	poolBurst   = 2
	poolMaxAge  = 3600
	maxPool     = 1000
	maxBurst    = 32
	maxPoolWait = 7 * 24 * 3600
)

// pool reads how many sandboxes wait. A target of 0 is the same as no pool.
func (p *parser) pool(to **sandbox.Pool) func(string, *yaml.Node) {
	return func(field string, n *yaml.Node) {
		*to = &sandbox.Pool{Min: poolMin, Burst: poolBurst, MaxAgeSeconds: poolMaxAge}
		p.fields(n, field+".", map[string]func(string, *yaml.Node){
			"target": number(p, &(*to).Target), "min": number(p, &(*to).Min), "burst": number(p, &(*to).Burst), "max_age_s": number(p, &(*to).MaxAgeSeconds),
		})
	}
}

func (p *parser) checkPool(t *Template) {
	pool := t.Pool
	if pool == nil || p.broken["pool"] {
		return
	}
	_, there := p.seen["pool.target"]
	p.wrong(!there, "pool.target", "is missing: say how many sandboxes wait, or 0 for none")
	p.wrong(pool.Target < 0 || pool.Target > maxPool, "pool.target", "%d: want 0 to %d", pool.Target, maxPool)
	if pool.Target <= 0 {
		t.Pool = nil
		return
	}
	p.wrong(pool.Min < 0 || pool.Min > pool.Target, "pool.min", "%d: want 0 to %d, the target", pool.Min, pool.Target)
	p.wrong(pool.Burst < 1 || pool.Burst > maxBurst, "pool.burst", "%d: want 1 to %d", pool.Burst, maxBurst)
	p.wrong(pool.MaxAgeSeconds < 1 || pool.MaxAgeSeconds > maxPoolWait, "pool.max_age_s", "%d: want 1 to %d seconds", pool.MaxAgeSeconds, maxPoolWait)
}

// kubernetes reads what is for the driver kubernetes alone.
func (p *parser) kubernetes(claimPool *string) func(string, *yaml.Node) {
	return func(field string, n *yaml.Node) {
		p.fields(n, field+".", map[string]func(string, *yaml.Node){"claim": func(field string, n *yaml.Node) {
			p.fields(n, field+".", map[string]func(string, *yaml.Node){"pool": p.text(claimPool)})
		}})
	}
}

func (p *parser) checkClaim(t *Template) {
	const field = "kubernetes.claim.pool"
	_, there := p.seen["kubernetes"]
	if !there || p.broken["kubernetes"] || p.broken["kubernetes.claim"] || p.broken[field] {
		return
	}
	p.wrong(!namePattern.MatchString(t.ClaimPool) || t.ClaimPool[len(t.ClaimPool)-1] == '-', field, "%.80q: want the name of a SandboxWarmPool, 1 to 63 of a-z, 0-9 and -", t.ClaimPool)
	p.wrong(t.ClaimPool != "" && t.Pool != nil, field, "there is a pool, too: sandboxes wait in one of both")
}
