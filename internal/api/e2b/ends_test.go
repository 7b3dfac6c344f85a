package e2b

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/skerry-sandbox/skerry/internal/api/e2b/envd/process"
	"github.com/skerry-sandbox/skerry/internal/api/e2b/envd/process/processconnect"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// within waits until a thing is so.
func within(t *testing.T, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !so(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not within 20 s: " + what)
		}
	}
}

// TestConnectAfterAutoPause: a sandbox that was paused at its end stays up when a client connects to it, at any moment.
func TestConnectAfterAutoPause(t *testing.T) {
	h, srv := start(t)
	is := func(id, want string) func() bool {
		return func() bool {
			h.mu.Lock()
			defer h.mu.Unlock()
			return state(h.threads[id]) == want
		}
	}
	for i := range 24 {
		h.mu.Lock()
		h.slow = time.Duration(i%4) * time.Millisecond
		h.mu.Unlock()
		id := create(t, srv.URL, `{"timeout":0,"autoPause":true}`)
		if i%2 == 0 {
			within(t, "a pause", is(id, statePaused))
		}
		if status, body := call(t, http.MethodPost, srv.URL+"/sandboxes/"+id+"/connect", id, `{"timeout":300}`); status != http.StatusOK && status != http.StatusCreated {
			t.Fatal(status, body)
		}
		for range 10 {
			if !is(id, stateRunning)() {
				t.Fatalf("%d: it is paused after connect", i)
			}
			time.Sleep(time.Millisecond)
		}
	}
}

// TestClientLeaves: the run of a client that goes away is interrupted, and killed when that does not end it. The next run of
// its context waits for that.
func TestClientLeaves(t *testing.T) {
	for _, stubborn := range []bool{false, true} {
		h, srv := start(t)
		id := create(t, srv.URL, `{"timeout":60}`)
		h.mu.Lock()
		h.runs, h.stubborn = make(chan struct{}), stubborn
		h.mu.Unlock()
		ctx, leave := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, srv.URL+"/execute", strings.NewReader(`{"code":"while True: pass"}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(sandboxHeader, id)
		go func() {
			within(t, "a run", func() bool { h.mu.Lock(); defer h.mu.Unlock(); return h.code.Text != "" })
			leave()
		}()
		if res, err := http.DefaultClient.Do(req); err == nil {
			_, err = io.ReadAll(res.Body)
			_ = res.Body.Close()
			if err == nil {
				t.Fatal("the answer ended")
			}
		}
		want := []string{"interrupt cpython"}
		if stubborn {
			want = append(want, "kill ex1", "restart cpython")
		}
		within(t, "an end of the run", func() bool {
			h.mu.Lock()
			defer h.mu.Unlock()
			return slices.Equal(h.did, want)
		})
		if status, body := call(t, http.MethodPost, srv.URL+"/execute", id, `{"code":"1"}`); status != http.StatusOK {
			t.Error(status, body)
		}
	}
}

// TestKilledUnderARun: a run whose sandbox is killed does not end as one that was killed alone: the SDKs find out that the
// sandbox is gone.
func TestKilledUnderARun(t *testing.T) {
	for _, status := range []sandbox.Status{sandbox.StatusKilled, sandbox.StatusLost} {
		h, srv := start(t)
		id := create(t, srv.URL, `{"timeout":60}`)
		h.events = []sandbox.Event{{N: 1, Type: sandbox.EventExit, Result: &sandbox.Result{Status: status}}}
		h.beforeEvents = func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			delete(h.threads, id)
		}
		c := processconnect.NewProcessClient(http.DefaultClient, srv.URL, connect.WithProtoJSON())
		begin := connect.NewRequest(&process.StartRequest{Process: &process.ProcessConfig{Cmd: "sleep"}})
		about(begin, id)
		s, err := c.Start(t.Context(), begin)
		if err != nil {
			t.Fatal(err)
		}
		for s.Receive() {
			if s.Msg().GetEvent().GetEnd() != nil {
				t.Errorf("%s: it ended as a command does", status)
			}
		}
		if err := s.Err(); connect.CodeOf(err) != connect.CodeUnavailable || !strings.Contains(err.Error(), "was not found") {
			t.Errorf("%s: %v", status, err)
		}
		_ = s.Close()

		id = create(t, srv.URL, `{"timeout":60}`)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+"/execute", strings.NewReader(`{"code":"1"}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(sandboxHeader, id)
		res, err := http.DefaultClient.Do(req)
		if err == nil {
			_, err = io.ReadAll(res.Body)
			_ = res.Body.Close()
		}
		if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: the answer of code ended with %v", status, err)
		}
	}
}
