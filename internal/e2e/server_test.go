package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// bin is where TestMain built skerry and skerry-sandboxd.
var bin string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if len(os.Args) == 3 && os.Args[1] == loginArgument {
		return loginClient(os.Args[2])
	}
	err := setTestcontainers()
	if err == nil {
		bin, err = os.MkdirTemp("", "skerry-e2e-")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(bin)
	if err := os.Chmod(bin, 0o755); err != nil { //nolint:gosec // the sandbox's uid runs skerry-sandboxd from here
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for _, name := range []string{"skerry", "skerry-sandboxd", "skerry-bridge"} {
		cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(bin, name), "../../cmd/"+name)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build %s: %v\n%s", name, err, out)
			return 1
		}
	}
	code := m.Run()
	if err := stopContainerd(); err != nil {
		fmt.Fprintln(os.Stderr, "containerd:", err)
		code = 1
	}
	return code
}

// need skips the test when something is missing, or fails it in CI.
func need(t *testing.T, ok bool, what string) {
	t.Helper()
	if ok {
		return
	}
	if os.Getenv("CI") != "" {
		t.Fatalf("missing: %s", what)
	}
	t.Skipf("missing: %s (`make test` installs it)", what)
}

func have(program string) bool { _, err := exec.LookPath(program); return err == nil }

func cache() string {
	if dir := os.Getenv("SKERRY_CACHE"); dir != "" {
		return dir
	}
	return "/var/cache/skerry"
}

// needDriver checks that a driver and runtime can be used here.
func needDriver(t *testing.T, driver, runtime string) {
	t.Helper()
	need(t, os.Geteuid() == 0, "root")
	need(t, have(runtime), runtime)
	switch driver {
	case "docker":
		need(t, exec.Command("docker", "info").Run() == nil, "a docker daemon")
		need(t, exec.Command("docker", "image", "inspect", "skerry/base:latest").Run() == nil, "the image skerry/base:latest")
		if runtime != "runc" {
			out, err := exec.Command("docker", "info", "--format", "{{range $k, $v := .Runtimes}}{{$k}} {{end}}").Output()
			need(t, err == nil && strings.Contains(string(out), runtime), "runtime "+runtime+" in the docker daemon")
		}
	case "containerd":
		needContainerd(t)
	case "oci":
		_, err := os.Stat(filepath.Join(cache(), "images/base/rootfs/usr/bin/python3"))
		need(t, err == nil, "the unpacked image base")
	}
}

