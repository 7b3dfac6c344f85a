package attack

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/driver/containerd"
	"github.com/skerry-sandbox/skerry/internal/driver/containerd/containerdtest"
)

const (
	startTimeout  = 2 * time.Minute // of a server
	callTimeout   = 3 * time.Minute // of one request
	importTimeout = time.Hour       // of the image, into containerd: in test/machine all is slow
)

// need skips the test when something is missing, or fails it in CI.
func need(t testing.TB, ok bool, what string) {
	t.Helper()
	if ok {
		return
	}
	if os.Getenv("CI") != "" {
		t.Fatalf("missing: %s", what)
	}
	t.Skipf("missing: %s (`make test` installs it)", what)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func cache() string {
	if dir := os.Getenv("SKERRY_CACHE"); dir != "" {
		return dir
	}
	return "/var/cache/skerry"
}

func baseRootfs() string { return filepath.Join(cache(), "images/base/rootfs") }

// needPlace checks that a driver and a runtime can be used here.
func needPlace(t testing.TB, driver, runtime string) {
	t.Helper()
	need(t, os.Geteuid() == 0, "root")
	_, err := exec.LookPath(runtime)
	need(t, err == nil, runtime)
	if driver == InPods {
		needCluster(t)
		return
	}
	if driver != "docker" {
		_, err := os.Stat(filepath.Join(baseRootfs(), "usr/bin/python3"))
		need(t, err == nil, "the unpacked image base")
	}
	switch driver {
	case "docker":
		need(t, exec.Command("docker", "image", "inspect", "skerry/base:latest").Run() == nil, "a docker daemon with the image skerry/base:latest")
		out, err := exec.Command("docker", "info", "--format", "{{range $k, $v := .Runtimes}}{{$k}} {{end}}").Output()
		need(t, err == nil && strings.Contains(string(out), runtime), "the runtime "+runtime+" in the docker daemon")
	case "containerd":
		needContainerd(t)
	}
}

// engine is the containerd of all tests, which TestMain ends.
var engine struct {
	once    sync.Once
	missing error // what it is started from is not there
	err     error
	daemon  *containerdtest.Daemon
}

func needContainerd(t testing.TB) {
	t.Helper()
	engine.once.Do(func() {
		var built containerdtest.Programs
		if built, engine.missing = containerdtest.Built(cache()); engine.missing != nil {
			return
		}
		if engine.daemon, engine.err = containerdtest.Start(built); engine.err == nil {
			engine.err = importBase(t.TempDir(), engine.daemon.Address)
		}
	})
	need(t, engine.missing == nil, "containerd")
	must(t, engine.err)
}

func importBase(root, address string) error {
	d, err := containerd.New(containerd.Options{Address: address, Root: root})
	if err != nil {
		return err
	}
	defer d.Close()
	ctx, cancel := context.WithTimeout(context.Background(), importTimeout)
	defer cancel()
	_, err = d.ImportImage(ctx, "skerry/base:latest", baseRootfs())
	return err
}

func stopContainerd() error {
	if engine.daemon == nil {
		return nil
	}
	return engine.daemon.Stop(containerd.DefaultNamespace)
}

// server is one skerry process with a data folder of its own, and a client of it.
type server struct {
	t    testing.TB
	url  string
	data string
	user string // On-Behalf-Of, or ""
	key  string
	next string // the key of the neighbour's tenant, or ""
	args []string
	env  []string
	cmd  *exec.Cmd
	log  *lines
	done chan struct{}
}

// options say how a server is started.
type options struct {
	driver, runtime string   // "oci", "runc" when empty
	template        string   // lines that are added to the template
	extensions      string   // text of extensions_config.json
	tenants         bool     // the neighbour is of another one
	args            []string // of skerry serve
	env             []string // SKERRY_…=…
}

const template = `name: base
description: for the attacks
image: {docker: "skerry/base:latest", oci: base}
runtime: %s
languages: [typescript, javascript, python, bash]
idle_timeout_s: 600
limits: {memory: 512MiB, cpu: 2000m, pids: 128, open_files: 1024, file_size: 256MiB, tmp: 64MiB, disk: 512MiB}
%s`

// start starts a server and ends it, with all its sandboxes, after the test.
func start(t testing.TB, o options) *server {
	t.Helper()
	if o.driver == "" {
		o.driver = "oci"
	}
	if o.runtime == "" {
		o.runtime = "runc"
	}
	needPlace(t, o.driver, o.runtime)
	s := &server{t: t, data: openDir(t), env: o.env}
	s.args = append([]string{"serve", "--listen", "127.0.0.1:0", "--data", s.data, "--driver", o.driver}, o.args...)
	must(t, os.Mkdir(filepath.Join(s.data, "templates"), 0o755))
	must(t, os.WriteFile(filepath.Join(s.data, "templates/base.yaml"), fmt.Appendf(nil, template, o.runtime, o.template), 0o644))
	if o.extensions != "" {
		must(t, os.WriteFile(filepath.Join(s.data, "extensions_config.json"), []byte(o.extensions), 0o600))
	}
	if o.driver == InPods {
		s.env = append(s.env, namespace(t)...)
	}
	if o.tenants {
		s.key, s.next = s.makeKey("default"), s.makeKey("next-door")
	}
	t.Cleanup(s.destroy)
	s.boot()
	return s
}

// makeKey makes an administrator's key, beside the server, which does not run yet.
func (s *server) makeKey(tenant string) string {
	s.t.Helper()
	out, err := exec.Command(filepath.Join(bin, "skerry"), "keys", "create", "--data", s.data, "--tenant", tenant, "--user", "root", "--admin").Output()
	must(s.t, err)
	return strings.TrimSpace(string(out))
}

// of returns the server as the owner of a thread calls it.
func (s *server) of(thread string) *server {
	if thread != neighbour || s.next == "" {
		return s
	}
	n := *s
	n.key = s.next
	return &n
}

// openDir makes a folder that other uids may pass through, as t.TempDir is not, and takes it away after the test.
func openDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "skerry-attack-")
	must(t, err)
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("not removed: %v", err)
		}
	})
	must(t, os.Chmod(dir, 0o711)) //nolint:gosec // as it says
	return dir
}

