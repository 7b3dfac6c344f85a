package sandboxd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	sandboxv1 "github.com/skerry-sandbox/skerry/internal/sandboxapi/v1"
	"github.com/skerry-sandbox/skerry/internal/sandboxd/interp"
	"github.com/skerry-sandbox/skerry/internal/sandboxd/process"
)

// sessions are the interpreters of contexts.
type sessions struct{ *service }

const (
	// maxContexts bounds the interpreters that live on; the server's own limit is lower.
	maxContexts = 32
	// openTime bounds the start of one. Importing IPython takes a second where nothing is cached.
	openTime = 30 * time.Second
)

// contexts are the interpreters that live on between execs.
type contexts struct {
	mu   sync.Mutex
	byID map[string]*contextOf
}

// contextOf is one of them. session is nil while it starts.
type contextOf struct {
	language, cwd string
	began         time.Time
	session       *process.Session
}

func (s *service) OpenContext(ctx context.Context, req *connect.Request[sandboxv1.OpenContextRequest]) (*connect.Response[sandboxv1.OpenContextResponse], error) {
	m := req.Msg
	if !execID.MatchString(m.GetContextId()) {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("context id %.140q", m.GetContextId()))
	}
	c := &contextOf{language: m.GetLanguage(), cwd: m.GetCwd(), began: time.Now()}
	if err := s.contexts.claim(m.GetContextId(), c); err != nil {
		return nil, err
	}
	session, err := sessions{s}.openSession(ctx, m)
	if err != nil {
		s.contexts.drop(m.GetContextId(), c)
		return nil, contextError(err)
	}
	s.contexts.mu.Lock()
	c.session = session
	s.contexts.mu.Unlock()
	return connect.NewResponse(&sandboxv1.OpenContextResponse{}), nil
}

func (s sessions) openSession(ctx context.Context, m *sandboxv1.OpenContextRequest) (*process.Session, error) {
	cwd := m.GetCwd()
	if cwd == "" {
		cwd = s.o.WorkspaceDir
	}
	cwd = folder(cwd)
	p, err := s.interp.Kernel(m.GetLanguage(), cwd, interp.Choice{JavaScript: m.GetJavascript()})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	return s.execs.OpenSession(ctx, process.Request{
		Argv: p.Argv, Env: mergeEnv(s.o.BaseEnv, lasting(m.GetEnv()), path.Clean(cwd), p), Cwd: cwd, Cleanup: p.Cleanup,
	})
}

func (s *service) InterruptContext(_ context.Context, req *connect.Request[sandboxv1.InterruptContextRequest]) (*connect.Response[sandboxv1.InterruptContextResponse], error) {
	session, err := s.contexts.session(req.Msg.GetContextId())
	if err == nil {
		err = session.Interrupt()
	}
	return answer(&sandboxv1.InterruptContextResponse{}, err)
}

func (s *service) CloseContext(ctx context.Context, req *connect.Request[sandboxv1.CloseContextRequest]) (*connect.Response[sandboxv1.CloseContextResponse], error) {
	session, err := s.contexts.session(req.Msg.GetContextId())
	if errors.Is(err, process.ErrNotFound) {
		return connect.NewResponse(&sandboxv1.CloseContextResponse{}), nil
	}
	if err == nil {
		err = session.Close(ctx)
	}
	if err == nil {
		s.contexts.forget(req.Msg.GetContextId(), session)
	}
	return answer(&sandboxv1.CloseContextResponse{}, err)
}

// contextRequest is the request of an exec in a context.
func (s sessions) contextRequest(m *sandboxv1.RunRequest, r process.Request) (process.Request, error) {
	c := m.GetCode()
	if c == nil || len(m.GetArgv()) > 0 || m.GetShell() != "" || m.GetTerminal() != nil || len(m.GetStdin()) > 0 || m.GetKeepStdin() || m.GetCwd() != "" {
		return r, errors.New("an exec in a context is code, without stdin, terminal and working folder")
	}
	session, err := s.contexts.session(m.GetContextId())
	if err != nil {
		return r, err
	}
	if session.Busy() {
		return r, process.ErrTaken
	}
	if len(c.GetText()) > interp.MaxText {
		return r, fmt.Errorf("the code has %d bytes, the limit is %d", len(c.GetText()), interp.MaxText)
	}
	env := make(map[string]string, len(m.GetEnv()))
	for _, kv := range m.GetEnv() {
		name, value, _ := strings.Cut(kv, "=")
		env[name] = value
	}
	r.Session = session
	r.Frame, err = json.Marshal(struct {
		Run  string            `json:"run"`
		Code string            `json:"code"`
		Env  map[string]string `json:"env"`
		Dir  string            `json:"dir"`
	}{m.GetExecId(), c.GetText(), env, m.GetSpillDir()})
	return r, err
}

// claim takes an id for a context that starts.
func (cs *contexts) claim(id string, c *contextOf) error {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.sweep()
	if cs.byID[id] != nil {
		return connect.NewError(connect.CodeAlreadyExists, errors.New("the context is there already"))
	}
	if len(cs.byID) >= maxContexts {
		return connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("the sandbox has %d contexts, its most", maxContexts))
	}
	if cs.byID == nil {
		cs.byID = map[string]*contextOf{}
	}
	cs.byID[id] = c
	return nil
}

// sweep forgets contexts that have ended. The caller holds mu.
func (cs *contexts) sweep() {
	for id, c := range cs.byID {
		if c.session == nil {
			continue
		}
		select {
		case <-c.session.Gone():
			delete(cs.byID, id)
		default:
		}
	}
}

func (cs *contexts) drop(id string, c *contextOf) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.byID[id] == c {
		delete(cs.byID, id)
	}
}

func (cs *contexts) forget(id string, session *process.Session) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if c := cs.byID[id]; c != nil && c.session == session {
		delete(cs.byID, id)
	}
}

// session finds a context that is ready. Error: process.ErrNotFound.
func (cs *contexts) session(id string) (*process.Session, error) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.sweep()
	c := cs.byID[id]
	if c == nil || c.session == nil {
		return nil, process.ErrNotFound
	}
	return c.session, nil
}

func (cs *contexts) status() []*sandboxv1.ContextStatus {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.sweep()
	var list []*sandboxv1.ContextStatus
	for id, c := range cs.byID {
		if c.session != nil {
			list = append(list, &sandboxv1.ContextStatus{ContextId: id, Language: c.language, Cwd: c.cwd, StartedUnixMs: c.began.UnixMilli()})
		}
	}
	return list
}

// contextError says that a language has no contexts here by a code of its own.
func contextError(err error) error {
	var unavailable *interp.UnavailableError
	var refused *process.RefusedError
	if errors.As(err, &unavailable) || errors.As(err, &refused) {
		return connect.NewError(connect.CodeUnimplemented, err)
	}
	return execError(err)
}
