package e2b

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

var errFull = sandbox.Errorf(sandbox.CapacityExceeded, "there is no room")

// TestRepeatedCreate: a create that is repeated with its Idempotency-Key is answered with the sandbox of the first one,
// and harms it in no case.
func TestRepeatedCreate(t *testing.T) {
	h, srv := start(t)
	post := func(body string) (int, string) {
		return call(t, http.MethodPost, srv.URL+"/sandboxes", "", body, "Idempotency-Key: k")
	}
	const body = `{"timeout":60,"metadata":{"a":"b"},"envVars":{"A":"1"}}`
	status, first := post(body)
	if status != http.StatusCreated || len(h.threads) != 1 {
		t.Fatalf("%d %s", status, first)
	}
	var id string
	for id = range h.threads {
	}
	before := maps.Clone(h.threads[id].Labels)
	h.acquire = func() error { return errFull }
	if status, again := post(body); status != http.StatusCreated || again != first {
		t.Errorf("repeated while there is no room: %d %s, want %s", status, again, first)
	}
	if status, answer := post(`{"timeout":61}`); status != http.StatusBadRequest || !strings.Contains(answer, "another request") {
		t.Errorf("another request with the same key: %d %s", status, answer)
	}
	for _, state := range []sandbox.State{sandbox.Paused, sandbox.Hibernated} {
		if _, err := h.set(id, state); err != nil {
			t.Fatal(err)
		}
		if status, again := post(body); status != http.StatusCreated || again != first {
			t.Errorf("repeated while it is %s: %d %s", state, status, again)
		}
	}
	v := h.threads[id]
	v.Sandbox = nil
	h.threads[id] = v
	if status, again := post(body); status != http.StatusCreated || again != first {
		t.Errorf("repeated after its container died: %d %s", status, again)
	}
	if len(h.deleted) != 0 || !maps.Equal(h.threads[id].Labels, before) {
		t.Errorf("deleted %v, labels %v, before %v", h.deleted, h.threads[id].Labels, before)
	}
}

// TestCreateUndoesOnlyItsOwn: a create that fails deletes no thread that was there before it, and none that another
// request made meanwhile.
func TestCreateUndoesOnlyItsOwn(t *testing.T) {
	h, srv := start(t)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil)
	r.Header.Set("Idempotency-Key", "k")
	id := newSandboxID(r)
	left := sandbox.ThreadView{ThreadInfo: sandbox.ThreadInfo{Thread: sandbox.Thread{Owner: me.Owner, ID: id}}}
	post := func() int {
		status, _ := call(t, http.MethodPost, srv.URL+"/sandboxes", "", `{"timeout":60}`, "Idempotency-Key: k")
		return status
	}
	for name, acquire := range map[string]func() error{
		"it was there": func() error { return errFull },
		"it came meanwhile": func() error {
			h.threads[id] = left
			return sandbox.Errorf(sandbox.Conflict, "the thread has a sandbox of another template")
		},
	} {
		delete(h.threads, id)
		if name == "it was there" {
			h.threads[id] = left
		}
		h.acquire = acquire
		if status := post(); status == http.StatusCreated || len(h.deleted) != 0 {
			t.Errorf("%s: %d, deleted %v", name, status, h.deleted)
		}
	}
	h.acquire = nil
	if status := post(); status != http.StatusCreated || h.threads[id].Labels[labelMade] == "" {
		t.Errorf("a create that a server left half done is not completed: %d", status)
	}
	delete(h.threads, id)
	h.acquire = func() error { h.threads[id] = left; return errFull }
	if status := post(); status == http.StatusCreated || len(h.deleted) != 1 {
		t.Errorf("what a failed create made is left: %d", status)
	}
}

// TestCreatesAtOnce: of two creates with one key the second waits for the first; when that fails, and is undone, the
// second makes the sandbox.
func TestCreatesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, a := adapter(t)
		defer a.Close()
		release, entered := make(chan struct{}), 0
		h.acquire = func() error {
			if entered++; entered > 1 {
				return nil
			}
			<-release
			return errFull
		}
		var wg sync.WaitGroup
		status := make([]int, 2)
		for i := range status {
			wg.Go(func() {
				r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/sandboxes", strings.NewReader(`{"timeout":60}`))
				r.Header.Set("Idempotency-Key", "k")
				w := httptest.NewRecorder()
				if err := (control{a}).create(w, r, request{caller: me, thread: newSandboxID(r), held: a.o.Held.Of("me")}); err != nil {
					a.writeError(w, r, err)
				}
				status[i] = w.Code
			})
			synctest.Wait()
		}
		close(release)
		wg.Wait()
		if status[0] == http.StatusCreated || status[1] != http.StatusCreated || len(h.threads) != 1 {
			t.Errorf("answered %v, threads %v", status, h.threads)
		}
		// One whose predecessor never ends is not kept waiting for ever.
		h.acquire = func() error { <-release; return nil }
		release = make(chan struct{})
		clear(h.threads)
		began := time.Now()
		for range 2 {
			wg.Go(func() {
				r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/sandboxes", strings.NewReader(`{"timeout":60}`))
				r.Header.Set("Idempotency-Key", "k")
				if err := (control{a}).create(httptest.NewRecorder(), r, request{caller: me, thread: newSandboxID(r), held: a.o.Held.Of("me")}); err != nil {
					if waited := time.Since(began); waited != startTime {
						t.Errorf("waited for %s: %v", waited, err)
					}
					close(release)
				}
			})
		}
		wg.Wait()
	})
}
