package runtimeprobe

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// engine starts no sandboxes: it does what the guest does, and then says how one after the other ended.
type engine struct {
	t    *testing.T
	ends []sandbox.Instance
	made int
}

func (e *engine) Create(_ context.Context, spec sandbox.Spec) (sandbox.Instance, error) {
	e.made++
	dir := spec.Mounts[0].Source
	listener, err := net.Listen("unix", filepath.Join(dir, guestSocket))
	if err != nil {
		return sandbox.Instance{}, err
	}
	e.t.Cleanup(func() { _ = listener.Close() })
	go func() {
		if conn, err := listener.Accept(); err == nil {
			_ = answer(conn)
		}
	}()
	if err := greet(filepath.Join(dir, hostSocket)); err != nil {
		return sandbox.Instance{}, err
	}
	return sandbox.Instance{ID: spec.ID}, os.WriteFile(filepath.Join(dir, reportFile), []byte(`{"no_new_privs": 1, "seccomp": 2}`), 0o600)
}

func (e *engine) Inspect(context.Context, sandbox.ID) (sandbox.Instance, error) {
	return e.ends[e.made-1], nil
}

func (e *engine) Remove(context.Context, sandbox.ID) error { return nil }

// TestLostWord: an engine that lost the word of one kill for memory is asked again, with another sandbox. One that never has it
// has no memory limit that a server could tell of.
func TestLostWord(t *testing.T) {
	t.Parallel()
	told := sandbox.Instance{State: sandbox.Lost, ExitCode: 137, OOMKilled: true}
	killed := sandbox.Instance{State: sandbox.Lost, ExitCode: 137}
	ended := sandbox.Instance{State: sandbox.Lost, ExitCode: 2}
	for name, c := range map[string]struct {
		ends    []sandbox.Instance
		made    int
		problem string
	}{
		"told":           {[]sandbox.Instance{told}, 1, ""},
		"lost once":      {[]sandbox.Instance{killed, told}, 2, ""},
		"lost each time": {[]sandbox.Instance{killed, killed, killed}, 3, notByItsLimit},
		"no kill":        {[]sandbox.Instance{ended}, 1, notByItsLimit},
	} {
		e := &engine{t: t, ends: c.ends}
		dir, err := os.MkdirTemp("", "probe") // short: a socket's path has 108 bytes
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		problem, _, err := Check(t.Context(), e, Config{Runtime: "runc", Dir: dir})
		if !strings.HasPrefix(problem, c.problem) || (problem == "") != (c.problem == "") || err != nil || e.made != c.made {
			t.Errorf("%s: %q, %v with %d sandboxes, want %q with %d", name, problem, err, e.made, c.problem, c.made)
		}
	}
}
