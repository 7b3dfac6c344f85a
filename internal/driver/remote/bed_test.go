package remote

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/driver/drivertest"
	"github.com/skerry-sandbox/skerry/internal/driver/drivertest/probewire"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/sidecar/pki"
)

func TestMain(m *testing.M) { drivertest.Main(m) }

// bed is a real Skerry with e2b: true, and a way to it that can be broken for single sandboxes.
type bed struct {
	url    string // of the way
	server string // behind it
	bridge string
	auth   *pki.Authority
	root   string
	way    *way
}

const bedTemplate = `name: nest
description: in it, sandboxes of another server
image: {oci: host}
runtime: runc
languages: [bash]
idle_timeout_s: 0
limits: {memory: 512MiB, cpu: 2000m, pids: 256, open_files: 1024, file_size: 256MiB, tmp: 64MiB, disk: 512MiB}
loosen: [seccomp.namespaces]
`

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newBed builds and starts the server.
func newBed(t *testing.T) *bed {
	t.Helper()
	for _, program := range []string{"runc", "nsenter"} {
		if _, err := exec.LookPath(program); err != nil {
			drivertest.Missing(t, program, err)
		}
	}
	if os.Geteuid() != 0 {
		drivertest.Missing(t, "root", "the server behind the API starts containers")
	}
	base, err := os.MkdirTemp("", "remote-bed-") // not t.TempDir: its parents are closed to the uids of sandboxes
	must(t, err)
	must(t, os.Chmod(base, 0o711)) //nolint:gosec // passed through by other uids
	t.Cleanup(func() { must(t, os.RemoveAll(base)) })
	bin, templates := filepath.Join(base, "bin"), filepath.Join(base, "templates")
	must(t, os.Mkdir(templates, 0o755))
	must(t, os.WriteFile(filepath.Join(templates, "nest.yaml"), []byte(bedTemplate), 0o644))
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", bin+"/", "github.com/skerry-sandbox/skerry/cmd/...")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	b := &bed{bridge: filepath.Join(bin, "skerry-bridge"), root: filepath.Join(base, "driver")}
	b.auth, err = pki.Open(t.Context(), filepath.Join(base, "authority"))
	must(t, err)
	b.server = serve(t, bin, base, templates)
	b.way = &way{cut: map[string]bool{}, under: map[string]map[int]context.CancelFunc{}}
	target, err := url.Parse(b.server)
	must(t, err)
	b.way.proxy = &httputil.ReverseProxy{
		FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		ErrorLog:     slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	front := httptest.NewUnstartedServer(b.way)
	front.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	front.Start()
	t.Cleanup(front.Close)
	b.url = front.URL
	return b
}

// serve starts the server, and ends it after the test.
func serve(t *testing.T, bin, base, templates string) string {
	t.Helper()
	cmd := exec.Command(filepath.Join(bin, "skerry"), "serve", "--listen", "127.0.0.1:0", "--data", filepath.Join(base, "data"), "--driver", "oci")
	cmd.Env = append(os.Environ(), "SKERRY_E2B=true", "SKERRY_TEMPLATES="+templates, "SKERRY_DEFAULT_TEMPLATE=nest", "SKERRY_DISK_QUOTA=off",
		"SKERRY_AUDIT_SIGNING_KEY_FILE="+filepath.Join(base, "audit.pem"), "SKERRY_SECRETS_KEY_FILE="+filepath.Join(base, "secrets.key"))
	out, err := cmd.StdoutPipe()
	must(t, err)
	var log bytes.Buffer
	cmd.Stderr = &log
	must(t, cmd.Start())
	addr, done := make(chan string, 1), make(chan struct{})
	go func() {
		defer close(done)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if _, url, ok := strings.Cut(lines.Text(), "serving on "); ok {
				addr <- strings.Fields(url)[0]
			}
		}
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-done
		if t.Failed() {
			t.Logf("the server behind the API:\n%s", log.String()[max(0, log.Len()-4<<10):])
		}
	})
	select {
	case url := <-addr:
		return url
	case <-done:
		t.Fatalf("the server ended at start:\n%s", log.String())
	case <-time.After(time.Minute):
		t.Fatal("the server does not serve")
	}
	return ""
}

