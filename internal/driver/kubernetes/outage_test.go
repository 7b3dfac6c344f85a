package kubernetes_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/driver/drivertest/probewire"
	"github.com/skerry-sandbox/skerry/internal/driver/kubernetes"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// outage stands between a driver and the API server. While answer is set, all requests get it; what it has none for goes on.
type outage struct {
	next http.RoundTripper

	mu      sync.Mutex
	answer  func(*http.Request) (*http.Response, error)
	asked   int // requests since it began
	watches []io.Closer
}

func (o *outage) RoundTrip(r *http.Request) (*http.Response, error) {
	o.mu.Lock()
	answer := o.answer
	if answer != nil {
		o.asked++
	}
	o.mu.Unlock()
	if answer != nil {
		if resp, err := answer(r); resp != nil || err != nil {
			return resp, err
		}
	}
	resp, err := o.next.RoundTrip(r)
	if err == nil && r.URL.Query().Get("watch") != "" {
		o.mu.Lock()
		o.watches = append(o.watches, resp.Body)
		o.mu.Unlock()
	}
	return resp, err
}

// begin ends all watches, and has every request answered so.
func (o *outage) begin(answer func(*http.Request) (*http.Response, error)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, w := range o.watches {
		_ = w.Close()
	}
	o.answer, o.asked, o.watches = answer, 0, nil
}

// end returns the number of requests that came meanwhile.
func (o *outage) end() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.answer = nil
	return o.asked
}

// refuses is an API server that answers with a status, as it does when it is overloaded, or not well.
func refuses(status int, reason metav1.StatusReason, header http.Header) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		body := fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d}`, reason, status)
		h := header.Clone()
		if h == nil {
			h = http.Header{}
		}
		h.Set("Content-Type", "application/json")
		return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
	}
}

// outageTime is how long each outage lasts, and mostAsked how many requests may come in it from one driver with one caller: all
// of them wait between two.
const (
	outageTime = 6 * time.Second
	mostAsked  = 60
)

// TestOutages: while the API server does not answer, what runs is reached, and no caller waits without end; afterwards all is
// known that came to be meanwhile.
func TestOutages(t *testing.T) {
	c := newCluster(t)
	var forgotten atomic.Int64
	for _, kind := range []struct {
		name   string
		answer func(*http.Request) (*http.Response, error)
	}{
		{"refused", func(*http.Request) (*http.Response, error) {
			return nil, &os.SyscallError{Syscall: "connect", Err: unix.ECONNREFUSED}
		}},
		{"overloaded", refuses(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, http.Header{"Retry-After": {"1"}})},
		{"failing", refuses(http.StatusInternalServerError, metav1.StatusReasonInternalError, nil)},
		{"forgotten", func(r *http.Request) (*http.Response, error) { // the version that a watch goes on from; the next one asks for another
			if r.URL.Query().Get("watch") == "" || forgotten.Add(1) > 1 {
				return nil, nil //nolint:nilnil // it goes on
			}
			return refuses(http.StatusGone, metav1.StatusReasonExpired, nil)(r)
		}},
	} {
		t.Run(kind.name, func(t *testing.T) { c.outage(t, kind.answer) })
	}
}

func (c *cluster) outage(t *testing.T, answer func(*http.Request) (*http.Response, error)) {
	away := &outage{}
	d := c.driver(t, func(o *kubernetes.Options) {
		o.Config = rest.CopyConfig(o.Config)
		o.Config.Wrap(func(next http.RoundTripper) http.RoundTripper { away.next = next; return away })
	})
	specs := []sandbox.Spec{c.spec(t, "runc"), c.spec(t, "runc"), c.spec(t, "runc")}
	t.Cleanup(func() {
		for _, s := range specs {
			must(t, d.Remove(ctx(t), s.ID))
		}
		must(t, d.Close())
	})
	kept, lost, made := specs[0], specs[1], specs[2]
	for _, s := range []sandbox.Spec{kept, lost} {
		_, err := d.Create(ctx(t), s)
		must(t, err)
	}
	following, end := context.WithCancel(t.Context())
	defer end()
	events, err := d.Watch(following)
	must(t, err)

	away.begin(answer)
	began := time.Now()
	must(t, c.client.Core.Pods(c.namespace).Delete(ctx(t), string(lost.ID), metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
	result := make(chan error, 1)
	go func() {
		_, err := d.Create(ctx(t), made)
		result <- err
	}()
	if resp := c.inside(t, kept.ID, probewire.Request{Op: probewire.OpWrite, Path: sandbox.UserDataDir + "/workspace/meanwhile", Data: "x"}); resp.Err != "" {
		t.Errorf("a sandbox while the API server is away: %s", resp.Err)
	}
	if changed, err := d.Pull(ctx(t), kept.ID); err != nil || !changed {
		t.Errorf("its files: %t, %v", changed, err)
	}
	if text, err := os.ReadFile(filepath.Join(kept.Mounts[0].Source, "workspace/meanwhile")); err != nil || string(text) != "x" {
		t.Errorf("at the server: %q, %v", text, err)
	}
	time.Sleep(time.Until(began.Add(outageTime)))
	asked, lasted := away.end(), time.Since(began)
	if most := int(mostAsked * lasted / outageTime); asked == 0 || asked > most {
		t.Errorf("%d requests in %s, want at most %d", asked, lasted, most)
	}

	if err := <-result; err != nil && !errors.Is(err, sandbox.Unavailable) {
		t.Errorf("a create meanwhile: %v", err)
	} else if err != nil {
		_, err := d.Create(ctx(t), made)
		must(t, err)
	}
	awaitLost(t, events, lost.ID)
	list, err := d.List(ctx(t), nil)
	must(t, err)
	var ids []sandbox.ID
	for _, i := range list {
		if i.State != sandbox.Running {
			t.Errorf("%s is %s", i.ID, i.State)
		}
		ids = append(ids, i.ID)
	}
	want := []sandbox.ID{kept.ID, made.ID}
	if slices.Sort(ids); !slices.Equal(ids, want) {
		t.Errorf("there are %v, want %v", ids, want)
	}
}

func awaitLost(t *testing.T, events <-chan driver.Event, id sandbox.ID) {
	t.Helper()
	for end := time.After(time.Minute); ; {
		select {
		case e, ok := <-events:
			if !ok {
				t.Fatal("the watch has ended")
			}
			if e.ID == id && e.State == sandbox.Lost {
				return
			}
		case <-end:
			t.Fatalf("the end of %s is not told", id)
		}
	}
}
