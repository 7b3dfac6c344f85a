package download

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestFetch: what is at an allowed address is read; a redirect to another network, and all else, is refused
// by name.
func TestFetch(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/a":
			_, _ = w.Write([]byte("what is there"))
		case "/away":
			http.Redirect(w, r, "http://10.0.0.1/"+r.URL.RawQuery, http.StatusFound)
		case "/round":
			http.Redirect(w, r, "/round", http.StatusFound)
		case "/broken":
			w.WriteHeader(http.StatusBadGateway)
		default:
			http.NotFound(w, r)
		}
	}))
	defer server.Close()
	open, closed := New([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}), New(nil)
	defer open.Close()
	defer closed.Close()
	body, err := open.Fetch(t.Context(), server.URL+"/a")
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(body); err != nil || string(text) != "what is there" || body.Close() != nil {
		t.Errorf("%q, %v", text, err)
	}
	for address, want := range map[string]sandbox.Kind{
		server.URL + "/none": sandbox.NotFound, server.URL + "/broken": sandbox.Unavailable, server.URL + "/away?hush": sandbox.Forbidden,
		server.URL + "/round": sandbox.Invalid, "ftp://example.com/a": sandbox.NotSupported, "https:///a": sandbox.Invalid, "http://example.com/a": sandbox.Forbidden,
	} {
		if _, err := open.Fetch(t.Context(), address); sandbox.KindOf(err) != want || strings.Contains(fmt.Sprintf("%v", err), "hush") {
			t.Errorf("%s: %v", address, err)
		}
	}
	private := strings.Replace(server.URL, "http://", "https://", 1)
	if _, err := closed.Fetch(t.Context(), private+"/a?hush"); !errors.Is(err, sandbox.Forbidden) || strings.Contains(err.Error(), "hush") {
		t.Errorf("an address of this machine: %v", err)
	}
}

func TestShown(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{"https://me:pass@host/x.skill?token=t#f": "https://host/x.skill", "s3://b/k": "s3://b/k", "\x00": ""} {
		if got := Shown(address); got != want {
			t.Errorf("%q: %q", address, got)
		}
	}
}
