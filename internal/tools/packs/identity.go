package packs

import (
	"context"
	"crypto/x509"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/packs/manifest"
	packsv1 "github.com/skerry-sandbox/skerry/sdk/packs/v1"
)

// Grant is what a credential may provide.
type Grant struct {
	Identity     string   // for people: what the credential is
	Tenant       string   // whose users get the packs; "" for all
	Packs        []string // names, or "prefix*"; nil: any
	Capabilities []string // the only ones that tools may require; nil: any
	// Thread is the only one that has the pack, and Channel the random id of its skill; zero: all users of Tenant have it.
	Thread  sandbox.Thread
	Channel string
	// Server is the one that has that skill; "" without.
	Server string
	// Again checks the credential once more; nil: another part does, and ends the stream's context.
	Again func(ctx context.Context) error
}

// Covers reports whether names of packs, or beginnings of them with a * behind, have a pack among them; nil: any.
func Covers(list []string, pack string) bool {
	return list == nil || slices.ContainsFunc(list, func(p string) bool {
		prefix, any := strings.CutSuffix(p, "*")
		return p == pack || any && strings.HasPrefix(pack, prefix)
	})
}

// Keys checks credentials that are no bearer keys. An error is Unauthorized.
type Keys interface {
	// Signature checks an SSH signature of text for a pack.
	Signature(ctx context.Context, signature []byte, text, pack string) (Grant, error)
	// Certificate looks up the certificate of a TLS client, which the listener has checked.
	Certificate(ctx context.Context, c *x509.Certificate) (Grant, error)
}

// manifest checks what the pack of the credential offers.
func (g Grant) manifest(p *packsv1.PackManifest) (*manifest.Manifest, error) {
	if n := len(p.GetTools()); g.Channel != "" && n > sandbox.MaxSkillTools {
		return nil, sandbox.Errorf(sandbox.Invalid, "tools: a skill has at most %d, and this one has %d", sandbox.MaxSkillTools, n)
	}
	return manifest.Check(p, g.Capabilities)
}

// ChannelKeys begins each key of a skill. No other credential begins so.
const ChannelKeys = "skerry-skill-"

// Channels checks the keys of skills of threads.
type Channels interface {
	// Channel returns what a key is good for. Unauthorized: for nothing, or for nothing any more.
	Channel(ctx context.Context, key string) (Grant, error)
}

// proof is what a pack has sent to prove who it is.
type proof struct {
	open      *packsv1.Open
	challenge *packsv1.Challenge
	signature []byte
}

// maxSignature bounds a signature with the certificate in it.
const maxSignature = 16 << 10

// identify says what the credential of a stream may provide. A signature goes before a bearer key, and that before a
// certificate.
func (r *Registry) identify(ctx context.Context, peer Peer, p proof) (Grant, error) {
	switch {
	case peer.ChannelKey != "":
		if r.o.Channels == nil {
			return Grant{}, sandbox.Errorf(sandbox.Unauthorized, "this server has no skills with channels")
		}
		return r.o.Channels.Channel(ctx, peer.ChannelKey)
	case len(p.signature) > maxSignature:
		return Grant{}, sandbox.Errorf(sandbox.Unauthorized, "the signature has more than %d bytes", maxSignature)
	case len(p.signature) > 0 && r.o.Keys != nil:
		if time.Now().Unix() > p.challenge.GetExpiresAt() {
			return Grant{}, sandbox.Errorf(sandbox.Unauthorized, "the answer to the challenge came too late")
		}
		if p.open.GetAddress() != peer.Host {
			return Grant{}, sandbox.Errorf(sandbox.Unauthorized, "the pack has signed for the address %q, and its request came for %q", p.open.GetAddress(), peer.Host)
		}
		return r.o.Keys.Signature(ctx, p.signature, p.signed(), p.open.GetPackId())
	case peer.Caller != nil:
		return bearer(*peer.Caller)
	case peer.Certificate != nil && r.o.Keys != nil:
		return r.o.Keys.Certificate(ctx, peer.Certificate)
	}
	return Grant{}, sandbox.Errorf(sandbox.Unauthorized, "no credential: sign the challenge with an SSH key that authorized_packs has, or send a key with the role pack")
}

// bearer is what a bearer key may provide: packs of its own tenant.
func bearer(c sandbox.Caller) (Grant, error) {
	if c.Role != sandbox.RolePack && c.Role != sandbox.RoleAdmin {
		return Grant{}, sandbox.Errorf(sandbox.Forbidden, "the role %s may not provide packs: use a key with the role pack", c.Role)
	}
	g := Grant{Identity: "key " + c.KeyID, Tenant: c.Tenant}
	if c.Method == sandbox.ByNothing {
		g.Identity = "no credential"
	}
	if c.Role == sandbox.RolePack && len(c.Capabilities) > 0 {
		g.Capabilities = c.Capabilities
	}
	return g, nil
}

// slow holds back addresses that sent wrong credentials.
type slow struct {
	mu      sync.Mutex
	sources map[string]*rate.Limiter
}

const (
	// wrongAtOnce wrong credentials are free for one address, and one more every wrongPause.
	wrongAtOnce = 10
	wrongPause  = 5 * time.Second
	maxSources  = 4096
	siteBits    = 64 // of an IPv6 address are one site
)

func newSlow() *slow { return &slow{sources: map[string]*rate.Limiter{}} }

// site is what one sender can be expected to have of addresses.
func site(source string) string {
	a, err := netip.ParseAddr(source)
	if err != nil {
		return source
	}
	if a = a.Unmap(); a.Is6() {
		if p, err := a.WithZone("").Prefix(siteBits); err == nil {
			return p.String()
		}
	}
	return a.String()
}

// wait is how long an address has to wait; 0: not at all.
func (s *slow) wait(source string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.sources[site(source)]
	if l == nil {
		return 0
	}
	if left := l.Tokens(); left < 1 {
		return time.Duration((1 - left) * float64(wrongPause))
	}
	return 0
}

// wrong notes a wrong credential.
func (s *slow) wrong(source string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := site(source)
	l := s.sources[name]
	if l == nil {
		if len(s.sources) >= maxSources {
			for other, limiter := range s.sources { // those that are free again, else all
				if limiter.Tokens() >= wrongAtOnce {
					delete(s.sources, other)
				}
			}
			if len(s.sources) >= maxSources {
				clear(s.sources)
			}
		}
		l = rate.NewLimiter(rate.Every(wrongPause), wrongAtOnce)
		s.sources[name] = l
	}
	l.Allow()
}