// server is one server process and a client of it.
type server struct {
	t    *testing.T
	url  string
	data string
	args []string
	key  string
	user string // On-Behalf-Of
	env  []string
	cmd  *exec.Cmd
	log  *syncBuffer
	done chan struct{}
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// options say how a server is started.
type options struct {
	driver, runtime string
	image           string // of the oci driver: "base", or "host" for the host's own /usr
	extensions      string // text of extensions_config.json
	policy          string // text of the policy's rules; "": the built-in ones
	args            []string
	disk            string            // of a thread; "": 512MiB
	template        string            // lines that are added to the template
	templates       map[string]string // more of them: text by file name
	env             []string          // SKERRY_…=…
	fill            func(data string) // called with the data folder before the server starts
}

const template = `name: base
description: for the tests
image: {docker: "skerry/base:latest", oci: %s}
runtime: %s
languages: [typescript, javascript, python, bash]
idle_timeout_s: 600
limits: {memory: 512MiB, cpu: 2000m, pids: 128, open_files: 1024, file_size: 256MiB, tmp: 64MiB, disk: 512MiB}
`

// start starts a server on a data folder of its own and ends it, with all sandboxes, after the test.
func start(t *testing.T, o options) *server {
	t.Helper()
	if o.driver == "" {
		o.driver = "oci"
	}
	if o.runtime == "" {
		o.runtime = "runc"
	}
	if o.image == "" {
		o.image = "base"
	}
	needDriver(t, o.driver, o.runtime)
	// Not t.TempDir: its parents are closed to the uids of sandboxes and MCP servers.
	data, err := os.MkdirTemp("", "skerry-data-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(filepath.Join(data, "tenants"), 0); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOENT) {
			t.Errorf("disk image not unmounted: %v", err)
		}
		if err := errors.Join(os.RemoveAll(data), os.RemoveAll(data+".keys")); err != nil {
			t.Errorf("data folder not removed: %v", err)
		}
	})
	if o.fill != nil {
		o.fill(data)
	}
	must(t, os.Chmod(data, 0o711)) //nolint:gosec // passed through by other uids, not listed
	must(t, os.Mkdir(filepath.Join(data, "templates"), 0o755))
	limits := template
	if o.disk != "" {
		limits = strings.Replace(template, "disk: 512MiB", "disk: "+o.disk, 1)
	}
	must(t, os.WriteFile(filepath.Join(data, "templates/base.yaml"), fmt.Appendf(nil, limits+"%s", o.image, o.runtime, o.template), 0o644))
	for name, text := range o.templates {
		must(t, os.WriteFile(filepath.Join(data, "templates", name), []byte(text), 0o644))
	}
	if o.extensions != "" {
		must(t, os.WriteFile(filepath.Join(data, "extensions_config.json"), []byte(o.extensions), 0o600))
	}
	if o.policy != "" {
		file := filepath.Join(data, "policy.yaml")
		must(t, os.WriteFile(file, []byte(o.policy), 0o600))
		o.env = append(o.env, "SKERRY_POLICY="+file)
	}
	s := &server{t: t, data: data, env: o.env, args: append([]string{
		"serve", "--listen", "127.0.0.1:0", "--data", data, "--driver", o.driver,
	}, o.args...)}
	t.Cleanup(s.destroy)
	s.boot()
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// boot starts the process and waits until it serves.
func (s *server) boot() {
	s.t.Helper()
	s.cmd = exec.Command(filepath.Join(bin, "skerry"), s.args...)
	s.cmd.Env = append(os.Environ(),
		"SKERRY_TEMPLATES="+filepath.Join(s.data, "templates"), "SKERRY_IMAGES="+filepath.Join(cache(), "images"),
		"SKERRY_SKILLS="+abs(s.t, "../../skills"), "SKERRY_TEST_SECRET=hunter2-server-secret",
		"SKERRY_AUDIT_SIGNING_KEY_FILE="+filepath.Join(s.data+".keys", "audit.pem"), // not that of the machine
		"SKERRY_DISK_QUOTA=off") // an image for each server would take more time than the test
	if slices.Contains(s.args, "containerd") { // after needContainerd
		s.cmd.Env = append(s.cmd.Env, "SKERRY_CONTAINERD_ADDRESS="+engine.daemon.Address)
	}
	s.cmd.Env = append(s.cmd.Env, s.env...)
	out, err := s.cmd.StdoutPipe()
	must(s.t, err)
	s.log = &syncBuffer{}
	s.cmd.Stderr = s.log
	must(s.t, s.cmd.Start())
	s.done = make(chan struct{})
	addr := make(chan string, 1)
	go func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if _, url, ok := strings.Cut(lines.Text(), "serving on "); ok {
				addr <- strings.Fields(url)[0]
			}
		}
		s.cmd.Wait() //nolint:errcheck // killed on purpose
		close(s.done)
	}()
	select {
	case s.url = <-addr:
	case <-s.done:
		s.t.Fatalf("the server ended at start:\n%s", s.log)
	case <-time.After(60 * time.Second):
		s.t.Fatalf("the server does not serve after 60 s:\n%s", s.log)
	}
}

func abs(t *testing.T, p string) string {
	t.Helper()
	a, err := filepath.Abs(p)
	must(t, err)
	return a
}

// kill ends the process as a crash would.
func (s *server) kill() {
	s.t.Helper()
	must(s.t, s.cmd.Process.Kill())
	<-s.done
}

// stop ends it in order.
func (s *server) stop() {
	s.t.Helper()
	must(s.t, s.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case <-s.done:
	case <-time.After(60 * time.Second):
		s.t.Errorf("the server does not stop within 60 s of SIGTERM:\n%s", s.log)
		s.kill()
	}
}

