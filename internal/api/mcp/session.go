package mcp

import (
	"context"
	"crypto/rand"
	"net/http"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Limits of the sessions of the era before 2026-07-28.
const (
	sessionIdle      = 30 * time.Minute
	maxSessions      = 2000
	maxOwnerSessions = 100
)

// session is a session and what it is bound to. It is in the table from its beginning to its end.
type session struct {
	id      string
	scope   *Scope
	handler *sdk.StreamableHTTPHandler
	ctx     context.Context // ends with the session
	end     context.CancelFunc
	calls   context.Context // ends the calls in the session
	stop    context.CancelFunc
}

type sessions struct {
	mu   sync.Mutex
	byID map[string]*session
}

// sessionOf finds the session that a request names, when it is the caller's own and of this thread.
// One of another user is as if it were not there.
func (m *Server) sessionOf(r *http.Request, scope *Scope) *session {
	id := r.Header.Get(sessionHeader)
	if id == "" || scope.modern {
		return nil
	}
	m.sessions.mu.Lock()
	defer m.sessions.mu.Unlock()
	s := m.sessions.byID[id]
	if s == nil || !s.scope.Caller.SamePrincipal(scope.Caller) || s.scope.Thread != scope.Thread || s.scope.Only != scope.Only {
		return nil
	}
	return s
}

// begin answers an initialize request, which makes a session.
func (m *Server) begin(w http.ResponseWriter, r *http.Request, scope *Scope) {
	s := &session{id: rand.Text(), scope: scope}
	s.ctx, s.end = context.WithCancel(context.WithoutCancel(r.Context()))
	s.calls, s.stop = context.WithCancel(s.ctx)
	if err := m.sessions.add(s); err != nil {
		s.end()
		m.o.Host.WriteError(w, r, err)
		return
	}
	began := make(chan *sdk.ServerSession, 1)
	scope.server = m.newServer(scope, s)
	scope.server.AddReceivingMiddleware(func(next sdk.MethodHandler) sdk.MethodHandler {
		return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
			res, err := next(ctx, method, req)
			if ss, ok := req.GetSession().(*sdk.ServerSession); ok && err == nil && method == "initialize" {
				began <- ss
			}
			return res, err
		}
	})
	options := m.options()
	options.SessionTimeout = sessionIdle
	s.handler = sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return scope.server }, options)
	quiet := announceTo(m.o.Service, scope) // from before the answer on: the client counts on it
	s.handler.ServeHTTP(w, r)
	select {
	case ss := <-began:
		go m.supervise(s, ss, quiet)
	default:
		quiet()
		m.sessions.remove(s)
		s.end()
	}
}

// supervise sees a session to its end: by its client, by its key's revocation, or because it was not used.
// Then quiet ends what tells the client of changes.
func (m *Server) supervise(s *session, ss *sdk.ServerSession, quiet func()) {
	ended := make(chan struct{})
	go func() {
		_ = ss.Wait() // how it ended does not matter
		close(ended)
	}()
	select {
	case <-s.ctx.Done():
		_ = ss.Close()
		<-ended
	case <-ended:
	}
	quiet()
	m.sessions.remove(s)
	s.end()
}

func (s *session) serve(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodDelete {
		s.stop() // the SDK waits for the calls
	}
	s.handler.ServeHTTP(w, r)
}

func (t *sessions) add(s *session) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	own := 0
	for _, other := range t.byID {
		if other.scope.Caller.Owner == s.scope.Caller.Owner {
			own++
		}
	}
	if own >= maxOwnerSessions || len(t.byID) >= maxSessions {
		return sandbox.Errorf(sandbox.CapacityExceeded, "too many MCP sessions: end one with DELETE, or wait until one has not been used for %s", sessionIdle)
	}
	t.byID[s.id] = s
	return nil
}

func (t *sessions) remove(s *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.byID, s.id)
}
