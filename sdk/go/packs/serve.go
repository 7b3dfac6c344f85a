package packs

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	packsv1 "github.com/skerry-sandbox/skerry/sdk/packs/v1"
	"github.com/skerry-sandbox/skerry/sdk/packs/v1/packsv1connect"
)

const (
	firstPause   = 100 * time.Millisecond
	longestPause = 10 * time.Second
	// longestMove is the longest pause while the server that stops still has the pack.
	longestMove = time.Second
	pauseSpread = 4       // a pause is longer by up to one part of so many
	maxMessage  = 8 << 20 // bytes of a message of the server
	defParallel = 16
	idBytes     = 12
	dialTime    = 10 * time.Second
	connectTime = 3 * time.Second // of one address
)

// Server is where a pack connects to, and as whom.
type Server struct {
	// URL is the address of the server's API.
	URL string
	// Others are addresses of further servers of the same installation. They are tried in turn when one does not take the
	// pack. Behind an address that leads to all servers they are not needed.
	Others []string
	// Credential proves who the pack is; nil: nothing does, which only a server without keys takes.
	Credential Credential
	// TLS is for https; nil: the system's authorities count.
	TLS *tls.Config
	// Drain is how long calls may go on after the context of Serve has ended; 0: 30 s.
	Drain time.Duration
	// Log gets connections and their ends; nil: slog.Default().
	Log *slog.Logger
	// Connected is called each time the server has taken the pack. May be nil.
	Connected func()
}

// Credential proves to a server who a pack is.
type Credential interface {
	// apply sets headers of a request. sign returns the signature of a challenge, or nil.
	apply(h http.Header)
	sign(c *packsv1.Challenge, pack, address string) ([]byte, error)
}

// BearerKey is a key of the server with the role pack.
type BearerKey string

func (k BearerKey) apply(h http.Header) { h.Set("Authorization", "Bearer "+string(k)) }

func (BearerKey) sign(*packsv1.Challenge, string, string) ([]byte, error) { return nil, nil }

// noCredential is for a server that wants none.
type noCredential struct{}

func (noCredential) apply(http.Header) {}

func (noCredential) sign(*packsv1.Challenge, string, string) ([]byte, error) { return nil, nil }

func (s *Server) fill() {
	if s.Credential == nil {
		s.Credential = noCredential{}
	}
	if s.Drain == 0 {
		s.Drain = 30 * time.Second
	}
	if s.Log == nil {
		s.Log = slog.Default()
	}
	if s.Connected == nil {
		s.Connected = func() {}
	}
}

// errDrained says that a connection ended because ctx did.
var errDrained = errors.New("drained")

// Serve offers the pack's tools on a server until ctx ends. It then takes no new calls, lets those that run end, and
// returns nil. When the connection is lost it connects again, and waits longer after each failure. A tool that goes on
// after its context has ended keeps nothing up: its result is dropped, and it takes the place of a call until it returns.
// An error is that the server refuses the pack: its manifest, or its credential.
func (p *Pack) Serve(ctx context.Context, s Server) error { return p.serve(ctx, s, refuses) }

// address is one of a server, with what connects to it.
type address struct {
	url, host string
	client    packsv1connect.PackServiceClient
}

// addresses are those of s. close closes their connections.
func (s *Server) addresses() (list []address, closeAll func(), err error) {
	var open []*http.Transport
	closeAll = func() {
		for _, t := range open {
			t.CloseIdleConnections()
		}
	}
	for _, text := range append([]string{s.URL}, s.Others...) {
		u, err := url.Parse(text)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, closeAll, fmt.Errorf("packs: %q is not the URL of a server", text)
		}
		dialer := net.Dialer{Timeout: connectTime}
		t := &http.Transport{TLSClientConfig: s.TLS, Protocols: protocols(u.Scheme), TLSHandshakeTimeout: dialTime, DialContext: dialer.DialContext}
		open = append(open, t)
		client := packsv1connect.NewPackServiceClient(&http.Client{Transport: t}, strings.TrimSuffix(text, "/"), connect.WithReadMaxBytes(maxMessage))
		list = append(list, address{text, u.Host, client})
	}
	return list, closeAll, nil
}

// serve is Serve. final reports whether another try has no use; welcomed says that the server took the pack before.
func (p *Pack) serve(ctx context.Context, s Server, final func(err error, welcomed bool) bool) error {
	s.fill()
	list, closeAll, err := s.addresses()
	defer closeAll()
	if err != nil {
		return err
	}
	id := make([]byte, idBytes)
	_, _ = rand.Read(id)    // never fails (crypto/rand)
	var left sync.WaitGroup // connections to servers that stop
	defer left.Wait()
	var old *connection // to a server that stops, until another one takes the pack
	welcomed := false
	var running atomic.Int64
	for at, tries := 0, 0; ; at = (at + 1) % len(list) {
		c := newConnection(p, &s, hex.EncodeToString(id), list[at], &running)
		ended := make(chan error, 1)
		left.Go(func() { ended <- c.run(ctx, old) })
		var err error
		select {
		case err = <-ended:
		case <-c.leaves.c: // it goes on until its successor is welcome
			old, welcomed, tries = c, true, 0
			continue
		}
		if tries++; c.welcomed {
			old, welcomed, tries = nil, true, 0
			at-- // the same address once more
		}
		switch {
		case errors.Is(err, errDrained), ctx.Err() != nil:
			return nil
		case final(err, welcomed):
			return fmt.Errorf("packs: the server refuses the pack %q: %w", p.ID, err)
		}
		longest := longestPause
		if old != nil && !old.over() {
			longest = longestMove
		}
		pause := min(firstPause<<min(max(tries-1, 0)/len(list), 10), longest)
		pause += mathrand.N(pause / pauseSpread) //nolint:gosec // it spreads packs, and hides nothing
		if tries%len(list) != 0 {
			pause = 0 // the next address first
		}
		s.Log.Warn("pack: not connected, and tried again", "pack", p.ID, "server", c.at.url, "in", pause, "error", err)
		if !sleep(ctx, pause) {
			return nil
		}
	}
}

// sleep waits, and reports whether ctx went on for so long.
func sleep(ctx context.Context, d time.Duration) bool {
	wait := time.NewTimer(d)
	defer wait.Stop()
	select {
	case <-wait.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// refuses reports whether another try has no use. A server that took the pack before may take it again.
func refuses(err error, welcomed bool) bool {
	switch connect.CodeOf(err) {
	case connect.CodeInvalidArgument, connect.CodeUnimplemented:
		return true
	case connect.CodeUnauthenticated, connect.CodePermissionDenied:
		return !welcomed
	}
	return false
}

// protocols: streams in both directions need HTTP/2.
func protocols(scheme string) *http.Protocols {
	p := &http.Protocols{}
	if scheme == "http" {
		p.SetUnencryptedHTTP2(true)
	} else {
		p.SetHTTP2(true)
	}
	return p
}

// Reload tells the server which tools the pack has now. Calls under way go on. An error is that the server refuses them,
// and the former tools stay offered, or that there is no connection: the next one has them.
func (p *Pack) Reload(ctx context.Context) error {
	p.mu.Lock()
	c := p.current
	p.mu.Unlock()
	if c == nil {
		return errors.New("packs: the pack is not connected")
	}
	return c.reload(ctx)
}
