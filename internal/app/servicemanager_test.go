package app

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	systemd "github.com/coreos/go-systemd/v22/daemon"
)

// listenAsSystemd returns what systemd is told.
func listenAsSystemd(t *testing.T) <-chan string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	told := make(chan string, 100)
	go func() {
		buf := make([]byte, 256)
		for {
			n, err := socket.Read(buf)
			if err != nil {
				return
			}
			told <- string(buf[:n])
		}
	}()
	return told
}

func tellsWithin(t *testing.T, told <-chan string, want string) {
	t.Helper()
	select {
	case got := <-told:
		if got != want {
			t.Fatalf("systemd was told %q, want %q", got, want)
		}
	case <-time.After(10 * time.Second):
		t.Fatalf("systemd was not told %q", want)
	}
}

// TestWatchdogHearsOfAServerThatAnswers: systemd hears of a server as long as it answers, and no more of one that hangs.
func TestWatchdogHearsOfAServerThatAnswers(t *testing.T) {
	told := listenAsSystemd(t)
	const interval = 300 * time.Millisecond
	t.Setenv("WATCHDOG_USEC", strconv.FormatInt(interval.Microseconds(), 10))
	t.Setenv("WATCHDOG_PID", "")
	manager := serviceManager{slog.New(slog.DiscardHandler)}
	manager.tell(systemd.SdNotifyReady)
	tellsWithin(t, told, systemd.SdNotifyReady)

	var hangs atomic.Bool
	release, asked := make(chan struct{}), make(chan struct{}, 1)
	ctx, cancel := context.WithCancel(t.Context())
	wait := manager.watched(ctx, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/healthz" {
			w.WriteHeader(http.StatusNotFound)
		}
		if hangs.Load() {
			select {
			case asked <- struct{}{}:
			default:
			}
			<-release
		}
	}))
	tellsWithin(t, told, systemd.SdNotifyWatchdog)
	tellsWithin(t, told, systemd.SdNotifyWatchdog)
	hangs.Store(true)
	<-asked
	for len(told) > 0 {
		<-told
	}
	select {
	case got := <-told:
		t.Errorf("the server hangs, and systemd was told %q", got)
	case <-time.After(2 * interval):
	}
	close(release)
	cancel()
	wait()
}
