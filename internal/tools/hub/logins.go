package hub

import (
	"context"
	"errors"
	"net/url"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/excerpt"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/login"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/serverconfig"
)

// States of a server that are reasons.
const (
	stateFailed      = "failed"
	stateNeedsLogin  = "needs_login"
	stateUnavailable = "unavailable"
)

// Logins are the logins of callers at servers.
type Logins struct {
	configs *configurations
	pool    *pool
	dialer  *dialer
	pending pendingLogins
}

// maxPending bounds the logins that wait for people; a new login replaces the oldest.
const maxPending = 200

// withoutSecrets is why a login does not work, as the error of the caller that needs it.
func withoutSecrets(l *link, err error) error {
	return sandbox.Wrap(sandbox.Unavailable, loginCause(err), "%s", l.redact.Replace(excerpt.Detail(err)))
}

// loginCause keeps of an error what is asked for: its texts are for no caller.
func loginCause(err error) error {
	if errors.Is(err, login.ErrNeeded) {
		return login.ErrNeeded
	}
	return nil
}

// pendingLogins are the logins that wait for a person.
type pendingLogins struct {
	mu      sync.Mutex
	byState map[string]*pendingLogin
}

type pendingLogin struct {
	*login.Pending
	client *login.Client
	server string
	scope  serverconfig.Scope
}

func (p *pendingLogins) add(l *pendingLogin) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byState == nil {
		p.byState = map[string]*pendingLogin{}
	}
	if len(p.byState) >= maxPending {
		var oldest *pendingLogin
		for _, l := range p.byState {
			if oldest == nil || l.Expires.Before(oldest.Expires) {
				oldest = l
			}
		}
		delete(p.byState, oldest.State)
		oldest.client.Close()
	}
	p.byState[l.State] = l
}

// take returns a login and forgets it: an answer is tried once.
func (p *pendingLogins) take(state, server string, scope serverconfig.Scope) (*pendingLogin, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l, ok := p.byState[state]
	if !ok || l.server != server || l.scope != scope {
		return nil, false
	}
	delete(p.byState, state)
	return l, true
}

// expire forgets logins that were not finished; all of it at the zero time.
func (p *pendingLogins) expire(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for state, l := range p.byState {
		if now.IsZero() || now.After(l.Expires) {
			delete(p.byState, state)
			l.client.Close()
		}
	}
}

// loginAt returns what logs a caller in at a server, and the scope whose login it is: the caller's own, or
// for a shared server that of all, which is an operator's business.
func (l *Logins) loginAt(ctx context.Context, c sandbox.Caller, server string) (*login.Client, *serverconfig.Target, serverconfig.Scope, error) {
	s, err := enabledServer(l.configs.of(c.Owner), server)
	if err != nil {
		return nil, nil, serverconfig.Scope{}, err
	}
	scope := serverconfig.ScopeOf(s.Scope, sandbox.Thread{Owner: c.Owner})
	if s.Scope == serverconfig.ScopeShared && !c.Operator {
		return nil, nil, scope, sandbox.Errorf(sandbox.Forbidden, "the MCP server %q is shared by all: its login is for an operator", server)
	}
	if s.Type == serverconfig.TransportStdio {
		return nil, nil, scope, sandbox.Errorf(sandbox.Invalid, "the MCP server %q is a program: it has no login here", server)
	}
	t, err := l.dialer.expander.Expand(ctx, s, scope, "")
	if err != nil {
		return nil, nil, scope, configError(server, err)
	}
	client, err := l.dialer.loginClient(s, t, scope)
	switch {
	case err != nil:
		return nil, nil, scope, configError(server, err)
	case client == nil:
		return nil, nil, scope, sandbox.Errorf(sandbox.Invalid, "the MCP server %q has its Authorization in the configuration, or \"oauth\": false", server)
	}
	return client, t, scope, nil
}

// BeginLogin begins a login at an HTTP server and returns the URL that a person opens. redirect is the
// http URL of a loopback address to which the browser is sent back. The login is the caller's own; that
// of a shared server needs an administrator. An error is NotFound, Conflict (not enabled), Forbidden,
// Invalid or Unavailable. FinishLogin has to follow within login.Patience, at the same hub.
func (l *Logins) BeginLogin(ctx context.Context, c sandbox.Caller, server, redirect string) (sandbox.ToolLogin, error) {
	client, t, scope, err := l.loginAt(ctx, c, server)
	if err != nil {
		return sandbox.ToolLogin{}, err
	}
	p, err := client.Begin(ctx, redirect)
	if err != nil {
		client.Close()
		return sandbox.ToolLogin{}, sandbox.Wrap(sandbox.KindOf(err), nil, "%s", t.Redact.Replace(excerpt.Detail(err)))
	}
	l.pending.add(&pendingLogin{p, client, server, scope})
	return sandbox.ToolLogin{URL: p.URL, RedirectURI: p.Redirect(), Expires: p.Expires}, nil
}

// FinishLogin takes the URL that the browser was sent back to, keeps the tokens that it is worth, and
// connects anew. An error is Invalid when the answer belongs to no login of this caller at this server, or
// is a refusal, and as BeginLogin's else; then the login has to begin again.
func (l *Logins) FinishLogin(ctx context.Context, c sandbox.Caller, server, redirected string) error {
	u, err := url.Parse(redirected)
	if err != nil || len(redirected) > 16<<10 {
		return serverconfig.InvalidField("redirected", "is not the URL that the browser was sent back to")
	}
	s, err := enabledServer(l.configs.of(c.Owner), server)
	if err != nil {
		return err
	}
	answer := login.AnswerOf(u.Query())
	p, ok := l.pending.take(answer.State, server, serverconfig.ScopeOf(s.Scope, sandbox.Thread{Owner: c.Owner}))
	if !ok {
		return serverconfig.InvalidField("redirected", "belongs to no login that waits; begin again")
	}
	defer p.client.Close()
	if err := p.client.Finish(ctx, p.Pending, answer); err != nil {
		return sandbox.Wrap(sandbox.KindOf(err), nil, "%s", excerpt.Detail(err))
	}
	l.reconnectScope(server, p.scope)
	return nil
}

// Logout forgets the caller's login at a server, tells its authorization server, and ends the
// connections that it was good for. An error is as BeginLogin's; NotFound also when there is no login.
func (l *Logins) Logout(ctx context.Context, c sandbox.Caller, server string) error {
	client, _, scope, err := l.loginAt(ctx, c, server)
	if err != nil {
		return err
	}
	defer client.Close()
	found, err := client.Forget(ctx)
	l.reconnectScope(server, scope)
	if err == nil && !found {
		err = sandbox.Errorf(sandbox.NotFound, "there is no login at the MCP server %q", server)
	}
	return err
}

// reconnectScope ends the connections to a server that live from one login. The next use makes new ones.
func (l *Logins) reconnectScope(server string, scope serverconfig.Scope) {
	l.pool.reconnect(func(c *conn) bool {
		return c.key.server == server && c.key.scope.Tenant == scope.Tenant && c.key.scope.User == scope.User
	})
}
