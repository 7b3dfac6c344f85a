package e2e

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
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

	"github.com/skerry-sandbox/skerry/internal/ownership/replica"
	"github.com/skerry-sandbox/skerry/internal/sidecar/pki"
	"github.com/skerry-sandbox/skerry/internal/store/redistest"
)

// twin starts another server on the same data folder, and ends it before the first one.
func (s *server) twin() *server {
	s.t.Helper()
	w := &server{t: s.t, data: s.data, env: s.env, args: s.args}
	w.boot()
	s.t.Cleanup(func() {
		select {
		case <-w.done:
		default:
			w.stop()
		}
		if s.t.Failed() {
			s.t.Logf("log of the other server:\n%s", w.log)
		}
	})
	return w
}

// startTwo starts two servers on one data folder and one Redis, which loses everything when it is wiped.
func startTwo(t *testing.T, driver string, args ...string) (a, b *server, redis *redistest.Server) {
	t.Helper()
	redis = redistest.Start(t)
	a = start(t, options{driver: driver, args: append([]string{"--redis", redis.URL()}, args...)})
	return a, a.twin(), redis
}

// sandboxOf returns the id of a thread's sandbox.
func (s *server) sandboxOf(thread string) string {
	s.t.Helper()
	var view struct{ Sandbox *struct{ ID string } }
	if a := s.do("GET", "/api/threads/"+thread, nil); a.status == 200 {
		a.into(s.t, &view)
	}
	if view.Sandbox == nil {
		return ""
	}
	return view.Sandbox.ID
}

// sandboxFor acquires the thread's sandbox and returns its id. It may be called from any goroutine.
func (s *server) sandboxFor(thread string) (string, error) {
	a, err := s.request("PUT", "/api/threads/"+thread+"/sandbox", map[string]any{})
	if err != nil {
		return "", err
	}
	var got struct{ Sandbox struct{ ID string } }
	if err := json.Unmarshal(a.body, &got); err != nil || a.status != 200 {
		return "", fmt.Errorf("%d %s", a.status, a.body)
	}
	return got.Sandbox.ID, nil
}

// containers counts the containers of a thread.
func containers(t *testing.T, thread string) int {
	t.Helper()
	out, err := exec.Command("docker", "ps", "-aq", "--filter", "label=io.skerry.thread="+thread).Output()
	must(t, err)
	return len(strings.Fields(string(out)))
}

// background starts an exec that goes on for a while.
func (s *server) background(thread, command string) string {
	s.t.Helper()
	return s.run(thread, "exec", map[string]any{"command": command, "background": true, "timeout_s": 300}).ExecID
}

// status is that of an exec, or the code of the problem.
func (s *server) status(thread, id string) string {
	s.t.Helper()
	a, err := s.request("GET", "/api/threads/"+thread+"/execs/"+id, nil)
	if err != nil {
		return err.Error()
	}
	var r result
	if json.Unmarshal(a.body, &r) != nil || a.status != 200 {
		return a.code()
	}
	return r.Status
}

