package memory_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/driver/drivertest"
	"github.com/skerry-sandbox/skerry/internal/driver/memory"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

func TestMain(m *testing.M) { drivertest.Main(m) }

func TestConformance(t *testing.T) {
	host := memory.NewHost(nil, nil)
	defer host.Stop()
	drivertest.Run(t, drivertest.Harness{
		New: func(testing.TB) driver.Driver {
			return memory.New(memory.Options{Host: host, Images: []string{"image"}})
		},
		Runtime:      "runc",
		Image:        "image",
		UnknownImage: "no-such-image",
		Kill: func(t testing.TB, id sandbox.ID) {
			if !host.Kill(id) {
				t.Errorf("%s was not alive", id)
			}
		},
	})
}

// TestDaemon: the fake daemon dials, keeps the secret that it is given, serves, dials again when the
// connection is lost, and is gone with its sandbox.
func TestDaemon(t *testing.T) {
	run := t.TempDir()
	listener, err := net.Listen("unix", filepath.Join(run, "control.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close() //nolint:errcheck // a listener of the test
	d := memory.New(memory.Options{Handler: func(spec sandbox.Spec) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, string(spec.ID))
		})
	}})
	defer d.Close() //nolint:errcheck // a driver of the test
	spec := sandbox.Spec{
		ID: "skerry-0123456789abcdef", Runtime: "runc", UID: 1_000_000, Daemon: "/daemon",
		Mounts: []sandbox.Mount{{Source: run, Target: sandbox.RunDir, ReadOnly: true}},
		Limits: sandbox.Limits{MemoryBytes: 64 << 20, CPUMillis: 100, PIDs: 10, OpenFiles: 64, FileBytes: 1, TmpBytes: 1 << 20, DiskBytes: 1},
	}
	if _, err := d.Create(context.Background(), spec); err != nil {
		t.Fatal(err)
	}
	secret := strings.Repeat("0123456789abcdef", 4)
	for i, want := range []string{"", secret} {
		conn := accept(t, listener)
		if got := shakeHands(t, conn, secret); got != want {
			t.Errorf("connection %d presents the secret %q, want %q", i, got, want)
		}
		if got := ask(t, conn); got != string(spec.ID) {
			t.Errorf("connection %d serves %q", i, got)
		}
		_ = conn.Close()
	}
	conn := accept(t, listener)
	shakeHands(t, conn, secret)
	if !d.Kill(spec.ID) || d.Kill(spec.ID) {
		t.Error("Kill does not tell whether the sandbox was alive")
	}
	_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection outlives the sandbox")
	}
	_ = conn.Close()
}

func accept(t *testing.T, l net.Listener) net.Conn {
	t.Helper()
	_ = l.(*net.UnixListener).SetDeadline(time.Now().Add(5 * time.Second))
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// shakeHands plays the server and returns the secret that was presented.
func shakeHands(t *testing.T, conn net.Conn, secret string) string {
	t.Helper()
	var hello struct{ Secret string }
	// One byte at a time: what follows the line belongs to HTTP.
	var line []byte
	for b := make([]byte, 1); len(line) == 0 || line[len(line)-1] != '\n'; {
		if _, err := conn.Read(b); err != nil {
			t.Fatal(err)
		}
		line = append(line, b[0])
	}
	if err := json.Unmarshal(line, &hello); err != nil {
		t.Fatal(err)
	}
	if err := json.NewEncoder(conn).Encode(map[string]any{"ok": true, "secret": secret}); err != nil {
		t.Fatal(err)
	}
	return hello.Secret
}

func ask(t *testing.T, conn net.Conn) string {
	t.Helper()
	cc, err := (&http2.Transport{AllowHTTP: true}).NewClientConn(conn)
	if err != nil {
		t.Fatal(err)
	}
	defer cc.Close() //nolint:errcheck // the connection is the test's
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://sandbox/", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := cc.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}
