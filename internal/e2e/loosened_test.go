package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// tracer starts a program and traces it, as a debugger does.
const tracer = `
import ctypes, os, signal, subprocess
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long] * 4
def seize(pid):
    ctypes.set_errno(0)
    libc.ptrace(0x4206, pid, 0, 0)
    return os.strerror(ctypes.get_errno())
child = subprocess.Popen(['sleep', '30'])
print('child:', seize(child.pid), '/ PID 1:', seize(1), '/ supervisor:', seize(os.getppid()))
child.send_signal(signal.SIGKILL)
`

// TestLoosened: the protections that a template loosens are off, and the API and the audit log say so, also
// after the server was killed. Another template's sandbox has all protections.
func TestLoosened(t *testing.T) {
	t.Parallel()
	on(t, []string{"oci/runc", "oci/runsc"}, func(t *testing.T, o options) {
		templates := t.TempDir()
		kind := func(name string) string {
			return strings.Replace(fmt.Sprintf(template, "base", o.runtime), "name: base", "name: "+name, 1)
		}
		for name, more := range map[string]string{"base": "", "debug": "loosen: [seccomp.ptrace, large_shm]\n"} {
			must(t, os.WriteFile(filepath.Join(templates, name+".yaml"), []byte(kind(name)+more), 0o600))
		}
		o.env = []string{"SKERRY_TEMPLATES=" + templates}
		s := start(t, o)
		var list struct {
			Items []struct {
				Name     string
				Loosened []string
			}
		}
		s.do("GET", "/api/templates", nil).into(t, &list)
		points := []string{"seccomp.ptrace", "large_shm"}
		for _, item := range list.Items {
			if loosened := item.Name == "debug"; slices.Equal(item.Loosened, points) != loosened {
				t.Errorf("template %s: %v", item.Name, item.Loosened)
			}
		}
		s.do("PUT", "/api/threads/debug/sandbox", map[string]any{"template": "debug"})
		s.do("PUT", "/api/threads/plain/sandbox", map[string]any{})
		look := func() {
			t.Helper()
			for thread, want := range map[string]string{
				"debug": "child: Success / PID 1: Operation not permitted / supervisor: Operation not permitted\n",
				"plain": "child: Operation not permitted / PID 1: Operation not permitted / supervisor: Operation not permitted\n",
			} {
				if r := s.run(thread, "execute_code", map[string]any{"language": "python", "code": tracer}); r.Stdout != want {
					t.Errorf("%s: %+v, want %q", thread, r, want)
				}
				var info struct{ Sandbox struct{ Loosened []string } }
				s.do("GET", "/api/threads/"+thread, nil).into(t, &info)
				if loosened := thread == "debug"; slices.Equal(info.Sandbox.Loosened, points) != loosened || !loosened && info.Sandbox.Loosened != nil {
					t.Errorf("%s: %+v", thread, info)
				}
			}
		}
		look()
		for thread, want := range map[string]string{"debug": `{"loosened":["seccomp.ptrace","large_shm"]}`, "plain": "null"} {
			started := s.records("action=sandbox_create&thread="+thread, "attempt")
			if len(started) != 1 {
				t.Fatalf("%s: records %v", thread, started)
			}
			if args, err := json.Marshal(started[0]["args"]); err != nil || string(args) != want {
				t.Errorf("%s: the audit says %s, %v, want %s", thread, args, err, want)
			}
		}
		must(t, os.WriteFile(filepath.Join(templates, "debug.yaml"), []byte(kind("debug")), 0o600))
		s.kill()
		s.boot()
		look() // the sandbox is what it was made as
	})
}
