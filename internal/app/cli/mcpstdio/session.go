package mcpstdio

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"time"
)

// session is the one of the era before 2026-07-28: none until initialize was answered.
type session struct {
	renewing sync.Mutex

	mu    sync.Mutex
	now   state
	first []byte // the client's initialize request
}

// state is the session as it is now.
type state struct {
	id      string
	version string
	number  int // counts the sessions of the client
}

// set puts the session into the headers of a request.
func (s state) set(h http.Header) {
	if s.version != "" {
		h.Set(versionHeader, s.version)
	}
	if s.id != "" {
		h.Set(sessionHeader, s.id)
	}
}

func (s *session) state() state {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

func (s *session) id() string { return s.state().id }

// begin takes note of the session that an answer to initialize began.
func (s *session) begin(first, answer []byte, id string) {
	var a struct {
		Result *struct {
			ProtocolVersion string `json:"protocolVersion"`
		} `json:"result"`
	}
	if json.Unmarshal(answer, &a) != nil || a.Result == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.first = first
	s.now = state{id, a.Result.ProtocolVersion, s.now.number + 1}
}

// renew begins a new session in place of the one with this number, which the server has lost: many requests may find that
// out at once.
func (s *session) renew(ctx context.Context, b *Bridge, number int) error {
	s.renewing.Lock()
	defer s.renewing.Unlock()
	s.mu.Lock()
	first, there := s.first, s.now.number
	s.mu.Unlock()
	if there != number {
		return nil // another request did it
	}
	m := message{raw: first}
	if err := json.Unmarshal(first, &m); err != nil {
		return err
	}
	silent := &Bridge{o: b.o} // the client has the answer to its initialize request already
	silent.out.w = discard{}
	silent.o.Problem = nil
	if err := silent.post(ctx, &m, state{}); err != nil {
		return err
	}
	fresh := silent.session.state()
	if fresh.id == "" {
		return errors.New("the server began no new session")
	}
	s.mu.Lock()
	s.now = state{fresh.id, fresh.version, number + 1}
	s.mu.Unlock()
	began := message{Method: "notifications/initialized", raw: []byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)}
	if err := b.post(ctx, &began, s.state()); err != nil {
		return err
	}
	for _, list := range []string{"tools", "prompts", "resources"} {
		b.out.notify("notifications/" + list + "/list_changed")
	}
	return nil
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// end says goodbye: the server ends the session and its calls.
func (s *session) end(b *Bridge) {
	at := s.state()
	if at.id == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), endTime)
	defer cancel()
	req, err := b.request(ctx, http.MethodDelete, nil)
	if err != nil {
		return
	}
	at.set(req.Header)
	if res, err := b.o.HTTP.Do(req); err == nil { // a server that is away has no session either
		res.Body.Close()
	}
}

// listen passes on what the server says by itself in a session, until ctx ends.
func (b *Bridge) listen(ctx context.Context) {
	last := ""
	for ctx.Err() == nil {
		at := b.session.state()
		if at.id == "" {
			return
		}
		pause := againAfter
		switch err := b.listenOnce(ctx, at, &last); {
		case errors.Is(err, errNotOffered):
			return
		case errors.Is(err, errNoSession):
			last = ""
			if b.session.renew(ctx, b, at.number) != nil {
				pause = slowly
			}
		case err != nil:
			pause = slowly
		}
		wait := time.NewTimer(pause)
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
		}
	}
}

// errNotOffered is that the server has no stream of notifications.
var errNotOffered = errors.New("the server offers no stream")

func (b *Bridge) listenOnce(ctx context.Context, at state, last *string) error {
	req, err := b.request(ctx, http.MethodGet, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "text/event-stream")
	at.set(req.Header)
	if *last != "" {
		req.Header.Set(lastEvent, *last)
	}
	res, err := b.do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	switch {
	case res.StatusCode == http.StatusMethodNotAllowed:
		return errNotOffered
	case res.StatusCode == http.StatusNotFound:
		return errNoSession
	case res.StatusCode != http.StatusOK:
		return errors.New(res.Status)
	}
	id, err := events(res.Body, b.out.write)
	if id != "" {
		*last = id
	}
	return err
}
