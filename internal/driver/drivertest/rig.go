package drivertest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/driver/drivertest/probewire"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

const (
	// answerTimeout bounds one request to the program in the sandbox.
	answerTimeout = 30 * time.Second
	// answerEvery is how often its answer is looked for.
	answerEvery = 2 * time.Millisecond
	// remoteEvery is the same where each look is a copy.
	remoteEvery = 20 * time.Millisecond
)

type id sandbox.ID

// newID makes an id that was never used.
func newID() id {
	random := make([]byte, 8)
	_, _ = rand.Read(random) // never fails
	return id("skerry-" + hex.EncodeToString(random))
}

func (i id) hex() string { return strings.TrimPrefix(string(i), "skerry-") }

// nextUID returns a new uid for each sandbox, as the server does.
var nextUID atomic.Int64

// rig is a sandbox to be, with its folders on the host.
type rig struct {
	s    *suite
	spec sandbox.Spec
	// Folders on the host: thread is mounted at sandbox.UserDataDir, run (read-only) at
	// sandbox.RunDir, skills (read-only) at sandbox.SkillsDir.
	thread, run, skills string
	requests            atomic.Int64
}

// modestLimits are those of a sandbox that is not about limits.
func modestLimits() sandbox.Limits {
	return sandbox.Limits{
		MemoryBytes: 256 << 20, CPUMillis: 2000, PIDs: 64, OpenFiles: 256,
		FileBytes: 64 << 20, TmpBytes: 16 << 20, DiskBytes: 1 << 30,
	}
}

// rig prepares a sandbox and sees to its removal.
func (s *suite) rig(t testing.TB, change ...func(*sandbox.Spec)) *rig {
	t.Helper()
	base, err := os.MkdirTemp("", "rig") // short: a socket's path has 108 bytes
	if err != nil {
		t.Fatal(err)
	}
	uid := 1_000_000 + int(nextUID.Add(1))
	r := &rig{s: s, thread: base + "/thread", run: base + "/run", skills: base + "/skills"}
	for _, dir := range []string{r.thread, r.run, r.skills, r.skills + "/public", base + "/public"} {
		must(t, os.Mkdir(dir, 0o755))
	}
	for _, dir := range []string{"workspace", "uploads", "outputs"} {
		must(t, os.Mkdir(filepath.Join(r.thread, dir), 0o700))
		must(t, os.Chown(filepath.Join(r.thread, dir), uid, uid))
	}
	must(t, os.WriteFile(r.skills+"/SKILL.md", []byte("a skill\n"), 0o644))
	must(t, os.WriteFile(base+"/public/NESTED.md", []byte("nested\n"), 0o644))
	must(t, os.Chmod(base, 0o755))
	r.spec = sandbox.Spec{
		ID:       sandbox.ID(newID()),
		Image:    s.h.Image,
		Runtime:  s.h.Runtime,
		UID:      uid,
		Daemon:   s.program,
		Args:     []string{"serve"},
		Hostname: "drivertest",
		Mounts: []sandbox.Mount{
			{Source: r.thread, Target: sandbox.UserDataDir},
			{Source: r.run, Target: sandbox.RunDir, ReadOnly: true},
			{Source: r.skills, Target: sandbox.SkillsDir, ReadOnly: true},
			{Source: base + "/public", Target: sandbox.SkillsDir + "/public", ReadOnly: true},
		},
		Limits: modestLimits(),
		Labels: map[string]string{runLabel: s.run, "thread": "t", "odd value": "ä = b,c"},
	}
	if r.remote() != nil { // a copy has no mounts in it
		r.spec.Mounts = r.spec.Mounts[:len(r.spec.Mounts)-1]
		must(t, os.Rename(base+"/public/NESTED.md", r.skills+"/public/NESTED.md"))
	}
	for _, c := range change {
		c(&r.spec)
	}
	control := r.listenControl(t)
	t.Cleanup(func() {
		if err := s.d.Remove(callCtx(t), r.spec.ID); err != nil {
			t.Errorf("Remove in clean-up: %v", err)
		}
		_ = control.Close()
		must(t, os.RemoveAll(base))
	})
	return r
}

// listenControl answers on the socket of the server: what arrives, comes back, line by line. The
// memory driver's daemons dial it too, and get nothing that they understand.
func (r *rig) listenControl(t testing.TB) net.Listener {
	path := r.run + "/control.sock"
	listener, err := net.Listen("unix", path)
	must(t, err)
	must(t, os.Chown(path, r.spec.UID, r.spec.UID))
	must(t, os.Chmod(path, 0o600))
	echo(listener)
	return listener
}

// echo answers each connection with what it sent first, until the listener is closed.
func echo(listener net.Listener) {
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_ = conn.SetDeadline(time.Now().Add(time.Second))
			buf := make([]byte, 1<<10)
			if n, err := conn.Read(buf); err == nil {
				_, _ = conn.Write(buf[:n])
			}
			_ = conn.Close()
		}
	}()
}

