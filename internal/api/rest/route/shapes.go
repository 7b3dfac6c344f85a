package route

import (
	"encoding/base64"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// ThreadIn is the part of an input that names a thread. It and its likes are exported because huma
// sees only exported fields.
type ThreadIn struct {
	Thread string `path:"thread" pattern:"^[A-Za-z0-9_-]{1,128}$" doc:"The caller's name of the conversation"`
}

// ThreadListIn names a list of a thread.
type ThreadListIn struct {
	ThreadIn
	ListIn
}

// Body is an output that is only a JSON body.
type Body[T any] struct{ Body T }

// BodyOf returns an output that is only v.
func BodyOf[T any](v T) *Body[T] { return &Body[T]{Body: v} }

// StatusBody is an output whose status differs from case to case.
type StatusBody[T any] struct {
	Status int
	Body   T
}

// Page is a list.
type Page[T any] struct {
	Items      []T    `json:"items"`
	NextCursor string `json:"next_cursor,omitempty" doc:"Send it as cursor to get the rest; not there at the end"`
}

// PageOf returns a page of items, "" when it is the last one.
func PageOf[T any](items []T, next string) *Body[Page[T]] {
	if items == nil {
		items = []T{}
	}
	return BodyOf(Page[T]{Items: items, NextCursor: next})
}

// Written is an output that writes itself: a stream, or bytes.
type Written struct{ Body func(huma.Context) }

// Binary describes bytes.
func Binary() *huma.Schema { return &huma.Schema{Type: huma.TypeString, Format: "binary"} }

// WriteJSON answers with v.
func WriteJSON(w http.ResponseWriter, status int, v any) {
	w.Header()["Content-Type"] = jsonType
	w.WriteHeader(status)
	_ = huma.DefaultJSONFormat.Marshal(w, v) // the client is gone when this fails
}

var jsonType = []string{"application/json"}

// Seconds returns a duration of a field.
func Seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// Decode returns the bytes of a text field with its encoding.
func Decode(text, encoding string) ([]byte, error) {
	if encoding != "base64" {
		return []byte(text), nil
	}
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, sandbox.InvalidField("encoding", "the text is not base64")
	}
	return data, nil
}
