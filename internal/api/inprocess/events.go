package inprocess

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// maxEvent bounds one server-sent event of the API, in bytes. The longest is the end of an exec, with all its output.
const maxEvent = 64 << 20

// Event is one server-sent event of the API. ID is 0 where it has none.
type Event struct {
	ID   uint64
	Name string
	Data []byte
}

// Events sends a request to the API and passes on each server-sent event of the answer as it comes. An error of each ends the
// request, as a client that is gone does. A *Refusal is an answer that is no success, or the error that ended the stream.
func (c Caller) Events(q Request, each func(Event) error) error {
	r, err := c.Make(q)
	if err != nil {
		return err
	}
	r.Header.Set("Accept", "text/event-stream")
	got := &stream{header: http.Header{}, each: each, kept: q.Kept}
	c.API.ServeHTTP(got, r)
	switch {
	case got.err != nil:
		return got.err
	case got.status >= 300:
		return refusal(got.status, got.header, got.buffer.Bytes())
	}
	return nil
}

// refusal reads an answer that is no success.
func refusal(status int, header http.Header, body []byte) *Refusal {
	e := &Refusal{}
	if json.Unmarshal(body, e) != nil || e.Code == "" {
		e.Code, e.Detail = string(sandbox.Internal), "the server's answer was "+strconv.Itoa(status)
	}
	e.Status, e.RetryAfter = status, header.Get("Retry-After")
	return e
}

// stream is an answer of server-sent events, or one that is no success.
type stream struct {
	header http.Header
	status int
	buffer bytes.Buffer // of an event that is not whole yet
	each   func(Event) error
	kept   func(bytes int64) error // asked for each part of an event; nil: for none
	err    error
}

// Header implements http.ResponseWriter.
func (s *stream) Header() http.Header { return s.header }

// WriteHeader implements http.ResponseWriter.
func (s *stream) WriteHeader(status int) {
	if s.status == 0 {
		s.status = status
	}
}

// Write implements http.ResponseWriter.
func (s *stream) Write(p []byte) (int, error) {
	s.WriteHeader(http.StatusOK)
	if s.err != nil {
		return 0, s.err
	}
	if s.buffer.Len()+len(p) > maxEvent {
		s.err = sandbox.Errorf(sandbox.QuotaExceeded, "the answer has an event of more than %d bytes", maxEvent)
		return 0, s.err
	}
	if s.kept != nil && s.status < 300 {
		if s.err = s.kept(int64(s.buffer.Len() + len(p))); s.err != nil {
			return 0, s.err
		}
	}
	s.buffer.Write(p)
	for s.status < 300 {
		text, _, whole := bytes.Cut(s.buffer.Bytes(), []byte("\n\n"))
		if !whole {
			break
		}
		if s.err = s.pass(string(text)); s.err != nil {
			return 0, s.err
		}
		s.buffer.Next(len(text) + 2)
	}
	return len(p), nil
}

// pass hands over one event. Lines of other fields are passed over.
func (s *stream) pass(text string) error {
	var e Event
	var err error
	for line := range strings.SplitSeq(text, "\n") {
		switch field, value, _ := strings.Cut(line, ": "); field {
		case "id":
			if e.ID, err = strconv.ParseUint(value, 10, 64); err != nil {
				return fmt.Errorf("an event of the answer: %w", err)
			}
		case "event":
			e.Name = value
		case "data":
			e.Data = []byte(value)
		}
	}
	switch e.Name {
	case "":
		return nil
	case "error":
		refused := &Refusal{}
		if err := json.Unmarshal(e.Data, refused); err != nil {
			return fmt.Errorf("the error that ended the answer: %w", err)
		}
		return refused
	}
	return s.each(e)
}

// Flush does nothing: each write is passed on.
func (*stream) Flush() {}

// SetReadDeadline does nothing: the connection is the caller's.
func (*stream) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline does nothing: the connection is the caller's.
func (*stream) SetWriteDeadline(time.Time) error { return nil }