// start creates the sandbox.
func (s *suite) start(t testing.TB, change ...func(*sandbox.Spec)) *rig {
	t.Helper()
	r := s.rig(t, change...)
	r.create(t)
	return r
}

func (r *rig) create(t testing.TB) sandbox.Instance {
	t.Helper()
	out, err := r.s.d.Create(callCtx(t), r.spec)
	if err != nil {
		t.Fatalf("Create: %v", err)
	}
	return out
}

// remote returns the driver as one whose sandboxes do not see this disk; nil: they do.
func (r *rig) remote() driver.Remote {
	remote, _ := r.s.d.(driver.Remote)
	return remote
}

// push makes the sandbox have what this host has at these paths, and pull the other way round. Where the sandbox sees
// this disk there is nothing to do.
func (r *rig) push(t testing.TB, paths ...string) {
	t.Helper()
	if remote := r.remote(); remote != nil {
		must(t, r.attach(t))
		must(t, remote.Push(callCtx(t), r.spec.ID, paths...))
	}
}

func (r *rig) pull(t testing.TB) {
	t.Helper()
	if remote := r.remote(); remote != nil {
		must(t, r.attach(t))
		_, err := remote.Pull(callCtx(t), r.spec.ID)
		must(t, err)
	}
}

// attach: another server may have been attached since.
func (r *rig) attach(t testing.TB) error {
	return r.remote().Attach(callCtx(t), driver.Attachment{ID: r.spec.ID, Token: r.spec.Token, Mounts: r.spec.Mounts})
}

// ask sends a request into the sandbox and fails the test when no answer comes.
func (r *rig) ask(t testing.TB, req probewire.Request) probewire.Response {
	t.Helper()
	resp, ok := r.tryAsk(t, req, answerTimeout)
	if !ok {
		t.Fatalf("no answer to %+v; the sandbox is %+v", req, r.inspect(t))
	}
	return resp
}

// tryAsk stops waiting after a time, or when the sandbox has ended.
func (r *rig) tryAsk(t testing.TB, req probewire.Request, timeout time.Duration) (probewire.Response, bool) {
	t.Helper()
	name := strconv.FormatInt(r.requests.Add(1), 10) + probewire.Suffix
	workspace := filepath.Join(r.thread, "workspace")
	data, err := json.Marshal(req)
	must(t, err)
	tmp := filepath.Join(workspace, "ask-"+name)
	must(t, os.WriteFile(tmp, data, 0o600))
	must(t, os.Chown(tmp, r.spec.UID, r.spec.UID))
	must(t, os.Rename(tmp, filepath.Join(workspace, probewire.CommandPrefix+name)))
	every := answerEvery
	if remote := r.remote(); remote != nil {
		every = remoteEvery
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		if r.attach(t) != nil || remote.Push(ctx, r.spec.ID, probewire.Dir+"/"+probewire.CommandPrefix+name) != nil {
			return probewire.Response{}, false // the caller says what it is now
		}
	}
	answer := filepath.Join(workspace, probewire.ResultPrefix+name)
	for looks, end := 0, time.Now().Add(timeout); time.Now().Before(end); looks++ {
		if remote := r.remote(); remote != nil {
			r.tryPull(remote, timeout)
		}
		data, err := os.ReadFile(answer)
		if err == nil {
			var resp probewire.Response
			must(t, json.Unmarshal(data, &resp))
			return resp, true
		}
		if !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("read the answer: %v", err)
		}
		// Not at every look: it asks the engine.
		if looks%r.inspectEvery() == r.inspectEvery()-1 && r.inspect(t).State == sandbox.Lost {
			return probewire.Response{}, false
		}
		time.Sleep(every)
	}
	return probewire.Response{}, false
}

// tryPull tries a failed pull again, until the sandbox has ended or the caller stops waiting.
func (r *rig) tryPull(remote driver.Remote, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	_, _ = remote.Pull(ctx, r.spec.ID)
}

func (r *rig) inspectEvery() int {
	if r.remote() != nil {
		return 10
	}
	return 100
}

func (r *rig) inspect(t testing.TB) sandbox.Instance {
	t.Helper()
	out, err := r.s.d.Inspect(callCtx(t), r.spec.ID)
	if err != nil {
		t.Fatalf("Inspect: %v", err)
	}
	return out
}

// awaitState waits until the sandbox is in a state.
func (r *rig) awaitState(t testing.TB, want sandbox.State, within time.Duration) sandbox.Instance {
	t.Helper()
	for end := time.Now().Add(within); ; time.Sleep(5 * time.Millisecond) {
		got := r.inspect(t)
		if got.State == want {
			return got
		}
		if time.Now().After(end) {
			t.Fatalf("after %v the sandbox is %q, want %q", within, got.State, want)
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