// TestTwoServers: two processes on one data folder are one service: each thread has one sandbox, whichever of them is
// asked, and everything works through the server that does not run it.
func TestTwoServers(t *testing.T) {
	t.Parallel()
	a, b, _ := startTwo(t, "docker")
	thread := fmt.Sprintf("two-%d", time.Now().UnixNano())
	var mu sync.Mutex
	ids := map[string]int{}
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			id, err := []*server{a, b}[i%2].sandboxFor(thread)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			ids[id]++
		})
	}
	wg.Wait()
	if n := containers(t, thread); len(ids) != 1 || n != 1 {
		t.Fatalf("sandboxes %v, %d containers", ids, n)
	}
	for i, s := range []*server{a, b} {
		other := []*server{b, a}[i]
		if got := s.ok(thread, "echo $SKERRY_THREAD_ID"); got != thread+"\n" {
			t.Errorf("exec: %q", got)
		}
		events := stream(t, s, thread, "for i in 1 2 3; do echo $i; done")
		if !strings.Contains(events, "event: exit") {
			t.Errorf("stream: %s", events)
		}
		path := fmt.Sprintf("/api/threads/%s/files/content?path=/mnt/user-data/workspace/f%d", thread, i)
		large := bytes.Repeat([]byte("skerry "), 1<<20)
		if code := s.putBytes(path, large); code != 201 {
			t.Errorf("write: %d", code)
		}
		if got := other.do("GET", path, nil); !bytes.Equal(got.body, large) {
			t.Errorf("read: %d, %d bytes", got.status, len(got.body))
		}
		id := s.terminalExec(thread, "cat")
		c := other.join(thread, id, 0)
		c.say("typed\n")
		for !strings.Contains(c.shown, "typed") {
			c.next()
		}
		if res := other.do("DELETE", "/api/threads/"+thread+"/execs/"+id, nil); res.status != 204 {
			t.Errorf("kill: %d %s", res.status, res.body)
		}
		if got := s.status(thread, id); got != "killed" {
			t.Errorf("the killed exec is %q", got)
		}
		if list := s.threads(); len(list) != 1 || s.sandboxOf(thread) == "" {
			t.Errorf("threads %v", list)
		}
	}
	both := a.fleet("")
	if len(both) != 2 || both[0].State != "serving" || both[1].State != "serving" || both[0].This == both[1].This || both[0].Report.Threads+both[1].Report.Threads < 1 || both[0].Report.Version == "" {
		t.Errorf("servers: %+v", both)
	}
	if had, other := a.fleet("?thread="+thread), b.fleet("?thread="+thread); len(had) != 1 || len(other) != 1 || had[0].ID != other[0].ID || had[0].Report.Sandboxes["running"] < 1 {
		t.Errorf("who has the thread: %+v, and asked elsewhere %+v", had, other)
	}
	if none := a.fleet("?thread=no-such-thread"); len(none) != 0 {
		t.Errorf("who has no thread: %+v", none)
	}
	first := a.withKey(thread, "only-once")
	second := b.withKey(thread, "only-once")
	if first.status != 200 || second.status != 200 || second.header.Get("Idempotent-Replayed") != "true" || !bytes.Equal(first.body, second.body) {
		t.Errorf("Idempotency-Key: %s, then %s", first.body, second.body)
	}
}

// fleetServer is a server as another one sees it.
type fleetServer struct {
	ID     string
	This   bool
	State  string
	Report *struct {
		Version   string
		Threads   int
		Sandboxes map[string]int
	}
}

// fleet lists the servers of the installation, or with a query the one that has a thread.
func (s *server) fleet(query string) []fleetServer {
	s.t.Helper()
	var list struct{ Items []fleetServer }
	s.do("GET", "/api/servers"+query, nil).into(s.t, &list)
	return list.Items
}

// stream runs a command and returns its events as they came.
func stream(t *testing.T, s *server, thread, command string) string {
	t.Helper()
	a := s.sendWith("POST", "/api/threads/"+thread+"/exec", map[string]string{"Accept": "text/event-stream"}, map[string]any{"command": command})
	return string(a.body)
}

func (s *server) withKey(thread, key string) answer {
	s.t.Helper()
	return s.sendWith("POST", "/api/threads/"+thread+"/exec", map[string]string{"Idempotency-Key": key}, map[string]any{"command": "date +%N"})
}

// sendWith is do with headers.
func (s *server) sendWith(method, path string, headers map[string]string, body any) answer {
	s.t.Helper()
	raw, err := json.Marshal(body)
	must(s.t, err)
	req, err := http.NewRequest(method, s.url+path, bytes.NewReader(raw))
	must(s.t, err)
	req.Header.Set("Content-Type", "application/json")
	for k, v := range headers {
		req.Header.Set(k, v)
	}
	return s.send(req)
}

// putBytes writes a file, and returns the status.
func (s *server) putBytes(path string, content []byte) int {
	s.t.Helper()
	req, err := http.NewRequest("PUT", s.url+path, bytes.NewReader(content))
	must(s.t, err)
	return s.send(req).status
}

// results counts the terminal records of an exec.
func (s *server) results(id string) int {
	s.t.Helper()
	n := 0
	for _, r := range s.records("exec="+id, "result") {
		if r["action"] == "exec" {
			n++
		}
	}
	return n
}

