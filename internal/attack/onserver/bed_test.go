package onserver

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
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/attack/bomb"
)

// The users of the server: the one who attacks, and the one who must not notice.
const (
	eve = "eve"
	bob = "bob"
)

// bed is what all attacks share: one server process on the docker driver, with sandboxes of two users.
type bed struct {
	dir  string // of all that is made here
	data string // of the server
	url  string
	key  string // of an administrator who may act for any user
	cmd  *exec.Cmd
	log  *syncBuffer
	done chan struct{}
	mcp  *toolServer
	// issuer is the identity provider that the server knows.
	issuer *issuer
	// plain is a container of the same image without limits: where bombs go off.
	plain string
}

var theBed *bed

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if why := missing(); why != "" {
		if os.Getenv("CI") != "" {
			fmt.Fprintln(os.Stderr, "missing:", why)
			return 1
		}
		fmt.Fprintln(os.Stderr, "skipped, missing:", why, "(`make test` installs it)")
		return 0
	}
	b, err := newBed()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	theBed = b
	code := m.Run()
	if err := b.close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if code != 0 {
		fmt.Fprintf(os.Stderr, "log of the server:\n%s", b.log.tail(1<<13))
	}
	return code
}

// missing says what of this machine is needed and not there.
func missing() string {
	switch {
	case os.Geteuid() != 0:
		return "root"
	case exec.Command("docker", "image", "inspect", "skerry/base:latest").Run() != nil:
		return "a docker daemon with the image skerry/base:latest"
	}
	return ""
}

func newBed() (_ *bed, err error) {
	runtime.LockOSThread() // children get a signal when the thread that started them ends
	b := &bed{log: &syncBuffer{}, done: make(chan struct{})}
	// Not t.TempDir: its parents are closed to the uids of sandboxes.
	if b.dir, err = os.MkdirTemp("", "skerry-attack-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	b.data = filepath.Join(b.dir, "data")
	if b.mcp, err = startTools(); err != nil {
		return nil, err
	}
	if b.issuer, err = startIssuer(); err != nil {
		return nil, err
	}
	config := fmt.Appendf(nil, `{"mcpServers": {"far": {"type": "http", "url": %[1]q, "disabledTools": ["secret_tool"]}, "open": {"type": "http", "url": %[1]q}}}`, b.mcp.url)
	err = errors.Join(os.Chmod(b.dir, 0o711), os.Mkdir(b.data, 0o711), os.Mkdir(filepath.Join(b.data, "templates"), 0o755), //nolint:gosec // passed through by other uids
		os.WriteFile(filepath.Join(b.data, "templates/base.yaml"), []byte(bomb.Template), 0o600),
		os.WriteFile(filepath.Join(b.data, "templates/slow.yaml"), []byte(bomb.SlowTemplate), 0o600),
		os.WriteFile(filepath.Join(b.data, "extensions_config.json"), config, 0o600))
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"skerry", "skerry-sandboxd"} {
		cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(b.dir, name), "../../../cmd/"+name)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build %s: %w\n%s", name, err, out)
		}
	}
	if err := b.makeKey(); err != nil {
		return nil, err
	}
	return b, b.boot()
}

// boot starts the server and waits until it serves.
func (b *bed) boot() error {
	b.cmd = exec.Command(filepath.Join(b.dir, "skerry"), "serve", "--listen", "127.0.0.1:0", "--data", b.data, "--driver", "docker", "--auth", "auto")
	b.cmd.Env = append(os.Environ(), "SKERRY_DISK_QUOTA=off", "SKERRY_TEMPLATES="+filepath.Join(b.data, "templates"), "SKERRY_TEST_SECRET=hunter2-server-secret", "SKERRY_OIDC="+b.issuer.config())
	b.cmd.Stderr = b.log
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM} // nothing stays behind, however this ends
	out, err := b.cmd.StdoutPipe()
	if err == nil {
		err = b.cmd.Start()
	}
	if err != nil {
		return err
	}
	address := make(chan string, 1)
	go func() {
		defer close(b.done)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if _, url, ok := strings.Cut(lines.Text(), "serving on "); ok {
				address <- strings.Fields(url)[0]
			}
		}
		b.cmd.Wait() //nolint:errcheck // ended on purpose
	}()
	select {
	case b.url = <-address:
		return nil
	case <-b.done:
		return fmt.Errorf("the server ended at start:\n%s", b.log.tail(4096))
	case <-time.After(time.Minute):
		return fmt.Errorf("the server does not serve after a minute:\n%s", b.log.tail(4096))
	}
}

// makeKey makes the first key, beside the server, which does not run yet.
func (b *bed) makeKey() error {
	out, err := exec.Command(filepath.Join(b.dir, "skerry"), "keys", "create", "--data", b.data, "--user", "root", "--admin", "--act-for").Output()
	b.key = strings.TrimSpace(string(out))
	return err
}

// close deletes all threads, ends the server and looks for what is left over.
func (b *bed) close() error {
	var errs []error
	if b.url != "" {
		errs = append(errs, b.deleteThreads(), b.cmd.Process.Signal(syscall.SIGTERM))
		select {
		case <-b.done:
		case <-time.After(time.Minute):
			errs = append(errs, errors.New("the server does not stop within a minute of SIGTERM"), b.cmd.Process.Kill())
			<-b.done
		}
		errs = append(errs, b.leftOver())
	}
	if b.plain != "" {
		errs = append(errs, exec.Command("docker", "rm", "-f", b.plain).Run())
	}
	if b.mcp != nil {
		errs = append(errs, b.mcp.close())
	}
	if b.issuer != nil {
		b.issuer.Close()
	}
	return errors.Join(append(errs, os.RemoveAll(b.dir))...)
}