// destroy deletes all threads and ends the server; what is left over afterwards is an error.
func (s *server) destroy() {
	select {
	case <-s.done:
		s.boot()
	default:
	}
	for _, id := range s.threads() {
		if res := s.do("DELETE", "/api/threads/"+id, nil); res.status != 204 {
			s.t.Errorf("delete %s: %s", id, res.body)
		}
	}
	s.stop()
	if s.t.Failed() {
		s.t.Logf("log of the server:\n%s", s.log)
	}
}

func (s *server) threads() []string {
	var list struct {
		Items []struct {
			ID string `json:"thread_id"`
		}
	}
	res := s.do("GET", "/api/threads?limit=1000", nil)
	if res.status != 200 {
		return nil
	}
	res.into(s.t, &list)
	var ids []string
	for _, i := range list.Items {
		ids = append(ids, i.ID)
	}
	return ids
}

// answer is an answer of the API.
type answer struct {
	status int
	header http.Header
	body   []byte
}

func (a answer) into(t *testing.T, v any) {
	t.Helper()
	if err := json.Unmarshal(a.body, v); err != nil {
		t.Fatalf("%v: %.500s", err, a.body)
	}
}

// code is the code of a problem.
func (a answer) code() string {
	var p struct{ Code string }
	if json.Unmarshal(a.body, &p) != nil {
		return ""
	}
	return p.Code
}

// request sends bytes as they are, and any other body as JSON. It may be called from any goroutine.
func (s *server) request(method, path string, body any) (answer, error) {
	var in io.Reader
	kind := "application/json"
	if raw, ok := body.([]byte); ok {
		in, kind = bytes.NewReader(raw), "application/octet-stream"
	} else if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return answer{}, err
		}
		in = bytes.NewReader(raw)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
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
	return answer{res.StatusCode, res.Header, raw}, err
}

func (s *server) do(method, path string, body any) answer {
	s.t.Helper()
	a, err := s.request(method, path, body)
	if err != nil {
		s.quit()
		s.t.Fatalf("%s %s: %v\n%s", method, path, err, s.log)
	}
	return a
}

// quit ends a server that does not answer so that its log says what each goroutine waits for.
func (s *server) quit() {
	if s.cmd.Process.Signal(syscall.SIGQUIT) == nil {
		select {
		case <-s.done:
		case <-time.After(10 * time.Second):
		}
	}
}

// result is an exec as the API shows it.
type result struct {
	ExecID      string  `json:"exec_id"`
	Status      string  `json:"status"`
	Detail      string  `json:"detail"`
	ExitCode    *int    `json:"exit_code"`
	Stdout      string  `json:"stdout"`
	Stderr      string  `json:"stderr"`
	Truncated   bool    `json:"truncated"`
	StdoutPath  *string `json:"stdout_path"`
	ToolsCalled []struct {
		Tool, Status, Error string
	} `json:"tools_called"`
	Files []struct {
		Path, SHA256, Change string
		Bytes                int64
	} `json:"files"`
}

// exec runs a shell command and wants an answer of 200.
func (s *server) exec(thread, command string) result {
	s.t.Helper()
	return s.run(thread, "exec", map[string]any{"command": command})
}

func (s *server) run(thread, route string, body map[string]any) result {
	s.t.Helper()
	a := s.do("POST", "/api/threads/"+thread+"/"+route, body)
	if a.status != 200 {
		s.t.Fatalf("%s %v: %d %s\n%s", route, body, a.status, a.body, s.log)
	}
	var r result
	a.into(s.t, &r)
	return r
}

// ok runs a shell command that must exit with 0, and returns its stdout.
func (s *server) ok(thread, command string) string {
	s.t.Helper()
	r := s.exec(thread, command)
	if r.ExitCode == nil || *r.ExitCode != 0 {
		s.t.Fatalf("%s: %s, stderr %s", command, r.Status, r.Stderr)
	}
	return r.Stdout
}

// eventually waits for a condition with a deadline.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(3 * time.Minute) // bounds the test; what is fast has a measure of its own
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not within three minutes: %s", what)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
