package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/skerry-sandbox/skerry/internal/platform/buildinfo"
	"github.com/skerry-sandbox/skerry/internal/platform/retry"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

const (
	// askTimeout bounds one request that asks or changes something, makeTimeout one that makes a sandbox.
	askTimeout  = 20 * time.Second
	makeTimeout = 60 * time.Second
	dialTimeout = 10 * time.Second
	// maxAnswer bounds an answer: a page has 100 sandboxes, each with at most 64 labels of a kilobyte.
	maxAnswer = 8 << 20
	maxPage   = 100
	maxPages  = 100
	// tries is how often a request is made that the service is too busy for.
	tries      = 3
	pauseFirst = 200 * time.Millisecond
	pauseMost  = 5 * time.Second
	maxHeaders = 64 << 10
)

// service is the API of the service.
type service struct {
	url, sandboxURL, domain, key string
	http                         *http.Client
}

func newService(o Options) *service {
	t := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: (&net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}).DialContext,
		TLSHandshakeTimeout: dialTimeout, ResponseHeaderTimeout: makeTimeout, IdleConnTimeout: time.Minute,
		MaxIdleConnsPerHost: 64, MaxResponseHeaderBytes: maxHeaders, ForceAttemptHTTP2: true,
	}
	return &service{url: o.URL, sandboxURL: o.SandboxURL, domain: o.Domain, key: o.Key, http: &http.Client{
		Transport: t,
		// The key goes to the host that it is for.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// made is a sandbox of the service, as far as this driver reads it.
type made struct {
	ID        string            `json:"sandboxID"`
	State     string            `json:"state"`
	Token     string            `json:"envdAccessToken"`
	Domain    string            `json:"domain"`
	StartedAt time.Time         `json:"startedAt"`
	Metadata  map[string]string `json:"metadata"`
}

// check refuses what cannot be part of a URL or of a host's name.
func (m *made) check() error {
	ok := func(s string, most int, more string) bool {
		return len(s) <= most && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-"+more) == ""
	}
	if m.ID == "" || !ok(m.ID, 63, "_") || !ok(m.Domain, 200, ".") || len(m.Token) > 4<<10 {
		return sandbox.Errorf(sandbox.Unavailable, "the service names a sandbox in a way that cannot be right")
	}
	return nil
}

// newSandbox is what the service is asked to make.
type newSandbox struct {
	Template string            `json:"templateID"`
	Timeout  int               `json:"timeout"` // seconds
	Metadata map[string]string `json:"metadata"`
	Secure   bool              `json:"secure"`
	Internet bool              `json:"allow_internet_access"`
}

func (s *service) make(ctx context.Context, n newSandbox) (m made, err error) {
	err = s.call(ctx, http.MethodPost, "/sandboxes", n, &m, makeTimeout)
	if err == nil {
		err = m.check()
	}
	return m, err
}

func (s *service) get(ctx context.Context, id string) (m made, err error) {
	err = s.call(ctx, http.MethodGet, "/sandboxes/"+url.PathEscape(id), nil, &m, askTimeout)
	if err == nil {
		err = m.check()
	}
	return m, err
}

// kill ends a sandbox. One that is gone is no error.
func (s *service) kill(ctx context.Context, id string) error {
	err := s.call(ctx, http.MethodDelete, "/sandboxes/"+url.PathEscape(id), nil, nil, makeTimeout)
	if errors.Is(err, sandbox.NotFound) {
		return nil
	}
	return err
}

// keep lets a sandbox live for so long from now on.
func (s *service) keep(ctx context.Context, id string, long time.Duration) error {
	return s.call(ctx, http.MethodPost, "/sandboxes/"+url.PathEscape(id)+"/timeout", map[string]int{"timeout": int(long / time.Second)}, nil, askTimeout)
}

// list returns all sandboxes with this metadata.
func (s *service) list(ctx context.Context, metadata map[string]string) ([]made, error) {
	var all []made
	next := ""
	for range maxPages {
		p, err := s.page(ctx, metadata, next, maxPage)
		if err != nil {
			return nil, err
		}
		if all = append(all, p.items...); len(all) > maxPages*maxPage {
			break
		}
		if p.next == "" {
			return all, nil
		}
		next = p.next
	}
	return nil, sandbox.Errorf(sandbox.Unavailable, "the service lists more than %d sandboxes", maxPages*maxPage)
}

type page struct {
	items []made
	next  string
}

func (s *service) page(ctx context.Context, metadata map[string]string, next string, limit int) (p page, err error) {
	q := url.Values{"limit": {strconv.Itoa(limit)}, "state": {"running,paused"}}
	if len(metadata) > 0 { // a query within the query, whose names and values are escaped once more
		inner := url.Values{}
		for name, value := range metadata {
			inner.Set(url.QueryEscape(name), url.QueryEscape(value))
		}
		q.Set("metadata", inner.Encode())
	}
	if next != "" {
		q.Set("nextToken", next)
	}
	err = s.call(ctx, http.MethodGet, "/v2/sandboxes?"+q.Encode(), nil, &p, askTimeout)
	if err != nil {
		return p, err
	}
	for i := range p.items {
		if err := p.items[i].check(); err != nil {
			return p, err
		}
	}
	return p, nil
}

// call makes one request, again when the service asks for that. Each attempt has a time of its own.
func (s *service) call(ctx context.Context, method, path string, in, out any, within time.Duration) error {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return sandbox.Wrap(sandbox.Internal, err, "the request cannot be written")
		}
	}
	pauses := retry.Doubling(pauseFirst, pauseMost)
	for try := 1; ; try++ {
		again, err := s.attempt(ctx, method, path, body, out, within)
		if err == nil || !again || try == tries || ctx.Err() != nil {
			return err
		}
		select {
		case <-time.After(pauses.NextBackOff()):
		case <-ctx.Done():
			return err
		}
	}
}