// newDriver is a server that has just been started.
func (b *bed) newDriver(t testing.TB) driver.Driver {
	d, err := New(Options{
		URL: b.url, SandboxURL: b.url, Authority: b.auth, Bridge: b.bridge, Root: b.root, LookEvery: 500 * time.Millisecond,
		Log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	must(t, err)
	return d
}

// way passes requests on, but those to sandboxes that are cut off.
type way struct {
	proxy *httputil.ReverseProxy

	mu    sync.Mutex
	next  int
	cut   map[string]bool
	under map[string]map[int]context.CancelFunc
}

func (w *way) ServeHTTP(to http.ResponseWriter, r *http.Request) {
	name := r.Header.Get("E2b-Sandbox-Id")
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	w.mu.Lock()
	broken := w.cut[name]
	w.next++
	n := w.next
	if w.under[name] == nil {
		w.under[name] = map[int]context.CancelFunc{}
	}
	w.under[name][n] = cancel
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.under[name], n)
	}()
	if name != "" && broken {
		panic(http.ErrAbortHandler)
	}
	w.proxy.ServeHTTP(to, r.WithContext(ctx))
}

func (w *way) set(name string, broken bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut[name] = broken
	if broken {
		for _, cancel := range w.under[name] {
			cancel()
		}
	}
}

// thread is the sandbox of the service's that one of ours is.
func (b *bed) thread(t testing.TB, id sandbox.ID) string {
	t.Helper()
	q := url.Values{"metadata": {url.Values{metaID: {string(id)}}.Encode()}}
	answer, err := http.Get(b.server + "/v2/sandboxes?" + q.Encode())
	must(t, err)
	defer answer.Body.Close() //nolint:errcheck // test
	var list []made
	must(t, json.NewDecoder(answer.Body).Decode(&list))
	if len(list) != 1 {
		t.Fatalf("the service has %d sandboxes for %s", len(list), id)
	}
	return list[0].ID
}

// pid is the host's number of the first process of a sandbox.
func (b *bed) pid(t testing.TB, id sandbox.ID) int {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	must(t, err)
	for _, file := range lines {
		text, err := os.ReadFile(file)
		if err != nil || string(text) != "./skerry-bridge\x00--nest\x00" {
			continue
		}
		dir := filepath.Dir(file)
		if _, name, err := pki.PodTLS(dir + "/cwd/certs"); err != nil || name != id {
			continue
		}
		children, err := filepath.Glob(dir + "/task/*/children")
		must(t, err)
		for _, c := range children {
			text, err := os.ReadFile(c)
			must(t, err)
			if pid, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
				return pid
			}
		}
	}
	t.Fatalf("no process is the sandbox %s", id)
	return 0
}

// inside does something in the namespaces of a sandbox, as the user there, through the service's own API of threads.
func (b *bed) inside(t testing.TB, id sandbox.ID, req probewire.Request) (resp probewire.Response) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", b.pid(t, id)))
	must(t, err)
	_, rest, _ := strings.Cut(string(status), "NSpid:")
	line, _, _ := strings.Cut(rest, "\n")
	numbers := strings.Fields(line)
	text, err := json.Marshal(req)
	must(t, err)
	out := b.exec(t, b.thread(t, id), "nsenter", "-t", numbers[len(numbers)-1], "-U", "-m", "-n", "-i", "--preserve-credentials", sandbox.DaemonPath, "child", string(text))
	if err := json.Unmarshal([]byte(out), &resp); err != nil {
		t.Fatalf("inside: %q", out)
	}
	return resp
}

// exec runs a command in a sandbox of the service's, beside ours.
func (b *bed) exec(t testing.TB, thread string, argv ...string) string {
	t.Helper()
	body, err := json.Marshal(map[string]any{"argv": argv, "max_output_bytes": 4 << 20})
	must(t, err)
	answer, err := http.Post(b.server+"/api/threads/"+thread+"/exec", "application/json", bytes.NewReader(body))
	must(t, err)
	defer answer.Body.Close() //nolint:errcheck // test
	var result struct{ Stdout, Stderr string }
	must(t, json.NewDecoder(answer.Body).Decode(&result))
	if result.Stdout == "" {
		return result.Stderr
	}
	return result.Stdout
}
