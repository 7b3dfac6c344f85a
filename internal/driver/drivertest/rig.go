package drivertest

import (
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

	"github.com/skerry-sandbox/skerry/internal/driver/drivertest/probewire"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

const (
	// answerTimeout bounds one request to the program in the sandbox.
	answerTimeout = 30 * time.Second
	// answerEvery is how often its answer is looked for.
	answerEvery = 2 * time.Millisecond
)

type id sandbox.ID

// newID makes an id that was never used.
func newID() id {
	random := make([]byte, 8)
	_, _ = rand.Read(random) // never fails
	return id("skerry-" + hex.EncodeToString(random))
}

func (i id) hex() string { return strings.TrimPrefix(string(i), "skerry-") }

// nextUID gives each sandbox a uid of its own, as the server does.
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

// ask sends a request into the sandbox and fails the test when no answer comes.
func (r *rig) ask(t testing.TB, req probewire.Request) probewire.Response {
	t.Helper()
	resp, ok := r.tryAsk(t, req, answerTimeout)
	if !ok {
		t.Fatalf("no answer to %+v; the sandbox is %+v", req, r.inspect(t))
	}
	return resp
}

// tryAsk gives up after a time, or when the sandbox has ended.
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

	answer := filepath.Join(workspace, probewire.ResultPrefix+name)
	for looks, end := 0, time.Now().Add(timeout); time.Now().Before(end); looks++ {
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
		if looks%100 == 99 && r.inspect(t).State == sandbox.Lost {
			return probewire.Response{}, false
		}
		time.Sleep(answerEvery)
	}
	return probewire.Response{}, false
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