// TestOwnerKilled: the other server takes over what a killed server ran within seconds. Each exec has one
// end, and a new server does not touch it.
func TestOwnerKilled(t *testing.T) {
	t.Parallel()
	a, b, _ := startTwo(t, "docker")
	sandboxes, execs := map[string]string{}, map[string]string{}
	for i := range 4 {
		thread := fmt.Sprintf("t%d", i)
		a.ok(thread, "echo kept > /mnt/user-data/workspace/f")
		sandboxes[thread] = a.sandboxOf(thread)
		execs[thread] = b.background(thread, "sleep 250") // through the server that stays
	}
	a.kill()
	began := time.Now()
	for thread, id := range execs {
		eventually(t, "the exec of the killed server is lost", func() bool { return b.status(thread, id) == "lost" })
		if got := b.ok(thread, "cat /mnt/user-data/workspace/f; pgrep -f '^sleep 250' || true"); got != "kept\n" {
			t.Errorf("%s: %q", thread, got)
		}
	}
	t.Logf("all taken over after %s", time.Since(began).Round(time.Millisecond))
	a.boot()
	for thread, id := range execs {
		for _, s := range []*server{a, b} {
			if got := s.sandboxOf(thread); got != sandboxes[thread] {
				t.Errorf("%s has the sandbox %q, had %q", thread, got, sandboxes[thread])
			}
			if got := s.status(thread, id); got != "lost" {
				t.Errorf("the exec is %q", got)
			}
		}
		if n := b.results(id); n != 1 {
			t.Errorf("%d terminal records of %s", n, id)
		}
	}
}

// TestRedisStartsEmpty: a Redis that comes back without its data ends no exec and starts no second sandbox.
func TestRedisStartsEmpty(t *testing.T) {
	whole(t, TestOwnerKilled)
	t.Parallel()
	a, b, redis := startTwo(t, "docker")
	a.ok("x", "true")
	b.ok("y", "true")
	sx, sy := a.sandboxOf("x"), a.sandboxOf("y")
	x, y := a.background("x", "sleep 8; echo x"), a.background("y", "sleep 8; echo y")
	redis.Kill()
	redis.Wipe()
	if got := a.ok("x", "echo without"); got != "without\n" {
		t.Errorf("exec without Redis: %q", got)
	}
	redis.Restart()
	for _, s := range []*server{a, b} {
		for thread, want := range map[string]string{"x": sx, "y": sy} {
			if id, err := s.sandboxFor(thread); err != nil || id != want {
				t.Errorf("%s has the sandbox %q, %v; had %q", thread, id, err, want)
			}
		}
	}
	for thread, id := range map[string]string{"x": x, "y": y} {
		eventually(t, "the exec ends", func() bool { return b.status(thread, id) != "running" })
		if got := b.status(thread, id); got != "exited" {
			t.Errorf("the exec of %s is %q", thread, got)
		}
		eventually(t, "its record is in Redis again", func() bool { return b.results(id) == 1 })
	}
	a.ok("z", "true") // no other thread has its uid
	uids := map[string]bool{}
	for _, thread := range []string{"x", "y", "z"} {
		uids[b.workspaceUID(thread)] = true
	}
	if len(uids) != 3 {
		t.Errorf("three threads have the uids %v", uids)
	}
}

// workspaceUID is the host uid of a thread's workspace.
func (s *server) workspaceUID(thread string) string {
	s.t.Helper()
	out, err := exec.Command("stat", "-c", "%u", s.data+"/tenants/default/users/local/threads/"+thread+"/workspace").Output()
	must(s.t, err)
	return string(out)
}

// TestOwnerStopped: a server that is stopped for a while loses its sandbox to the other one. When it goes on it lets go
// of the sandbox, and ends its own exec. For the other one it is as one on a machine that lost its power, whose
// lock on a shared volume stays for a while: it is there, and does not answer.
//
// Both are tests of their own, not parts of one: a part starts after all other tests, and the rest would wait for it.
func TestOwnerStopped(t *testing.T) {
	t.Parallel()
	ownerStopped(t)
}

// TestOwnerStoppedOverTLS: the same of two servers that reach each other over the network.
func TestOwnerStoppedOverTLS(t *testing.T) {
	t.Parallel()
	ownerStopped(t, "--peer-listen", "127.0.0.1:0")
}

// isStopped reports whether a signal has stopped a process: on a loaded machine it answers for a while after SIGSTOP.
func isStopped(t *testing.T, pid int) bool {
	t.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	must(t, err)
	return len(tasks) > 0 && !slices.ContainsFunc(tasks, func(file string) bool {
		text, err := os.ReadFile(file)
		return err == nil && !bytes.Contains(text, []byte("\nState:\tT"))
	})
}