// boot starts the process and waits until it serves.
func (s *server) boot() {
	s.t.Helper()
	skills, err := filepath.Abs("../../skills")
	must(s.t, err)
	s.cmd = exec.Command(filepath.Join(bin, "skerry"), s.args...)
	s.cmd.Env = append(os.Environ(), "SKERRY_DISK_QUOTA=off", "SKERRY_TEMPLATES="+filepath.Join(s.data, "templates"), "SKERRY_IMAGES="+filepath.Join(cache(), "images"),
		"SKERRY_SKILLS="+skills, "SKERRY_TEST_SECRET="+serverSecret)
	if engine.daemon != nil {
		s.cmd.Env = append(s.cmd.Env, "SKERRY_CONTAINERD_ADDRESS="+engine.daemon.Address)
	}
	s.cmd.Env = append(s.cmd.Env, s.env...)
	out, err := s.cmd.StdoutPipe()
	must(s.t, err)
	s.log, s.done = &lines{}, make(chan struct{})
	s.cmd.Stderr = s.log
	must(s.t, s.cmd.Start())
	address := make(chan string, 1)
	go func() { // ends with the process, which destroy ends
		defer close(s.done)
		in := bufio.NewScanner(out)
		for in.Scan() {
			if _, found, ok := strings.Cut(in.Text(), "serving on "); ok {
				address <- strings.Fields(found)[0]
			}
		}
		s.cmd.Wait() //nolint:errcheck // may be killed on purpose
	}()
	select {
	case s.url = <-address:
	case <-s.done:
		s.t.Fatalf("the server ended at its start:\n%s", s.log)
	case <-time.After(startTimeout):
		s.t.Fatalf("the server does not serve after %v:\n%s", startTimeout, s.log)
	}
}

// serverSecret is in the environment of every server, and must be nowhere else.
const serverSecret = "skerry-attack-server-secret"

