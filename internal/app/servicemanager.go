package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	systemd "github.com/coreos/go-systemd/v22/daemon"

	"github.com/skerry-sandbox/skerry/internal/platform/every"
)

// serviceManager tells systemd how the server is (sd_notify(3)). Without systemd it tells nobody.
type serviceManager struct {
	log *slog.Logger
}

func (m serviceManager) tell(state string) {
	if _, err := systemd.SdNotify(false, state); err != nil {
		m.log.Warn("the service manager was not told", "state", state, "error", err)
	}
}

// watched answers the watchdog of systemd as long as h answers /healthz, until ctx ends. systemd restarts a server that
// does not: its sandboxes go on, and the next server adopts them.
func (m serviceManager) watched(ctx context.Context, h http.Handler) (wait func()) {
	interval, err := systemd.SdWatchdogEnabled(false)
	if err != nil || interval == 0 {
		if err != nil {
			m.log.Warn("the watchdog of the service manager cannot be answered", "error", err)
		}
		return func() {}
	}
	var group sync.WaitGroup
	group.Go(func() {
		report := func() {
			if answers(ctx, h, interval/3) {
				m.tell(systemd.SdNotifyWatchdog)
			}
		}
		report()
		for range every.Tick(ctx, interval/3) {
			report()
		}
	})
	return group.Wait
}

// answers reports whether a handler says in time that the process lives.
func answers(ctx context.Context, h http.Handler, within time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "/healthz", http.NoBody)
	if err != nil {
		return false
	}
	r.Host, r.RemoteAddr = "localhost", "127.0.0.1:0"
	done := make(chan int, 1)
	go func() {
		w := statusOnly{header: http.Header{}, status: http.StatusOK}
		h.ServeHTTP(&w, r)
		done <- w.status
	}()
	select {
	case status := <-done:
		return status == http.StatusOK
	case <-ctx.Done():
		return false
	}
}

// statusOnly is a http.ResponseWriter that keeps the status.
type statusOnly struct {
	header http.Header
	status int
}

func (w *statusOnly) Header() http.Header         { return w.header }
func (w *statusOnly) WriteHeader(status int)      { w.status = status }
func (w *statusOnly) Write(p []byte) (int, error) { return len(p), nil }

// activated returns the socket that systemd listens on for this server, or nil: then the server listens itself.
func activated() (net.Listener, error) {
	listeners, err := activation.Listeners()
	if err != nil {
		return nil, fmt.Errorf("socket of the service manager: %w", err)
	}
	if len(listeners) == 0 {
		return nil, nil //nolint:nilnil // nothing was handed over
	}
	if len(listeners) == 1 && listeners[0] != nil {
		if _, ok := listeners[0].Addr().(*net.TCPAddr); ok {
			return listeners[0], nil
		}
	}
	for _, l := range listeners {
		if l != nil { // a socket of datagrams
			err = errors.Join(err, l.Close())
		}
	}
	return nil, errors.Join(fmt.Errorf("the service manager hands over %d sockets; want one, a ListenStream= with an address of TCP", len(listeners)), err)
}
