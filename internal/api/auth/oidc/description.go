package oidc

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// endpoints are where an issuer takes logins, as its description says.
type endpoints struct {
	Issuer        string `json:"issuer"`
	Authorization string `json:"authorization_endpoint"`
	Token         string `json:"token_endpoint"`
}

// description is what an issuer says of its endpoints. One question at a time is under way, and others wait for it.
type description struct {
	keys *keySet       // of the same issuer
	name string        // of the issuer
	turn chan struct{} // holds one element while a goroutine has what is below

	known   endpoints
	fetched time.Time // when known came
	asked   time.Time // when it was last asked for
	failed  error     // of that question
}

func newDescription(keys *keySet, name string) *description {
	return &description{keys: keys, name: name, turn: make(chan struct{}, 1)}
}

// get returns the endpoints. It asks for them when they are old, and no more often than every fetchPause. Old ones are good as
// long as the issuer does not answer. Unavailable: there are none.
func (d *description) get(ctx context.Context) (endpoints, error) {
	select {
	case d.turn <- struct{}{}:
		defer func() { <-d.turn }()
	case <-ctx.Done():
		return endpoints{}, sandbox.Wrap(sandbox.Unavailable, ctx.Err(), "%s does not answer", d.name)
	}
	now := d.keys.now()
	age := now.Sub(d.fetched)
	if !d.fetched.IsZero() && age < refreshAfter {
		return d.known, nil
	}
	if d.asked.IsZero() || now.Sub(d.asked) >= fetchPause {
		d.asked = now
		known, err := d.fetch(ctx)
		if d.failed = err; err == nil {
			d.known, d.fetched = known, now
		}
	}
	if d.failed != nil && (d.fetched.IsZero() || age >= keepFor) {
		return endpoints{}, sandbox.Wrap(sandbox.Unavailable, d.failed, "%s cannot be asked for logins now", d.name)
	}
	return d.known, nil
}

// fetch asks the issuer. A client that goes away does not end the question: others wait for the answer.
func (d *description) fetch(ctx context.Context) (endpoints, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fetchTime/2)
	defer cancel()
	stop := context.AfterFunc(d.keys.ctx, cancel) // the server ends
	defer stop()
	var e endpoints
	if err := d.keys.get(ctx, strings.TrimSuffix(d.keys.issuer, "/")+"/.well-known/openid-configuration", &e); err != nil {
		return e, err
	}
	if e.Issuer != d.keys.issuer {
		return e, fmt.Errorf("the description is that of the issuer %.200q", e.Issuer)
	}
	for name, at := range map[string]string{"authorization_endpoint": e.Authorization, "token_endpoint": e.Token} {
		if err := checkURL(at); err != nil {
			return e, fmt.Errorf("%s: %w", name, err)
		}
		if strings.HasPrefix(d.keys.issuer, "https:") && !strings.HasPrefix(at, "https:") {
			return e, fmt.Errorf("%s: it is not https", name)
		}
	}
	return e, nil
}