// port is where the server listens, on loopback.
func (s *server) port() string {
	u, err := url.Parse(s.url)
	must(s.t, err)
	return u.Port()
}

// destroy deletes all threads and ends the server.
func (s *server) destroy() {
	if s.cmd == nil || s.cmd.Process == nil {
		return
	}
	s.deleteThreads()
	if s.next != "" {
		s.of(neighbour).deleteThreads()
	}
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		s.t.Error(err)
	}
	select {
	case <-s.done:
	case <-time.After(startTimeout):
		s.t.Errorf("the server does not end within %v of SIGTERM", startTimeout)
		_ = s.cmd.Process.Kill()
		<-s.done
	}
	if s.t.Failed() {
		s.t.Logf("log of the server:\n%s", s.log)
	}
}

func (s *server) deleteThreads() {
	var list struct {
		Items []struct {
			ID string `json:"thread_id"`
		}
	}
	if a, err := s.request("GET", "/api/threads?limit=1000", nil); err == nil && json.Unmarshal(a.body, &list) == nil {
		for _, i := range list.Items {
			if a, err := s.request("DELETE", "/api/threads/"+i.ID, nil); err != nil || a.status != 204 {
				s.t.Errorf("delete %s: %v %s", i.ID, err, a.body)
			}
		}
	}
}

// folder is the host's folder of a thread: what is /mnt/user-data in its sandbox.
func (s *server) folder(thread string) string {
	s.t.Helper()
	found, err := filepath.Glob(filepath.Join(s.data, "tenants/*/users/*/threads", thread))
	must(s.t, err)
	if len(found) != 1 {
		s.t.Fatalf("folders of thread %s: %v", thread, found)
	}
	return found[0]
}

// answer is an answer of the API.
type answer struct {
	status int
	body   []byte
}

// request sends body: bytes as they are, anything else as JSON. It may be called from any goroutine.
func (s *server) request(method, path string, body any) (answer, error) {
	var in io.Reader
	kind := "application/octet-stream"
	switch b := body.(type) {
	case nil:
	case []byte:
		in = bytes.NewReader(b)
	default:
		raw, err := json.Marshal(body)
		if err != nil {
			return answer{}, err
		}
		in, kind = bytes.NewReader(raw), "application/json"
	}
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, in)
	if err != nil {
		return answer{}, err
	}
	if body != nil {
		req.Header.Set("Content-Type", kind)
	}
	if s.key != "" {
		req.Header.Set("Authorization", "Bearer "+s.key)
	}
	if s.user != "" {
		req.Header.Set("On-Behalf-Of", s.user)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	return answer{res.StatusCode, raw}, err
}

// do is request where an answer must come.
func (s *server) do(method, path string, body any) answer {
	s.t.Helper()
	a, err := s.request(method, path, body)
	if err != nil {
		s.t.Fatalf("%s %s: %v\n%s", method, path, err, s.log)
	}
	return a
}

// result is an exec as the API shows it.
type result struct {
	ExecID   string `json:"exec_id"`
	Status   string `json:"status"`
	ExitCode *int   `json:"exit_code"`
	Stdout   string `json:"stdout"`
	Stderr   string `json:"stderr"`
}

// run starts an exec with this body and wants an answer of 200.
func (s *server) run(thread string, body map[string]any) result {
	s.t.Helper()
	a := s.do("POST", "/api/threads/"+thread+"/exec", body)
	var r result
	if a.status != 200 || json.Unmarshal(a.body, &r) != nil {
		s.t.Fatalf("exec %v: %d %s\n%s", body, a.status, a.body, s.log)
	}
	return r
}

// ok runs a shell command that must exit with 0, and returns its output.
func (s *server) ok(thread, command string) string {
	s.t.Helper()
	r := s.run(thread, map[string]any{"command": command})
	if r.ExitCode == nil || *r.ExitCode != 0 {
		s.t.Fatalf("%s: %s, stderr %s", command, r.Status, r.Stderr)
	}
	return r.Stdout
}

// lines is a log that the process writes while the test reads it.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write keeps p.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// String returns all that was written.
func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
