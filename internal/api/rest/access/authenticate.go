package access

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/skerry-sandbox/skerry/internal/api/auth"
	"github.com/skerry-sandbox/skerry/internal/api/rest/exchange"
	"github.com/skerry-sandbox/skerry/internal/api/rest/problem"
	"github.com/skerry-sandbox/skerry/internal/observe/tracing"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// maxSecretBytes bounds a credential before anything looks at it.
const maxSecretBytes = 16 << 10

// Authenticator finds out who makes a request.
type Authenticator struct {
	// Keys checks credentials. Without it no key is valid.
	Keys Keys
	// Anonymous is who a request without a key is, an administrator and operator. nil: a key is required.
	Anonymous *sandbox.Owner
	// OperatorTenant is the tenant whose administrators also administer what all tenants share. "": no
	// tenant's do, but for Anonymous.
	OperatorTenant string
	// Refused is told of each credential that was refused. May be nil.
	Refused Refused
	// Recheck is how often the credential behind a request that goes on is checked again.
	Recheck time.Duration
	// Tracer makes the spans of requests; nil: none are made.
	Tracer *tracing.Tracer
}

// Keys checks credentials.
type Keys interface {
	// Authenticate says whose a credential is; *auth.TooMany when it was not looked at.
	Authenticate(ctx context.Context, cred auth.Credential) (sandbox.Caller, error)
}

// Refused is told of a credential that was refused, or did not do for its route: c has what is known of
// it, at least the request's id, source and user agent. unseen: too many came before it, so that it was
// not even looked at.
type Refused func(ctx context.Context, c sandbox.Caller, reason string, unseen bool)

func (f Refused) report(ctx context.Context, c sandbox.Caller, reason string, unseen bool) {
	if f != nil {
		f(ctx, c, reason, unseen)
	}
}

// Authenticate turns the credential into the caller of the exchange.
func (a *Authenticator) Authenticate(c *gin.Context) {
	x := exchange.Of(c.Request.Context())
	c.Request = x.Begin(a.Tracer, c.Request, c.FullPath(), c.Param("thread"))
	caller, err := a.identify(c.Request)
	if err != nil {
		var many *auth.TooMany
		var p *problem.Problem
		if errors.As(err, &many) {
			p = TooMany(many)
		} else {
			p = exchange.Problem(c.Request.Context(), problem.NotStarted(err))
		}
		if many != nil || p.Code == string(sandbox.Unauthorized) || p.Code == string(sandbox.Forbidden) {
			refused := sandbox.Caller{RequestID: x.ID, Source: exchange.Source(c.Request), UserAgent: exchange.UserAgent(c.Request)}
			a.Refused.report(c.Request.Context(), refused, p.Detail, many != nil)
		}
		problem.Write(c.Writer, p)
		c.Abort()
		return
	}
	caller.RequestID, caller.Source, caller.UserAgent, caller.TraceID = x.ID, exchange.Source(c.Request), exchange.UserAgent(c.Request), x.Caller.TraceID
	x.Authenticated(caller)
}

// TooMany answers a credential that was not looked at.
func TooMany(e *auth.TooMany) *problem.Problem {
	p := problem.New(sandbox.QuotaExceeded, e.Error()).WithStatus(http.StatusTooManyRequests)
	p.Title = "Too many requests"
	p.RetryAfter(e.Seconds())
	return p
}

func (a *Authenticator) identify(r *http.Request) (sandbox.Caller, error) {
	secret, err := credential(r.Header)
	if err != nil {
		return sandbox.Caller{}, err
	}
	onBehalfOf := r.Header.Get(exchange.OnBehalfOfHeader)
	if secret != "" && a.Keys != nil {
		caller, err := a.Keys.Authenticate(r.Context(), auth.Credential{Secret: secret, OnBehalfOf: onBehalfOf, Source: exchange.Source(r)})
		caller.Operator = caller.Admin() && caller.Tenant == a.OperatorTenant
		return caller, err
	}
	switch {
	case a.Anonymous == nil:
		return sandbox.Caller{}, sandbox.Errorf(sandbox.Unauthorized, "send a key or a token: Authorization: Bearer <key>, or X-API-Key")
	case onBehalfOf != "":
		return sandbox.Caller{}, sandbox.Errorf(sandbox.Forbidden, "On-Behalf-Of needs a key with that right")
	}
	return sandbox.Caller{Owner: *a.Anonymous, Actor: a.Anonymous.User, Role: sandbox.RoleAdmin, Operator: true, Method: sandbox.ByNothing}, nil
}

// credential finds the key in a request's headers; "" when there is none.
func credential(h http.Header) (string, error) {
	secret := h.Get("X-API-Key")
	if auth := h.Get("Authorization"); auth != "" {
		scheme, rest, _ := strings.Cut(auth, " ")
		if !strings.EqualFold(scheme, "Bearer") || rest == "" {
			return "", sandbox.Errorf(sandbox.Unauthorized, "the Authorization header has to be: Bearer <key or token>")
		}
		if secret != "" && secret != rest {
			return "", sandbox.Errorf(sandbox.Unauthorized, "two different credentials were sent")
		}
		secret = strings.TrimSpace(rest)
	}
	if secret == "" {
		secret = protocolCredential(h)
	}
	if len(secret) > maxSecretBytes {
		return "", sandbox.Errorf(sandbox.Unauthorized, "the key is not valid")
	}
	return secret, nil
}

// ProtocolPrefix begins the subprotocol of a WebSocket that is a credential, in base64url without padding. Pages in browsers
// can set no other header of a WebSocket. The server never selects it.
const ProtocolPrefix = "skerry.bearer."

// protocolCredential finds the key among the subprotocols that a WebSocket offers.
func protocolCredential(h http.Header) string {
	if !strings.EqualFold(h.Get("Upgrade"), "websocket") {
		return ""
	}
	for _, line := range h.Values("Sec-WebSocket-Protocol") {
		for offered := range strings.SplitSeq(line, ",") {
			text, ok := strings.CutPrefix(strings.TrimSpace(offered), ProtocolPrefix)
			if secret, err := base64.RawURLEncoding.DecodeString(text); ok && err == nil {
				return string(secret)
			}
		}
	}
	return ""
}

// RecheckEvery is how often the credential behind a request that goes on is checked again.
const RecheckEvery = 10 * time.Second

// Watch checks the credential again while a request goes on: a stream may stay open for hours, and its
// key may be revoked meanwhile. revoked is called once. stop ends the checks and waits for one in progress.
func (a *Authenticator) Watch(r *http.Request, caller sandbox.Caller, revoked func()) (stop func()) {
	ctx, cancel := context.WithCancel(r.Context())
	credential := (&http.Request{Header: r.Header.Clone(), RemoteAddr: r.RemoteAddr}).WithContext(ctx) // others change r meanwhile
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(a.Recheck)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			again, err := a.identify(credential)
			kind := sandbox.KindOf(err)
			if kind == sandbox.Unauthorized || kind == sandbox.Forbidden || err == nil && !again.SamePrincipal(caller) {
				revoked()
				return
			}
		}
	}()
	return func() { cancel(); <-done }
}
