package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/sidecar/pki"
)

const secret = "e2b_hunter2"

// against returns a driver whose service is a handler.
func against(t *testing.T, h http.HandlerFunc) *Driver {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	dir := t.TempDir()
	auth, err := pki.Open(t.Context(), filepath.Join(dir, "authority"))
	must(t, err)
	bridge := filepath.Join(dir, "skerry-bridge")
	must(t, os.WriteFile(bridge, []byte("a program"), 0o700))
	d, err := New(Options{URL: srv.URL, SandboxURL: srv.URL, Key: secret, Authority: auth, Bridge: bridge, Root: filepath.Join(dir, "root")})
	must(t, err)
	t.Cleanup(func() { must(t, d.Close()) })
	return d
}

// TestRefusals: what the service answers becomes an error of the right kind, which names what to do and not the key. A
// request that was refused for a moment is made again; one that makes something, only when nothing was made.
func TestRefusals(t *testing.T) {
	for status, c := range map[int]struct {
		kind       sandbox.Kind
		text       string
		list, make int32 // requests
	}{
		401: {sandbox.Unavailable, "remote.api_key", 1, 1},
		403: {sandbox.Unavailable, "remote.api_key", 1, 1},
		404: {sandbox.NotFound, "no such thing", 1, 1},
		409: {sandbox.Conflict, "another state", 1, 1},
		429: {sandbox.CapacityExceeded, "no more requests", 3, 3},
		500: {sandbox.Unavailable, "status 500", 3, 1},
		501: {sandbox.NotSupported, "cannot do this", 3, 1},
		302: {sandbox.Internal, "status 302", 1, 1},
		418: {sandbox.Internal, "status 418", 1, 1},
	} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			var requests atomic.Int32
			d := against(t, func(w http.ResponseWriter, r *http.Request) {
				requests.Add(1)
				w.Header().Set("Location", "https://elsewhere.example/")
				w.WriteHeader(status)
				fmt.Fprintf(w, `{"code":%d,"message":"not with %s"}`, status, r.Header.Get("X-API-Key"))
			})
			_, err := d.Capabilities(t.Context())
			refused(t, err, c.kind, c.text)
			if n := requests.Swap(0); n != c.list {
				t.Errorf("a list is asked for %d times, want %d", n, c.list)
			}
			_, err = d.service.make(t.Context(), newSandbox{})
			refused(t, err, c.kind, c.text)
			if n := requests.Load(); n != c.make {
				t.Errorf("a sandbox is asked for %d times, want %d", n, c.make)
			}
		})
	}
}

func refused(t *testing.T, err error, kind sandbox.Kind, text string) {
	t.Helper()
	var e *sandbox.Error
	if !errors.Is(err, kind) || !errors.As(err, &e) || !strings.Contains(e.Detail, text) {
		t.Errorf("%v (%s), want %s with %q", err, sandbox.KindOf(err), kind, text)
	}
	for ; err != nil; err = errors.Unwrap(err) {
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the error has the key: %v", err)
		}
	}
}

// TestHostileAnswers: what cannot be right is refused, and takes no memory and no time without a bound.
func TestHostileAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		text   string
	}{
		"huge": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.Copy(w, io.LimitReader(zeros{}, 1<<30))
		}, "more than 8388608 bytes"},
		"no JSON": {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") }, "not the JSON"},
		"other host": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `[{"sandboxID":"a.evil.example/"}]`)
		}, "cannot be right"},
		"other label": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `[{"sandboxID":"a","domain":"x/y"}]`)
		}, "cannot be right"},
		"endless": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Next-Token", "again")
			_, _ = io.WriteString(w, `[]`)
		}, "more than 10000 sandboxes"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := against(t, c.answer).List(t.Context(), nil)
			refused(t, err, sandbox.Unavailable, c.text)
		})
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// TestSilence: a service that does not answer holds no caller beyond the caller's own time.
func TestSilence(t *testing.T) {
	free := make(chan struct{})
	d := against(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-free:
		case <-r.Context().Done():
		}
	})
	defer close(free)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := d.List(ctx, nil)
	refused(t, err, sandbox.Timeout, "did not answer in time")
	e := d.service.envd(made{ID: "a"})
	if _, _, err := e.start(ctx, d.closing, nil); !errors.Is(err, sandbox.Timeout) {
		t.Errorf("start: %v", err)
	}
	if err := e.upload(ctx, nil); !errors.Is(err, sandbox.Timeout) {
		t.Errorf("upload: %v", err)
	}
}

