package skerry

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Options of New. The zero value is good for a server on this machine without keys.
type Options struct {
	// Key is sent as a bearer token: a key of the server, or a token of its identity provider.
	Key string
	// OnBehalfOf is the user that requests are for; the key has to have that right.
	OnBehalfOf string
	// HTTP sends the requests; nil: http.DefaultClient. It should have no Timeout: streams are long.
	HTTP *http.Client
	// UserAgent is recorded in the audit log.
	UserAgent string
	// Timeout of a call whose context has no deadline. 0: DefaultTimeout.
	Timeout time.Duration
	// Patience is how long a request that failed is sent again. 0: DefaultPatience; negative: never.
	Patience time.Duration
	// Silence ends a stream, upload or download of which nothing came for so long. 0: DefaultSilence.
	Silence time.Duration
	// Wait is how long a run may take to begin (a place, its sandbox, an approval), and a tool to answer. 0: DefaultWait.
	Wait time.Duration
}

// Client calls one server.
type Client struct {
	server string
	o      Options
}

// New makes a client of the server at an address such as "http://127.0.0.1:8080". It connects to nothing yet.
func New(server string, o Options) *Client {
	if o.HTTP == nil {
		o.HTTP = http.DefaultClient
	}
	o.Timeout = orElse(o.Timeout, DefaultTimeout)
	o.Patience = orElse(o.Patience, DefaultPatience)
	o.Silence = orElse(o.Silence, DefaultSilence)
	o.Wait = orElse(o.Wait, DefaultWait)
	if o.UserAgent == "" {
		o.UserAgent = "skerry-go"
	}
	return &Client{server: strings.TrimRight(server, "/"), o: o}
}

func orElse(d, fallback time.Duration) time.Duration {
	if d == 0 {
		return fallback
	}
	return d
}

// Request is any request of the API, for what has no method of its own.
type Request struct {
	Method string
	Path   string // "/api/…", with its parts escaped
	Query  url.Values
	Header http.Header
	// Body is sent as JSON, unless it is nil.
	Body any
	// Content is sent as it is, in place of Body. It is sent again only when it is an io.Seeker, from where it was.
	Content     io.Reader
	ContentType string // of Content
	// Once: it must not be done twice, so it is sent again only when nothing was done.
	Once bool

	key string // that makes a second request known
}

// Call sends a request and decodes its answer, which is JSON, into out. A nil out drops it.
func (c *Client) Call(ctx context.Context, r Request, out any) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.o.Timeout)
		defer cancel()
	}
	res, err := c.Do(ctx, r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	return decode(res.Body, r, out)
}

func decode(body io.Reader, r Request, out any) error {
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(io.LimitReader(body, maxAnswer)).Decode(out); err != nil {
		return fmt.Errorf("the answer of %s %s is not what was expected: %w", r.Method, r.Path, err)
	}
	return nil
}

// Do sends a request and returns the answer, whose body the caller closes: one with a status below 400.
// It lasts as long as ctx; use Call for what is short.
func (c *Client) Do(ctx context.Context, r Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = json.Marshal(r.Body); err != nil {
			return nil, err
		}
	}
	begin, err := position(r.Content)
	if err != nil {
		return nil, err
	}
	if r.Method == http.MethodPost && !r.Once && r.Content == nil {
		r.key = rand.Text()
	}
	again := &repeats{patience: c.o.Patience, began: time.Now()}
	for {
		res, err := c.once(ctx, r, body, again.age())
		if err == nil {
			return res, nil
		}
		if r.Method == http.MethodDelete && again.lost && errors.Is(err, NotFound) {
			return gone(), nil // the first one did it, and its answer was lost
		}
		if !again.may(ctx, &r, err) || !begin() {
			return nil, final(&r, err)
		}
	}
}

// position returns a function that goes back to where a reader is now, and says whether it could.
func position(r io.Reader) (func() bool, error) {
	if r == nil {
		return func() bool { return true }, nil
	}
	s, ok := r.(io.Seeker)
	if !ok {
		return func() bool { return false }, nil
	}
	at, err := s.Seek(0, io.SeekCurrent)
	if err != nil {
		return nil, err
	}
	return func() bool {
		_, err := s.Seek(at, io.SeekStart)
		return err == nil
	}, nil
}

// gone is the answer to a second DELETE.
func gone() *http.Response {
	return &http.Response{Status: "204 No Content", StatusCode: http.StatusNoContent, Header: http.Header{}, Body: http.NoBody}
}

// once sends a request one time.
func (c *Client) once(ctx context.Context, r Request, body []byte, age string) (*http.Response, error) {
	var in io.Reader
	switch {
	case r.Content != nil:
		in = io.NopCloser(r.Content) // http.Client would close it, and it may have to be sent again
	case r.Body != nil:
		in = bytes.NewReader(body)
	}
	address := c.server + r.Path
	if len(r.Query) > 0 {
		address += "?" + r.Query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, address, in)
	if err != nil {
		return nil, &addressError{err}
	}
	req.Header.Set("User-Agent", c.o.UserAgent)
	for name, values := range r.Header {
		req.Header[name] = values
	}
	switch {
	case r.Content != nil && r.ContentType != "":
		req.Header.Set("Content-Type", r.ContentType)
	case r.Body != nil:
		req.Header.Set("Content-Type", "application/json")
	}
	if r.key != "" {
		req.Header.Set(headerIdempotencyKey, r.key)
		if age != "" {
			req.Header.Set(headerIdempotencyAge, age)
		}
	}
	if c.o.Key != "" {
		req.Header.Set("Authorization", "Bearer "+c.o.Key)
	}
	if c.o.OnBehalfOf != "" {
		req.Header.Set(headerOnBehalfOf, c.o.OnBehalfOf)
	}
	res, err := c.o.HTTP.Do(req)
	if err != nil {
		return nil, err
	}
	warnDeprecated(r, res.Header)
	if res.StatusCode < http.StatusBadRequest {
		return res, nil
	}
	defer res.Body.Close()
	return nil, ErrorFrom(res)
}

// addressError is an address that no request can be made of.
type addressError struct{ error }

func (e *addressError) Unwrap() error { return e.error }
