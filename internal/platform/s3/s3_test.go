package s3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/skerry-sandbox/skerry/internal/platform/s3/s3test"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

func client(t *testing.T, o Options) *Client {
	t.Helper()
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func get(t *testing.T, c *Client, address string) ([]byte, error) {
	t.Helper()
	r, err := c.Fetch(t.Context(), address)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

// TestFetch: against a real server. What is not there, not allowed, too large or wrongly signed has its name.
func TestFetch(t *testing.T) {
	server := s3test.Start(t)
	data := bytes.Repeat([]byte("0123456789"), 200_000)
	server.Put("skills", "team/a b+ü.skill", data)
	server.Put("skills", "other/x.skill", data)
	server.Put("secret", "x.skill", data)
	good := Options{
		Endpoint: server.Endpoint, Region: s3test.Region, AccessKey: s3test.AccessKey, SecretKey: s3test.SecretKey, PathStyle: true,
		Addresses: loopback, Buckets: []string{"skills/team/"}, MaxBytes: int64(len(data)),
	}
	c := client(t, good)
	if got, err := get(t, c, "s3://skills/team/a b+ü.skill"); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	open, wrong, small, closed := good, good, good, good
	open.Buckets = nil
	wrong.SecretKey = "wrong"
	small.MaxBytes = 10
	closed.Addresses = nil
	for name, x := range map[string]struct {
		o       Options
		address string
		want    sandbox.Kind
	}{
		"no object":          {good, "s3://skills/team/none", sandbox.NotFound},
		"no bucket":          {open, "s3://none/x", sandbox.NotFound},
		"another folder":     {good, "s3://skills/other/x.skill", sandbox.Forbidden},
		"a folder's sibling": {good, "s3://skills/teams/x.skill", sandbox.Forbidden},
		"another bucket":     {good, "s3://secret/x.skill", sandbox.Forbidden},
		"out of the folder":  {good, "s3://skills/team/../other/x.skill", sandbox.Invalid},
		"wrong secret":       {wrong, "s3://skills/team/a b+ü.skill", sandbox.Forbidden},
		"too large":          {small, "s3://skills/team/a b+ü.skill", sandbox.QuotaExceeded},
		"private address":    {closed, "s3://skills/team/a b+ü.skill", sandbox.Forbidden},
	} {
		got, err := get(t, client(t, x.o), x.address)
		if !errors.Is(err, x.want) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
		var e *sandbox.Error
		if errors.As(err, &e) && (strings.Contains(e.Detail, s3test.SecretKey) || strings.Contains(e.Detail, "127.0.0.1")) {
			t.Errorf("%s: says too much: %s", name, e.Detail)
		}
	}
	anyBucket := client(t, open)
	if got, err := get(t, anyBucket, "s3://secret/x.skill"); err != nil || len(got) != len(data) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// TestHostileStore: a store that redirects inside, lies, breaks off or hangs is an error in time.
func TestHostileStore(t *testing.T) {
	inside := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("followed a redirect") }))
	defer inside.Close()
	release := make(chan struct{})
	answers := map[string]http.HandlerFunc{
		"redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, inside.URL, http.StatusTemporaryRedirect)
		},
		"garbage": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<Error>") },
		"broken":  func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		"short": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
			w.Header().Set("ETag", `"x"`)
			fmt.Fprint(w, "short")
		},
		"hang": func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-release:
			case <-r.Context().Done():
			}
		},
	}
	store := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		answers[key](w, r)
	}))
	defer store.Close()
	defer close(release)
	host := strings.TrimPrefix(store.URL, "http://")
	one, _, _ := net.SplitHostPort(host)
	c := client(t, Options{Endpoint: store.URL, PathStyle: true, Addresses: []netip.Prefix{netip.MustParsePrefix(one + "/32")}, MaxBytes: 1 << 20})
	for name := range answers {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		r, err := c.Fetch(ctx, "s3://bucket/"+name)
		if err == nil {
			_, err = io.ReadAll(r)
			r.Close()
		}
		if kind := sandbox.KindOf(err); kind != sandbox.Unavailable && kind != sandbox.Timeout && kind != sandbox.NotFound {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
	}
}

func TestParse(t *testing.T) {
	if b, k, err := Parse("s3://my.bucket-1/a/b c.skill"); err != nil || b != "my.bucket-1" || k != "a/b c.skill" {
		t.Error(b, k, err)
	}
	for _, bad := range []string{
		"", "http://b/k", "s3://", "s3://bucket", "s3://bucket/", "s3:///k", "s3://B/k", "s3://b@x/k", "s3://bucket:80/k", "s3://bu..cket/k",
		"s3://bucket//k", "s3://bucket/a/../b", "s3://bucket/./a", "s3://bucket/a/", "s3://bucket/a\nb", `s3://bucket/a\..\b`, "s3://bucket/" + strings.Repeat("k", 1025),
	} {
		if b, k, err := Parse(bad); !errors.Is(err, sandbox.Invalid) {
			t.Errorf("%q: %q %q %v", bad, b, k, err)
		}
	}
	for _, o := range []Options{
		{Endpoint: "ftp://x"}, {Endpoint: "https://u:p@x"}, {Endpoint: "https://x/path"}, {Endpoint: "x"}, {Buckets: []string{"../x"}}, {Buckets: []string{"bucket/../x"}},
	} {
		if _, err := New(o); !errors.Is(err, sandbox.Invalid) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// TestPut: what is stored is read back, also in several parts, and replaces what was there; where nothing may be stored it is said.
func TestPut(t *testing.T) {
	server := s3test.Start(t)
	server.Put("logs", "x", nil)
	good := Options{
		Endpoint: server.Endpoint, Region: s3test.Region, AccessKey: s3test.AccessKey, SecretKey: s3test.SecretKey, PathStyle: true,
		Addresses: loopback, Buckets: []string{"logs/a/"},
	}
	c := client(t, good)
	for _, size := range []int{5, partBytes + 100} {
		data := bytes.Repeat([]byte("x"), size)
		if err := c.Put(t.Context(), "s3://logs/a/b.zst", bytes.NewReader(data), int64(size)); err != nil {
			t.Fatal(err)
		}
		if got, err := get(t, c, "s3://logs/a/b.zst"); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%d bytes of %d, %v", len(got), size, err)
		}
	}
	// Less than was announced: what is there stays.
	if err := c.Put(t.Context(), "s3://logs/a/b.zst", strings.NewReader("half"), 8); err == nil {
		t.Error("half an object was stored")
	}
	if got, err := get(t, c, "s3://logs/a/b.zst"); err != nil || len(got) != partBytes+100 {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	wrong := good
	wrong.SecretKey = "wrong"
	for address, c := range map[string]*Client{"s3://logs/b": c, "s3://logs/a/c": client(t, wrong)} {
		if err := c.Put(t.Context(), address, strings.NewReader("x"), 1); sandbox.KindOf(err) != sandbox.Forbidden {
			t.Errorf("%s: %v", address, err)
		}
	}
}