// attempt reports whether the request may be made again: the service did nothing, or twice is as good as once.
func (s *service) attempt(ctx context.Context, method, path string, body []byte, out any, within time.Duration) (again bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, s.url+path, bytes.NewReader(body))
	if err != nil {
		return false, sandbox.Wrap(sandbox.Internal, err, "the request cannot be made")
	}
	r.Header.Set("User-Agent", "skerry/"+buildinfo.Version())
	if s.key != "" {
		r.Header.Set("X-API-Key", s.key)
	}
	if len(body) > 0 {
		r.Header.Set("Content-Type", "application/json")
	}
	answer, err := s.http.Do(r)
	if err != nil {
		return method != http.MethodPost, unanswered(ctx, err)
	}
	defer drain(answer)
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer+1))
	if err != nil {
		return method != http.MethodPost, unanswered(ctx, err)
	}
	if len(text) > maxAnswer {
		return false, sandbox.Errorf(sandbox.Unavailable, "the service's answer has more than %d bytes", maxAnswer)
	}
	if answer.StatusCode >= http.StatusBadRequest || answer.StatusCode < http.StatusOK || answer.StatusCode >= http.StatusMultipleChoices {
		passing := answer.StatusCode == http.StatusTooManyRequests || answer.StatusCode >= http.StatusInternalServerError && method != http.MethodPost
		return passing, s.refusal(answer.StatusCode, text)
	}
	switch to := out.(type) {
	case nil:
		return false, nil
	case *page:
		to.next, out = answer.Header.Get("X-Next-Token"), &to.items
	}
	if err := json.Unmarshal(text, out); err != nil {
		return false, sandbox.Wrap(sandbox.Unavailable, err, "the service's answer is not the JSON that is wanted: remote.url must be that of an API of E2B")
	}
	return false, nil
}

// unanswered is the error of a request without an answer.
func unanswered(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return sandbox.Wrap(sandbox.Timeout, err, "the service did not answer in time")
	}
	return sandbox.Wrap(sandbox.Unavailable, err, "the service cannot be reached")
}

// maxSaid is how much of an error's text is kept.
const maxSaid = 300

// refusal is the error for an answer that is none. What the service says stays in the log, without the key.
func (s *service) refusal(status int, text []byte) error {
	var said struct{ Message string }
	if json.Unmarshal(text, &said) != nil || said.Message == "" {
		said.Message = string(text[:min(len(text), maxSaid)])
	}
	if s.key != "" {
		said.Message = strings.ReplaceAll(said.Message, s.key, "***")
	}
	cause := fmt.Errorf("status %d: %.300q", status, said.Message)
	switch {
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return sandbox.Wrap(sandbox.Unavailable, cause, "the service refuses this server's key: set remote.api_key to one that it takes")
	case status == http.StatusNotFound:
		return sandbox.Wrap(sandbox.NotFound, cause, "the service has no such thing")
	case status == http.StatusConflict:
		return sandbox.Wrap(sandbox.Conflict, cause, "the service's sandbox is in another state")
	case status == http.StatusTooManyRequests:
		return sandbox.Wrap(sandbox.CapacityExceeded, cause, "the service lets this server make no more requests or sandboxes now")
	case status == http.StatusNotImplemented:
		return sandbox.Wrap(sandbox.NotSupported, cause, "the service cannot do this")
	case status >= http.StatusInternalServerError:
		return sandbox.Wrap(sandbox.Unavailable, cause, "the service failed (status %d)", status)
	}
	return sandbox.Wrap(sandbox.Internal, cause, "the service refused a request (status %d)", status)
}
