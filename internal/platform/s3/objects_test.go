package s3

import (
	"errors"
	"slices"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/platform/s3/s3test"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// TestObjects: an object is replaced only by who knows its version, listed below its folder alone, and gone when it was removed.
func TestObjects(t *testing.T) {
	server := s3test.Start(t)
	server.Put("files", "sibling/x", []byte("x"))
	c := client(t, Options{
		Endpoint: server.Endpoint, Region: s3test.Region, AccessKey: s3test.AccessKey, SecretKey: s3test.SecretKey, PathStyle: true,
		Addresses: loopback, Buckets: []string{"files/a/"},
	})
	const at = "s3://files/a/b/head"
	if _, _, err := c.Read(t.Context(), at, 10); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("what is not there: %v", err)
	}
	if _, err := c.Replace(t.Context(), at, []byte("0"), "none"); !errors.Is(err, sandbox.Conflict) {
		t.Errorf("a version of what is not there: %v", err)
	}
	first, err := c.Replace(t.Context(), at, []byte("one"), "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Replace(t.Context(), at, []byte("two"), ""); !errors.Is(err, sandbox.Conflict) {
		t.Errorf("it is there: %v", err)
	}
	second, err := c.Replace(t.Context(), at, []byte("three"), first)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Replace(t.Context(), at, []byte("late"), first); !errors.Is(err, sandbox.Conflict) {
		t.Errorf("a former version: %v", err)
	}
	if data, version, err := c.Read(t.Context(), at, 5); err != nil || string(data) != "three" || version != second {
		t.Errorf("%q %q, not %q: %v", data, version, second, err)
	}
	if _, _, err := c.Read(t.Context(), at, 4); !errors.Is(err, sandbox.QuotaExceeded) {
		t.Errorf("too large: %v", err)
	}
	var keys []string
	list := func() []string {
		keys = nil
		if err := c.List(t.Context(), "s3://files/a/b", func(o Object) error { keys = append(keys, o.Key); return nil }); err != nil {
			t.Error(err)
		}
		return keys
	}
	if !slices.Equal(list(), []string{"head"}) {
		t.Error(keys)
	}
	for range 2 {
		if err := c.Remove(t.Context(), at); err != nil {
			t.Error(err)
		}
	}
	if len(list()) != 0 {
		t.Error(keys)
	}
	const other = "s3://files/sibling/x"
	_, _, read := c.Read(t.Context(), other, 10)
	_, replace := c.Replace(t.Context(), other, nil, "")
	for _, err := range []error{read, replace, c.Remove(t.Context(), other), c.List(t.Context(), "s3://files/sibling", nil)} {
		if !errors.Is(err, sandbox.Forbidden) {
			t.Errorf("another folder: %v", err)
		}
	}
}
