package oidc

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/skerry-sandbox/skerry/internal/platform/lockedfile"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

const (
	// refreshAfter is how old keys get before the server fetches them again. The old keys stay valid
	// meanwhile.
	refreshAfter = 10 * time.Minute
	// keepFor is how long keys are good for when their issuer cannot be reached.
	keepFor = 24 * time.Hour
	// fetchPause is the least time between two questions to an issuer, whatever tokens come and whatever it answered:
	// a new key of it is known that much later at most.
	fetchPause = 10 * time.Second
	// fetchTime bounds one question, maxDocument its answer and maxKeys the keys in it.
	fetchTime   = 10 * time.Second
	maxDocument = 1 << 20
	maxKeys     = 100
	// minRSABits is the least that RFC 7518 allows.
	minRSABits = 2048
)

// keySet is what an issuer has published. One question at a time is under way, for all who wait.
type keySet struct {
	issuer  string
	url     string // of the keys; "" = as the description says
	client  *http.Client
	now     func() time.Time
	log     *slog.Logger
	ctx     context.Context // ends with the server
	working sync.WaitGroup

	mu      sync.Mutex
	keys    []jose.JSONWebKey
	fetched time.Time     // when keys came
	asked   time.Time     // when they were last asked for
	flight  chan struct{} // closed when the question under way is answered; nil = none is
}

// find returns the key of a token. It waits for the issuer only when it has not seen the key, and asks no more often
// than every fetchPause.
func (s *keySet) find(ctx context.Context, kid, alg string) (any, error) {
	s.mu.Lock()
	now := s.now()
	age := now.Sub(s.fetched)
	key := s.lookup(kid, alg)
	usable := key != nil && age < keepFor
	if key == nil || age >= refreshAfter {
		s.refresh(now)
	}
	flight := s.flight
	s.mu.Unlock()
	if usable {
		return key, nil
	}
	if flight != nil {
		select {
		case <-flight:
		case <-ctx.Done():
			return nil, sandbox.Wrap(sandbox.Unavailable, ctx.Err(), "the token's issuer does not answer")
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key = s.lookup(kid, alg)
	switch {
	case s.fetched.IsZero() || s.now().Sub(s.fetched) >= keepFor:
		return nil, sandbox.Errorf(sandbox.Unavailable, "the keys of the token's issuer cannot be had now")
	case key == nil:
		return nil, refuse("it is signed by no key that its issuer has published for %s", alg)
	}
	return key, nil
}

// lookup finds a key by its name, or the only one when the token names none. s.mu is held.
func (s *keySet) lookup(kid, alg string) any {
	var found any
	for _, k := range s.keys {
		if !fits(k, alg) {
			continue
		}
		switch {
		case kid != "" && k.KeyID == kid:
			return k.Key
		case kid == "" && found != nil:
			return nil // which of them?
		case kid == "":
			found = k.Key
		}
	}
	return found
}

// refresh begins a question, unless one is under way or was asked just now. s.mu is held.
func (s *keySet) refresh(now time.Time) {
	if s.flight != nil || !s.asked.IsZero() && now.Sub(s.asked) < fetchPause || s.ctx.Err() != nil {
		return
	}
	s.asked = now
	flight := make(chan struct{})
	s.flight = flight
	s.working.Go(func() {
		ctx, cancel := context.WithTimeout(s.ctx, fetchTime)
		defer cancel()
		keys, err := s.fetch(ctx)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.flight = nil
		close(flight)
		if err != nil {
			s.log.Warn("the keys of an issuer could not be read; those that are known go on", "issuer", s.issuer, "error", err)
			return
		}
		s.keys, s.fetched = keys, s.now()
	})
}

func (s *keySet) close() {
	s.working.Wait()
	s.client.CloseIdleConnections()
}

func (s *keySet) fetch(ctx context.Context) ([]jose.JSONWebKey, error) {
	url := s.url
	if url == "" {
		var doc struct {
			Issuer string `json:"issuer"`
			Keys   string `json:"jwks_uri"`
		}
		if err := s.get(ctx, strings.TrimSuffix(s.issuer, "/")+"/.well-known/openid-configuration", &doc); err != nil {
			return nil, err
		}
		if doc.Issuer != s.issuer {
			return nil, fmt.Errorf("the description is that of the issuer %.200q", doc.Issuer)
		}
		if err := checkURL(doc.Keys); err != nil {
			return nil, fmt.Errorf("jwks_uri: %w", err)
		}
		if url = doc.Keys; strings.HasPrefix(s.issuer, "https:") && !strings.HasPrefix(url, "https:") {
			return nil, errors.New("jwks_uri: it is not https")
		}
	}
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := s.get(ctx, url, &set); err != nil {
		return nil, err
	}
	if len(set.Keys) > maxKeys {
		return nil, fmt.Errorf("%d keys are more than %d", len(set.Keys), maxKeys)
	}
	var keys []jose.JSONWebKey
	for _, raw := range set.Keys {
		var k jose.JSONWebKey
		if k.UnmarshalJSON(raw) == nil && k.Valid() && k.IsPublic() { // others may be of kinds that are new
			keys = append(keys, k)
		}
	}
	if len(keys) == 0 {
		return nil, errors.New("there is no public key in the set")
	}
	return keys, nil
}

func (s *keySet) get(ctx context.Context, url string, v any) error {
	what, raw, err := s.read(ctx, url)
	switch {
	case err != nil:
		return err
	case len(raw) > maxDocument:
		return fmt.Errorf("%s: more than %d bytes", what, maxDocument)
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// read returns at most maxDocument+1 bytes of a document, and what an error calls it.
func (s *keySet) read(ctx context.Context, url string) (what string, raw []byte, err error) {
	if path, ok := keysFile(url); ok {
		_, raw, err = lockedfile.Read(path, maxDocument)
		return path, raw, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", nil, err
	}
	req.Header.Set("Accept", "application/json")
	res, err := s.client.Do(req)
	if err != nil {
		return "", nil, err
	}
	defer res.Body.Close()
	what = "GET " + url
	if res.StatusCode != http.StatusOK {
		return what, nil, fmt.Errorf("%s: %s", what, res.Status)
	}
	raw, err = io.ReadAll(io.LimitReader(res.Body, maxDocument+1))
	return what, raw, err
}

// fits reports whether a key is one for an algorithm: of its kind, of its size, and meant for signatures.
func fits(k jose.JSONWebKey, alg string) bool {
	if k.Use != "" && k.Use != "sig" || k.Algorithm != "" && k.Algorithm != alg {
		return false
	}
	switch key := k.Key.(type) {
	case *rsa.PublicKey:
		return (strings.HasPrefix(alg, "RS") || strings.HasPrefix(alg, "PS")) && key.N.BitLen() >= minRSABits
	case *ecdsa.PublicKey:
		return map[string]int{"ES256": 256, "ES384": 384, "ES512": 521}[alg] == key.Curve.Params().BitSize
	case ed25519.PublicKey:
		return alg == "EdDSA"
	}
	return false
}