// TestAskedFor: what the service is asked to make has no internet, ends by itself, and names what a later server must know.
func TestAskedFor(t *testing.T) {
	var body, key atomic.Value
	d := against(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_, _ = io.WriteString(w, "[]")
			return
		}
		text, _ := io.ReadAll(r.Body)
		body.Store(string(text))
		key.Store(r.Header.Get("X-API-Key"))
		w.WriteHeader(http.StatusNotFound)
	})
	spec := sandbox.Spec{
		ID: sandbox.NewID(), Image: "desktop", Runtime: "runc", UID: 7, Daemon: "/daemon", Labels: map[string]string{"a": "ä = b"},
		Limits: sandbox.Limits{MemoryBytes: 256 << 20, CPUMillis: 1000, PIDs: 64, OpenFiles: 64, FileBytes: 1 << 20, TmpBytes: 1 << 20, DiskBytes: 1 << 30},
	}
	_, err := d.Create(t.Context(), spec)
	refused(t, err, sandbox.NotFound, `no template "desktop"`)
	text, _ := body.Load().(string)
	for _, want := range []string{`"templateID":"desktop"`, `"timeout":600`, `"allow_internet_access":false`, `"secure":true`, `"skerry-sandbox":"` + string(spec.ID), `"skerry-label:a":"ä = b"`, d.o.Authority.Fingerprint()} {
		if !strings.Contains(text, want) {
			t.Errorf("asked for %s, want %s", text, want)
		}
	}
	if key.Load() != secret {
		t.Errorf("the key is %v", key.Load())
	}
	for name, change := range map[string]func(*sandbox.Spec){
		"a filter that is loosened": func(s *sandbox.Spec) { s.Loosen = []sandbox.Loosening{sandbox.LoosenPtrace} },
		"a volume":                  func(s *sandbox.Spec) { s.Volume = &sandbox.Volume{} },
		"a warm pool":               func(s *sandbox.Spec) { s.ClaimPool = "pool" },
		"another mount":             func(s *sandbox.Spec) { s.Mounts = []sandbox.Mount{{Source: "/usr", Target: "/srv/code"}} },
		"another runtime":           func(s *sandbox.Spec) { s.Runtime = "runsc" },
	} {
		other := spec
		change(&other)
		if _, err := d.Create(t.Context(), other); !errors.Is(err, sandbox.NotSupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, ok := driver.Driver(d).(driver.Pauser); ok {
		t.Error("the driver says that it can pause")
	}
}

// TestHostileDaemon: what the daemon in a sandbox says is counted before it is decoded.
func TestHostileDaemon(t *testing.T) {
	list := bytes.Repeat([]byte{0x0a, 0}, maxListed)
	d := against(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/proto")
		_, _ = w.Write(list)
	})
	e := d.service.envd(made{ID: "x"})
	if pid, err := e.bridge(t.Context()); pid != 0 || err != nil {
		t.Errorf("%d processes: %v", maxListed, err)
	}
	list = append(list, 0x0a, 0)
	if _, err := e.bridge(t.Context()); !errors.Is(err, sandbox.Unavailable) || !strings.Contains(fmt.Sprint(errors.Unwrap(err)), "values") {
		t.Errorf("one more: %v, %v", err, errors.Unwrap(err))
	}
}

// TestManySandboxes: a service that lists sandboxes without end is refused.
func TestManySandboxes(t *testing.T) {
	const each = 5000
	items := "[" + strings.Repeat(`{"sandboxID":"x"},`, each-1) + `{"sandboxID":"x"}]`
	var pages atomic.Int32
	d := against(t, func(w http.ResponseWriter, _ *http.Request) {
		pages.Add(1)
		w.Header().Set("X-Next-Token", "more")
		_, _ = io.WriteString(w, items)
	})
	if _, err := d.service.list(t.Context(), nil); !errors.Is(err, sandbox.Unavailable) || pages.Load() > maxPages*maxPage/each+1 {
		t.Errorf("%v after %d pages", err, pages.Load())
	}
}