func (b *bed) deleteThreads() error {
	var errs []error
	for _, user := range []string{eve, bob} {
		var list struct {
			Items []struct {
				ID string `json:"thread_id"`
			}
		}
		a, err := b.request(user, "GET", "/api/threads?limit=1000", nil)
		if err == nil {
			err = json.Unmarshal(a.body, &list)
		}
		errs = append(errs, err)
		for _, i := range list.Items {
			if a, err := b.request(user, "DELETE", "/api/threads/"+i.ID, nil); err != nil || a.status != http.StatusNoContent {
				errs = append(errs, fmt.Errorf("delete %s: %w %d %s", i.ID, err, a.status, a.body))
			}
		}
	}
	return errors.Join(errs...)
}

// leftOver names containers and workspaces that are there after all threads were deleted.
func (b *bed) leftOver() error {
	var errs []error
	for _, pattern := range []string{"run/skerry-*", "tenants/*/users/*/threads/[^.]*", "tenants/*/users/*/threads/.[^h]*-*"} {
		if found, err := filepath.Glob(filepath.Join(b.data, pattern)); err != nil || len(found) > 0 {
			errs = append(errs, fmt.Errorf("left over: %v %w", found, err))
		}
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil || bytes.Contains(mounts, []byte(b.dir)) {
		errs = append(errs, fmt.Errorf("mounts of the server are left over: %w", err))
	}
	return errors.Join(errs...)
}

// syncBuffer keeps what the server writes to its log.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

// tail is the end of the log, at most n bytes.
func (s *syncBuffer) tail(n int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.b.Bytes()
	return string(all[max(0, len(all)-n):])
}

// answer is an answer of the API.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// code is the code of a problem.
func (a answer) code() string {
	var p struct{ Code string }
	if json.Unmarshal(a.body, &p) != nil {
		return ""
	}
	return p.Code
}

// requestTime bounds every request: a server that hangs fails the attack.
const requestTime = 150 * time.Second

// request sends body as user: JSON, or as it is when it is a []byte.
func (b *bed) request(user, method, path string, body any) (answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), requestTime)
	defer cancel()
	kind, raw := "application/json", []byte(nil)
	switch v := body.(type) {
	case nil:
	case []byte:
		kind, raw = "application/octet-stream", v
	default:
		var err error
		if raw, err = json.Marshal(v); err != nil {
			return answer{}, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, b.url+path, bytes.NewReader(raw))
	if err != nil {
		return answer{}, err
	}
	if body != nil {
		req.Header.Set("Content-Type", kind)
	}
	return b.send(user, req)
}

func (b *bed) send(user string, req *http.Request) (answer, error) {
	if b.key != "" {
		req.Header.Set("Authorization", "Bearer "+b.key)
	}
	if user != "" {
		req.Header.Set("On-Behalf-Of", user)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	return answer{res.StatusCode, res.Header, raw}, err
}

// do is request that must be answered.
func (b *bed) do(t *testing.T, user, method, path string, body any) answer {
	t.Helper()
	a, err := b.request(user, method, path, body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return a
}

// result is an exec as the API shows it.
type result struct {
	ExecID     string `json:"exec_id"`
	Status     string
	ExitCode   *int `json:"exit_code"`
	Stdout     string
	Stderr     string
	StdoutPath string `json:"stdout_path"`
	Truncated  bool
	Files      []struct{ Path, SHA256, Change string }
}

// run runs a command or code in a thread.
func (b *bed) run(t *testing.T, user, thread, route string, body map[string]any) result {
	t.Helper()
	a := b.do(t, user, "POST", "/api/threads/"+thread+"/"+route, body)
	var r result
	if err := json.Unmarshal(a.body, &r); err != nil || a.status != http.StatusOK {
		t.Fatalf("%s %.200v: %d %.500s", route, body, a.status, a.body)
	}
	return r
}

// ok runs a shell command that must exit with 0, and returns its stdout.
func (b *bed) ok(t *testing.T, user, thread, command string) string {
	t.Helper()
	r := b.run(t, user, thread, "exec", map[string]any{"command": command, "timeout_s": 120})
	if r.ExitCode == nil || *r.ExitCode != 0 {
		t.Fatalf("%.300s: %s %v, stderr %s", command, r.Status, r.ExitCode, r.Stderr)
	}
	return r.Stdout
}

// background starts a shell command and returns what ends it.
func (b *bed) background(t *testing.T, user, thread, command string) (id string, stop func()) {
	t.Helper()
	r := b.run(t, user, thread, "exec", map[string]any{"command": command, "background": true, "timeout_s": 300})
	return r.ExecID, sync.OnceFunc(func() {
		if a := b.do(t, user, "DELETE", "/api/threads/"+thread+"/execs/"+r.ExecID, nil); a.status >= 300 && a.status != http.StatusConflict {
			t.Errorf("kill of an exec: %d %s", a.status, a.body)
		}
	})
}

// host is the folder on the host that a thread has at /mnt/user-data.
func (b *bed) host(t *testing.T, user, thread string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(b.data, "tenants/*/users", user, "threads", thread))
	if err != nil || len(found) != 1 {
		t.Fatalf("folder of %s/%s: %v %v", user, thread, found, err)
	}
	return found[0]
}

// eventually waits for a condition with a deadline.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
