package rest

import (
	"context"
	"errors"
	"mime"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/skerry-sandbox/skerry/internal/api/auth"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// maxSecretBytes bounds a credential before anything looks at it.
const maxSecretBytes = 16 << 10

// authenticate turns the credential into the caller of the exchange.
func (s *server) authenticate(c *gin.Context) {
	x := exchangeOf(c.Request.Context())
	x.begin(s, c)
	caller, err := s.identify(c.Request)
	if err != nil {
		var many *auth.TooMany
		var p *Problem
		if errors.As(err, &many) {
			p = tooMany(many)
		} else {
			p = s.problem(c.Request.Context(), notStarted{err})
		}
		if many != nil || p.Code == string(sandbox.Unauthorized) || p.Code == string(sandbox.Forbidden) {
			refused := sandbox.Caller{RequestID: x.id, Source: source(c.Request), UserAgent: userAgent(c.Request)}
			s.refused(c.Request.Context(), refused, p.Detail, many != nil)
		}
		writeProblem(c.Writer, p)
		c.Abort()
		return
	}
	caller.RequestID, caller.Source, caller.UserAgent, caller.TraceID = x.id, source(c.Request), userAgent(c.Request), x.caller.TraceID
	x.caller, x.known = caller, true
}

// tooMany answers a credential that was not looked at.
func tooMany(e *auth.TooMany) *Problem {
	p := newProblem(sandbox.QuotaExceeded, e.Error()).withStatus(http.StatusTooManyRequests)
	p.Title = "Too many requests"
	p.header = http.Header{"Retry-After": {strconv.Itoa(e.Seconds())}}
	return p
}

func (s *server) identify(r *http.Request) (sandbox.Caller, error) {
	secret, err := credential(r.Header)
	if err != nil {
		return sandbox.Caller{}, err
	}
	onBehalfOf := r.Header.Get("On-Behalf-Of")
	if secret != "" && s.o.Keys != nil {
		caller, err := s.o.Keys.Authenticate(r.Context(), auth.Credential{Secret: secret, OnBehalfOf: onBehalfOf, Source: source(r)})
		caller.Operator = caller.Admin() && caller.Tenant == s.o.OperatorTenant
		return caller, err
	}
	switch {
	case s.o.Anonymous == nil:
		return sandbox.Caller{}, sandbox.Errorf(sandbox.Unauthorized, "send a key or a token: Authorization: Bearer <key>, or X-API-Key")
	case onBehalfOf != "":
		return sandbox.Caller{}, sandbox.Errorf(sandbox.Forbidden, "On-Behalf-Of needs a key with that right")
	}
	return sandbox.Caller{Owner: *s.o.Anonymous, Actor: s.o.Anonymous.User, Role: sandbox.RoleAdmin, Operator: true, Method: sandbox.ByNothing}, nil
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
	if len(secret) > maxSecretBytes {
		return "", sandbox.Errorf(sandbox.Unauthorized, "the key is not valid")
	}
	return secret, nil
}

// source is the address of the peer. Forwarding headers are not believed.
func source(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

func userAgent(r *http.Request) string {
	ua := r.UserAgent()
	if len(ua) > 200 {
		ua = strings.ToValidUTF8(ua[:200], "")
	}
	return ua
}

// rawBodies are the routes that take a body that is not JSON, or not only, each with its media types.
var rawBodies = map[string][]string{
	"PUT /api/threads/:thread/files/content": nil, // any
	"PUT /api/threads/:thread/files/archive": nil,
	"POST /api/threads/:thread/files/upload": {"multipart/form-data"},
	"POST /api/skills/install":               {"application/json", "multipart/form-data"},
	"POST /api/plugins/install":              {"application/json", "multipart/form-data"},
	"PUT /api/skills/custom/:name":           nil, // a browser asks before it sends a PUT to another site
}

var jsonBody = []string{"application/json"}

// contentType refuses a body of another type than the route takes. A browser sends the types of
// forms to other sites without asking first; JSON it does not.
func contentType(c *gin.Context) {
	r := c.Request
	if r.ContentLength == 0 || r.Method == http.MethodGet || r.Method == http.MethodHead {
		return
	}
	want, raw := rawBodies[r.Method+" "+c.FullPath()]
	if !raw {
		want = jsonBody
	}
	given := r.Header.Get("Content-Type")
	if len(want) == 0 || slices.Contains(want, given) {
		return
	}
	got, params, err := mime.ParseMediaType(given)
	charset := strings.ToLower(params["charset"])
	if err == nil && slices.Contains(want, got) && (charset == "" || charset == "utf-8") {
		return
	}
	detail := "the body has to be " + strings.Join(want, " or ")
	writeProblem(c.Writer, newProblem(sandbox.Invalid, detail, FieldError{Field: "Content-Type", Detail: detail}).withStatus(http.StatusUnsupportedMediaType))
	c.Abort()
}

// recheckEvery is how often the credential behind a request that goes on is checked again.
const recheckEvery = 10 * time.Second

// watchCredential checks the credential again while a request goes on: a stream may stay open for hours, and its
// key may be revoked meanwhile. revoked is called once. stop ends the checks and waits for one in progress.
func (s *server) watchCredential(r *http.Request, caller sandbox.Caller, revoked func()) (stop func()) {
	ctx, cancel := context.WithCancel(r.Context())
	credential := (&http.Request{Header: r.Header.Clone(), RemoteAddr: r.RemoteAddr}).WithContext(ctx) // others change r meanwhile
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(s.recheck)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			again, err := s.identify(credential)
			kind := sandbox.KindOf(err)
			if kind == sandbox.Unauthorized || kind == sandbox.Forbidden || err == nil && !again.SamePrincipal(caller) {
				revoked()
				return
			}
		}
	}()
	return func() { cancel(); <-done }
}