func ownerStopped(t *testing.T, args ...string) {
	a, b, _ := startTwo(t, "docker", args...)
	thread := fmt.Sprintf("stopped-%d", time.Now().UnixNano())
	a.ok(thread, "true")
	sandbox, id := a.sandboxOf(thread), a.background(thread, "sleep 280")
	must(t, a.cmd.Process.Signal(syscall.SIGSTOP))
	goOn := sync.OnceFunc(func() { _ = a.cmd.Process.Signal(syscall.SIGCONT) })
	t.Cleanup(goOn)
	eventually(t, "all threads of the server are stopped", func() bool { return isStopped(t, a.cmd.Process.Pid) })
	if all := b.fleet(""); len(all) != 2 || all[0].State != "silent" || all[0].Report != nil || all[1].State != "serving" {
		t.Errorf("servers: %+v", all)
	}
	began := time.Now()
	eventually(t, "the other server takes the thread", func() bool {
		res, err := b.request("POST", "/api/threads/"+thread+"/exec", map[string]any{"command": "true"})
		return err == nil && res.status == 200
	})
	t.Logf("taken after %s", time.Since(began).Round(100*time.Millisecond))
	if got := b.sandboxOf(thread); got != sandbox {
		t.Errorf("it has the sandbox %q, had %q", got, sandbox)
	}
	goOn()
	eventually(t, "the stopped server lets go", func() bool { return a.sandboxOf(thread) == sandbox && a.status(thread, id) == "lost" })
	eventually(t, "the exec has its record", func() bool { return b.results(id) == 1 })
	for _, s := range []*server{a, b} {
		if got := s.ok(thread, "echo on"); got != "on\n" {
			t.Errorf("exec: %q", got)
		}
	}
	if n := containers(t, thread); n != 1 {
		t.Errorf("%d containers", n)
	}
}

// TestOnlyServersAmongServers: at the address for the other servers answers this one to servers only: not to a
// sandbox's sidecar, whose certificate the same authority signed.
func TestOnlyServersAmongServers(t *testing.T) {
	whole(t, TestServerAdministration)
	t.Parallel()
	a, b, _ := startTwo(t, "docker", "--peer-listen", "127.0.0.1:0")
	a.ok("x", "true")
	if got := b.ok("x", "echo over the network"); got != "over the network\n" {
		t.Errorf("exec by the other server: %q", got)
	}
	replicas, err := replica.List(filepath.Join(a.data, "run/replicas"))
	must(t, err)
	if len(replicas) != 2 || replicas[0].Peer == "" || replicas[1].Peer == "" {
		t.Fatalf("replicas %+v", replicas)
	}
	authority, err := pki.Open(t.Context(), filepath.Join(a.data, "authority"))
	must(t, err)
	secret, err := authority.Sandbox("skerry-0123456789abcdef")
	must(t, err)
	pair, err := tls.X509KeyPair(secret.Cert, secret.Key)
	must(t, err)
	sidecar := authority.DialServer()
	sidecar.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	nobody := authority.DialServer()
	nobody.GetClientCertificate = nil
	for what, c := range map[string]struct {
		conf *tls.Config
		want bool
	}{"a server": {authority.DialServer(), true}, "a sidecar": {sidecar, false}, "nobody": {nobody, false}} {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: c.conf, DisableKeepAlives: true}, Timeout: 30 * time.Second}
		req, err := http.NewRequestWithContext(t.Context(), "GET", "https://"+replicas[0].Peer+"/peer/alive", nil)
		must(t, err)
		req.Header.Set("Skerry-Replica", replicas[0].ID)
		res, err := client.Do(req)
		if err == nil {
			_ = res.Body.Close()
		}
		if got := err == nil && res.StatusCode == 204; got != c.want {
			t.Errorf("%s is answered: %t, %v", what, got, err)
		}
	}
}

// TestSecondServerIsRefused: with its state in the data folder a server is alone, and the second one says who has it.
func TestSecondServerIsRefused(t *testing.T) {
	t.Parallel()
	s := start(t, options{image: "host"})
	out, err := exec.Command(s.cmd.Path, s.args...).CombinedOutput()
	want := fmt.Sprintf("another skerry server uses this data folder: process %d, since ", s.cmd.Process.Pid)
	if err == nil || !strings.Contains(string(out), want) || !strings.Contains(string(out), strings.TrimPrefix(s.url, "http://")) {
		t.Errorf("%v: %s", err, out)
	}
}
