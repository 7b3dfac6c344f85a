package rest

import (
	"context"
	"crypto/rand"
	"net/http"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Limits of the sessions of the era before 2026-07-28.
const (
	sessionIdle      = 30 * time.Minute
	maxSessions      = 2000
	maxOwnerSessions = 100
)

// mcpSession is a session and what it is bound to. It is in the table from its beginning to its end.
type mcpSession struct {
	id      string
	scope   *mcpScope
	handler *mcp.StreamableHTTPHandler
	ctx     context.Context // ends with the session
	end     context.CancelFunc
	calls   context.Context // ends the calls in the session
	stop    context.CancelFunc
}

type mcpSessions struct {
	mu   sync.Mutex
	byID map[string]*mcpSession
}

// sessionOf finds the session that a request names, when it is the caller's own and of this thread.
// One of another user is as if it were not there.
func (m *mcpService) sessionOf(r *http.Request, scope *mcpScope) *mcpSession {
	id := r.Header.Get(sessionHeader)
	if id == "" || scope.modern {
		return nil
	}
	m.sessions.mu.Lock()
	defer m.sessions.mu.Unlock()
	s := m.sessions.byID[id]
	if s == nil || !s.scope.caller.SamePrincipal(scope.caller) || s.scope.thread != scope.thread || s.scope.only != scope.only {
		return nil
	}
	return s
}

// begin answers an initialize request, which makes a session.
func (m *mcpService) begin(w http.ResponseWriter, r *http.Request, scope *mcpScope) {
	s := &mcpSession{id: rand.Text(), scope: scope}
	s.ctx, s.end = context.WithCancel(context.WithoutCancel(r.Context()))
	s.calls, s.stop = context.WithCancel(s.ctx)
	if err := m.sessions.add(s); err != nil {
		s.end()
		writeProblem(w, m.s.problem(r.Context(), err))
		return
	}
	began := make(chan *mcp.ServerSession, 1)
	scope.server = m.newServer(scope, s)
	scope.server.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			res, err := next(ctx, method, req)
			if ss, ok := req.GetSession().(*mcp.ServerSession); ok && err == nil && method == "initialize" {
				began <- ss
			}
			return res, err
		}
	})
	options := m.options()
	options.SessionTimeout = sessionIdle
	s.handler = mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return scope.server }, options)
	quiet := m.s.announceTo(scope.server) // from before the answer on: the client counts on it
	s.handler.ServeHTTP(w, r)
	select {
	case ss := <-began:
		go m.mind(s, ss, quiet)
	default:
		quiet()
		m.sessions.remove(s)
		s.end()
	}
}

// mind sees a session to its end: by its client, by its key's revocation, or because it was not used. Then
// quiet ends what tells the client of changes.
func (m *mcpService) mind(s *mcpSession, ss *mcp.ServerSession, quiet func()) {
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

func (s *mcpSession) serve(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodDelete {
		s.stop() // the SDK waits for the calls
	}
	s.handler.ServeHTTP(w, r)
}

func (t *mcpSessions) add(s *mcpSession) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	own := 0
	for _, other := range t.byID {
		if other.scope.caller.Owner == s.scope.caller.Owner {
			own++
		}
	}
	if own >= maxOwnerSessions || len(t.byID) >= maxSessions {
		return sandbox.Errorf(sandbox.CapacityExceeded, "too many MCP sessions: end one with DELETE, or wait until one has not been used for %s", sessionIdle)
	}
	t.byID[s.id] = s
	return nil
}

func (t *mcpSessions) remove(s *mcpSession) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.byID, s.id)
}
