package e2e

import (
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// onAll runs a test with every pair of driver and runtime; with -short with two, which have each runtime once. What
// differs between drivers and runtimes is their own suite's to find, and the attacks'.
func onAll(t *testing.T, test func(t *testing.T, o options)) {
	pairs := []string{"docker/runc", "oci/runsc", "docker/runsc", "oci/runc", "containerd/runc"}
	if testing.Short() {
		pairs = pairs[:2]
	}
	on(t, pairs, test)
}

// on runs a test with pairs of driver and runtime.
func on(t *testing.T, pairs []string, test func(t *testing.T, o options)) {
	for _, pair := range pairs {
		t.Run(pair, func(t *testing.T) {
			t.Parallel()
			driver, runtime, _ := strings.Cut(pair, "/")
			test(t, options{driver: driver, runtime: runtime})
		})
	}
}

// first returns one of the cases with -short, and all of them without.
func first[T any](cases ...T) []T {
	if testing.Short() {
		return cases[:1]
	}
	return cases
}

// whole leaves a test to `make test-all` and to CI: it takes more than ten seconds, and with -short another test shows
// the core of what it promises.
func whole(t *testing.T, core func(*testing.T)) {
	t.Helper()
	if testing.Short() {
		name := runtime.FuncForPC(reflect.ValueOf(core).Pointer()).Name()
		t.Skipf("only without -short; %s runs with it, and shows the core of this", name[strings.LastIndexByte(name, '.')+1:])
	}
}

// TestWalls asserts from inside a sandbox what code must not reach.
func TestWalls(t *testing.T) {
	t.Parallel()
	onAll(t, func(t *testing.T, o options) {
		s := start(t, o)
		s.ok("neighbour", "echo the-words-of-a-neighbour > /mnt/user-data/workspace/secret")
		for name, c := range map[string]struct{ command, want string }{
			"uid":              {"id -u", ""},
			"no capability":    {"grep -h CapEff /proc/self/status | grep -c 0000000000000000", "1"},
			"interfaces":       {"ls /sys/class/net 2>/dev/null || awk -F: 'NR>2{gsub(/ /,\"\",$1);print $1}' /proc/net/dev", "lo"},
			"no route":         {"tail -n +2 /proc/net/route | grep -v '^lo' | wc -l", "0"},
			"no way out":       {"timeout 3 bash -c 'exec 3<>/dev/tcp/192.0.2.1/80' 2>/dev/null && echo out || echo no", "no"},
			"no name":          {"timeout 3 getent hosts example.com >/dev/null && echo resolved || echo no", "no"},
			"links":            {"echo tmp >/var/tmp/a && cat /tmp/a && mkdir -p .memory && echo memory >/mnt/memory/a && cat .memory/a && rm -r .memory", "tmp\nmemory"},
			"root read-only":   {"touch /x /etc/x /usr/x 2>/dev/null && echo written || echo no", "no"},
			"skills read-only": {"touch /mnt/skills/x /mnt/skills/public/x /mnt/code-api/x 2>/dev/null && echo written || echo no", "no"},
			"sockets":          {"find / -path /proc -prune -o -type s -print 2>/dev/null | sort -u | tr '\\n' ' '", "/run/skerry/bridge.sock /run/skerry/control.sock"},
			"our sockets":      {"rm -f /run/skerry/bridge.sock 2>/dev/null; touch /run/skerry/x 2>/dev/null; ls /run/skerry | wc -l", "2"},
			"no docker":        {"ls /var/run/docker.sock /run/docker.sock 2>/dev/null | wc -l", "0"},
			"no other thread":  {"grep -rs the-words-of-a-neighbour /mnt /home /tmp | wc -l", "0"},
			"no server env":    {"cat /proc/*/environ 2>/dev/null | grep -c hunter2", "0"},
			"no mount":         {"mount -t tmpfs x /tmp 2>/dev/null && echo mounted || echo no", "no"},
			"no userns":        {"unshare -U true 2>/dev/null && echo made || echo no", "no"},
			"pid 1 lives":      {"kill -9 1 2>/dev/null; kill -QUIT 1 2>/dev/null; sleep 0.2; echo alive", "alive"},
			"files top level":  {"touch /mnt/user-data/x 2>/dev/null; rm -rf /mnt/user-data/uploads 2>/dev/null; ls /mnt/user-data | tr '\\n' ' '", "outputs uploads workspace"},
		} {
			t.Run(name, func(t *testing.T) {
				got := strings.TrimSpace(s.exec("inside", c.command).Stdout)
				if name == "uid" {
					if got == "0" || len(got) < 7 {
						t.Errorf("uid %s", got)
					}
					return
				}
				if got != c.want {
					t.Errorf("%s: got %q, want %q", c.command, got, c.want)
				}
			})
		}
		if a, b := s.ok("inside", "id -u"), s.ok("neighbour", "id -u"); a == b {
			t.Errorf("two workspaces have one uid %s", a)
		}
	})
}

// TestOneSandboxForManyCallers: acquire is idempotent.
func TestOneSandboxForManyCallers(t *testing.T) {
	t.Parallel()
	s := start(t, options{})
	ids := make([]string, 12)
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() {
			a, err := s.request("PUT", "/api/threads/many/sandbox", map[string]any{})
			var v struct{ Sandbox struct{ ID string } }
			if err != nil || a.status != 200 || json.Unmarshal(a.body, &v) != nil {
				t.Errorf("%v %d %s", err, a.status, a.body)
				return
			}
			ids[i] = v.Sandbox.ID
		})
	}
	wg.Wait()
	for _, id := range ids {
		if id == "" || id != ids[0] {
			t.Fatalf("several sandboxes: %q", ids)
		}
	}
}

// TestCrash: kill -9 of the server in the middle of an exec loses nothing and leaves nothing over.
func TestCrash(t *testing.T) {
	t.Parallel()
	onAll(t, func(t *testing.T, o options) {
		s := start(t, o)
		s.ok("crash", "echo precious > /mnt/user-data/workspace/file")
		begun := s.run("crash", "exec", map[string]any{"command": "echo begun; sleep 300", "background": true, "timeout_s": 600})
		if begun.Status != "running" {
			t.Fatalf("background exec: %+v", begun)
		}
		s.kill()
		s.boot()
		if got := s.ok("crash", "cat /mnt/user-data/workspace/file"); got != "precious\n" {
			t.Errorf("the file holds %q", got)
		}
		if got := s.ok("crash", "ps -e -o args 2>/dev/null | grep -c '[s]leep 300' || true"); strings.TrimSpace(got) != "0" {
			t.Errorf("%s processes of the interrupted exec still run", got)
		}
		var ended result
		s.do("GET", "/api/threads/crash/execs/"+begun.ExecID, nil).into(t, &ended)
		if ended.Status != "lost" {
			t.Errorf("the interrupted exec is %q", ended.Status)
		}
		if n := len(s.records("exec="+begun.ExecID, "result")); n != 1 {
			t.Errorf("%d terminal records of the interrupted exec", n)
		}
		folders, err := os.ReadDir(filepath.Join(s.data, "run"))
		if err != nil || len(only(folders, "skerry-")) != 1 {
			t.Errorf("run folders: %v, %v", folders, err)
		}
	})
}

func only(entries []os.DirEntry, prefix string) []string {
	var names []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) {
			names = append(names, e.Name())
		}
	}
	return names
}

// records lists audit records of a phase.
func (s *server) records(query, phase string) []map[string]any {
	s.t.Helper()
	var list struct{ Items []map[string]any }
	s.do("GET", "/api/audit?limit=1000&"+query, nil).into(s.t, &list)
	var of []map[string]any
	for _, r := range list.Items {
		if r["phase"] == phase {
			of = append(of, r)
		}
	}
	return of
}

// TestSandboxDies: an exec whose sandbox is killed ends as lost within seconds, and the next call works.
func TestSandboxDies(t *testing.T) {
	t.Parallel()
	s := start(t, options{})
	s.ok("dies", "true")
	begun := s.run("dies", "exec", map[string]any{"command": "sleep 300", "background": true, "timeout_s": 600})
	var view struct{ Sandbox struct{ ID string } }
	s.do("GET", "/api/threads/dies", nil).into(t, &view)
	killContainer(t, s, view.Sandbox.ID)
	began := time.Now()
	var ended result
	eventually(t, "the exec ends", func() bool {
		s.do("GET", "/api/threads/dies/execs/"+begun.ExecID, nil).into(t, &ended)
		return ended.Status != "running"
	})
	if ended.Status != "lost" {
		t.Errorf("status %q", ended.Status)
	}
	t.Logf("lost was told after %s", time.Since(began).Round(time.Millisecond))
	s.ok("dies", "true")
}

// TestBombs: each limit is hit with its own end, and the next call works.
func TestBombs(t *testing.T) {
	onAll(t, func(t *testing.T, o options) {
		s := start(t, o)
		s.ok("bomb", "true")
		next := func(t *testing.T) {
			t.Helper()
			began := time.Now()
			s.ok("bomb", "true")
			t.Logf("the next call took %s", time.Since(began).Round(time.Millisecond))
		}
		t.Run("output", func(t *testing.T) {
			r := s.exec("bomb", "head -c 100000000 /dev/zero | tr '\\0' x")
			if r.Status != "exited" || !r.Truncated || r.StdoutPath == nil || len(r.Stdout) > 2<<20 {
				t.Fatalf("%s truncated=%t path=%v %d bytes", r.Status, r.Truncated, r.StdoutPath, len(r.Stdout))
			}
			var st struct{ Bytes int64 }
			s.do("GET", "/api/threads/bomb/files/stat?path="+*r.StdoutPath, nil).into(t, &st)
			if st.Bytes != 100_000_000 {
				t.Errorf("the kept output has %d bytes", st.Bytes)
			}
			next(t)
		})
		t.Run("fork", func(t *testing.T) {
			r := s.run("bomb", "exec", map[string]any{"command": "f(){ f|f& }; f; sleep 60", "timeout_s": 3})
			// Under gVisor the limit can hit the runtime itself: then the sandbox ends with the bomb in it.
			if r.Status != "timeout" && r.Status != "exited" && r.Status != "killed" && (o.runtime == "runc" || r.Status != "lost") {
				t.Errorf("status %q", r.Status)
			}
			next(t)
		})
		t.Run("memory", func(t *testing.T) {
			r := s.run("bomb", "exec", map[string]any{"argv": []string{"python3", "-c", "b=[]\nwhile True: b.append(bytearray(10_000_000))"}, "timeout_s": 30})
			if r.Status != "oom" {
				t.Errorf("status %q, stderr %.200s", r.Status, r.Stderr)
			}
			next(t)
		})
		t.Run("time", func(t *testing.T) {
			began := time.Now()
			r := s.run("bomb", "exec", map[string]any{"command": "(setsid sh -c 'sleep 100' &) ; setsid sleep 100 & sleep 100", "timeout_s": 1})
			if r.Status != "timeout" || time.Since(began) > 30*time.Second {
				t.Errorf("status %q after %s", r.Status, time.Since(began))
			}
			if left := strings.TrimSpace(s.ok("bomb", "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -o '[s]leep 100' | wc -l")); left != "0" {
				t.Errorf("%s processes are left", left)
			}
		})
	})
}

// TestForkBomb: what goes on forking at the limit of processes is ended long before its deadline, and told why; a program
// that reaches the limit and makes do is not. Under gVisor the host counts no processes of the sandbox.
func TestForkBomb(t *testing.T) {
	for _, driver := range first("oci", "docker", "containerd") {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			s := start(t, options{driver: driver, runtime: "runc"})
			r := s.run("full", "exec", map[string]any{"timeout_s": 120, "argv": []string{"python3", "-c", `
import os, time
n = refused = 0
while refused < 40:
    try:
        if os.fork() == 0:
            time.sleep(100)
            os._exit(0)
        n += 1
    except OSError:
        refused += 1
        time.sleep(0.05)
print("children", n)`}})
			if r.Status != "exited" || r.ExitCode == nil || *r.ExitCode != 0 || !strings.HasPrefix(r.Stdout, "children ") || r.Detail != "" {
				t.Errorf("a program that the limit refused 40 processes in 2 s: %+v", r)
			}
			r = s.run("bomb", "exec", map[string]any{"timeout_s": 300, "argv": []string{"python3", "-c", `
import os
while True:
    try: os.fork()
    except OSError: pass`}})
			if r.Status != "killed" || !strings.Contains(r.Detail, "limits.pids") {
				t.Errorf("a fork bomb: %q, %q", r.Status, r.Detail)
			}
			s.ok("bomb", "true")
			var list struct {
				Items []struct{ Phase, Outcome, Detail string }
			}
			s.do("GET", "/api/audit?limit=100&exec="+r.ExecID, nil).into(t, &list)
			told := false
			for _, rec := range list.Items {
				told = told || rec.Phase == "result" && rec.Outcome == "killed" && strings.Contains(rec.Detail, "limits.pids")
			}
			if !told {
				t.Errorf("its records do not say why: %+v", list.Items)
			}
		})
	}
}

// TestCode: programs in every language, with files reported.
func TestCode(t *testing.T) {
	t.Parallel()
	onAll(t, func(t *testing.T, o options) {
		s := start(t, o)
		for lang, code := range map[string]string{
			"typescript": "const n: number = await Promise.resolve(42); console.log('n', n); await import('node:fs').then(f => f.writeFileSync('/mnt/user-data/outputs/ts.txt', 'x'))",
			"javascript": "console.log('n', await Promise.resolve(42)); (await import('node:fs')).writeFileSync('/mnt/user-data/outputs/js.txt', 'x')",
			"python":     "print('n', 42)\nopen('/mnt/user-data/outputs/py.txt', 'w').write('x')",
			"bash":       "echo n 42; echo -n x > /mnt/user-data/outputs/sh.txt",
		} {
			r := s.run("code", "execute_code", map[string]any{"code": code, "language": lang})
			if r.Status != "exited" || r.ExitCode == nil || *r.ExitCode != 0 || r.Stdout != "n 42\n" {
				t.Errorf("%s: %+v", lang, r)
				continue
			}
			if len(r.Files) != 1 || r.Files[0].Change != "created" || !strings.HasPrefix(r.Files[0].SHA256, "2d711642b726b04401627ca9fbac32f5") {
				t.Errorf("%s: files %+v", lang, r.Files)
			}
		}
		r := s.run("code", "execute_code", map[string]any{"code": "print('é' * 50_000)", "language": "python", "max_output_chars": 1000})
		if !r.Truncated || r.StdoutPath == nil || len([]rune(r.Stdout)) > 1300 || !strings.Contains(r.Stdout, "left out") {
			t.Errorf("long output: truncated=%t path=%v %d characters", r.Truncated, r.StdoutPath, len([]rune(r.Stdout)))
		}
	})
}

// TestSkill: the public skill reads an upload and writes its outputs.
func TestSkill(t *testing.T) {
	t.Parallel()
	s := start(t, options{})
	a := s.do("PUT", "/api/threads/skill/files", map[string]any{"path": "/mnt/user-data/uploads/a.csv", "content": "x,y\n1,a\n2,b\n3,\n"})
	if a.status != 201 {
		t.Fatalf("upload: %d %s", a.status, a.body)
	}
	r := s.run("skill", "skills/csv-profile/run", map[string]any{"script": "scripts/profile.py"})
	if r.ExitCode == nil || *r.ExitCode != 0 || len(r.Files) == 0 {
		t.Fatalf("%+v", r)
	}
	for _, f := range r.Files {
		if !strings.HasPrefix(f.Path, "/mnt/user-data/outputs/") || len(f.SHA256) != 64 {
			t.Errorf("file %+v", f)
		}
	}
	if a := s.do("POST", "/api/threads/skill/skills/csv-profile/run", map[string]any{"script": "SKILL.md"}); a.code() != "not_supported" {
		t.Errorf("a script without interpreter: %d %s", a.status, a.body)
	}
}

// TestSkillModule: a Python module of a skill imports what is beside it in the skill, and works on the thread's files.
func TestSkillModule(t *testing.T) {
	t.Parallel()
	s := start(t, options{})
	a := s.do("POST", "/api/threads/m/skills", map[string]any{
		"name": "counts", "description": "Counts", "body": "python -m scripts.count FILE", "files": map[string]string{
			"scripts/__init__.py": "", "scripts/lines.py": "def of(text): return text.count('\\n')\n",
			"scripts/count.py": "import os, sys\nfrom scripts import lines\nprint(lines.of(open(sys.argv[1]).read()), os.getcwd())\n",
		}})
	if a.status != 201 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	s.ok("m", "mkdir deep && printf 'a\nb\n' > deep/f")
	for cwd, file := range map[string]string{"": "deep/f", "/mnt/user-data/workspace/deep": "f"} {
		body := map[string]any{"module": "scripts.count", "args": []string{file}}
		if cwd != "" {
			body["cwd"] = cwd
		}
		want := "2 " + cmp.Or(cwd, "/mnt/user-data/workspace") + "\n"
		if r := s.run("m", "skills/counts/run", body); r.Stdout != want {
			t.Errorf("in %q: %+v", cwd, r)
		}
	}
	if a := s.do("POST", "/api/threads/m/skills/counts/run", map[string]any{"module": "scripts.none"}); a.code() != "not_found" || !strings.Contains(string(a.body), "scripts/none.py") {
		t.Errorf("a module that is not there: %d %s", a.status, a.body)
	}
}

// TestBrokenExtensions: with a configuration that is no JSON the server works, without what that would switch.
func TestBrokenExtensions(t *testing.T) {
	t.Parallel()
	s := start(t, options{extensions: `{"mcpServers": {"x": }`})
	if got := s.ok("b", "ls /mnt/skills/public"); got != "" {
		t.Errorf("nobody can tell which skills are off, and there are %q", got)
	}
	a := s.do("POST", "/api/threads/b/skills/csv-profile/run", map[string]any{"script": "scripts/profile.py"})
	if a.status != 503 || a.code() != "unavailable" || !strings.Contains(string(a.body), "column 22") {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := s.do("PUT", "/api/threads/b/files", map[string]any{"path": "/mnt/skills/public/x", "content": "x"}); a.code() != "forbidden" {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := s.do("GET", "/readyz", nil); !strings.Contains(string(a.body), "extensions_config.json") {
		t.Errorf("the broken configuration is not named: %s", a.body)
	}
}

// TestBadInput: each gets its named error, and the next call works.
func TestBadInput(t *testing.T) {
	t.Parallel()
	s := start(t, options{extensions: `{"mcpServers": {"x": {}}}`})
	s.ok("bad", "ln -s /etc /mnt/user-data/workspace/etc; ln -s ../../../../../../etc/passwd /mnt/user-data/workspace/up; mkfifo /mnt/user-data/workspace/pipe")
	for name, c := range map[string]struct {
		method, path string
		body         any
		status       int
		code         string
	}{
		"thread id":      {"POST", "/api/threads/a%2Fb/exec", map[string]any{"command": "true"}, 400, "invalid"},
		"thread id dots": {"POST", "/api/threads/a..b/exec", map[string]any{"command": "true"}, 400, "invalid"},
		"no thread":      {"GET", "/api/threads/nobody", nil, 404, "not_found"},
		"no command":     {"POST", "/api/threads/bad/exec", map[string]any{}, 400, "invalid"},
		"both":           {"POST", "/api/threads/bad/exec", map[string]any{"command": "true", "argv": []string{"true"}}, 400, "invalid"},
		"NUL":            {"POST", "/api/threads/bad/exec", map[string]any{"argv": []string{"a\x00b"}}, 400, "invalid"},
		"timeout":        {"POST", "/api/threads/bad/exec", map[string]any{"command": "true", "timeout_s": 99999}, 400, "invalid"},
		"env":            {"POST", "/api/threads/bad/exec", map[string]any{"command": "true", "env": map[string]string{"A-B": "x"}}, 400, "invalid"},
		"type":           {"POST", "/api/threads/bad/exec", map[string]any{"command": 7}, 400, "invalid"},
		"cwd":            {"POST", "/api/threads/bad/exec", map[string]any{"command": "true", "cwd": "/nowhere"}, 400, "invalid"},
		"program":        {"POST", "/api/threads/bad/exec", map[string]any{"argv": []string{"no-such-program"}}, 400, "invalid"},
		"language":       {"POST", "/api/threads/bad/execute_code", map[string]any{"code": "x", "language": "cobol"}, 400, "invalid"},
		"template":       {"PUT", "/api/threads/other/sandbox", map[string]any{"template": "nope"}, 400, "invalid"},
		"dots in path":   {"GET", "/api/threads/bad/files?path=/mnt/user-data/../../etc/passwd", nil, 400, "invalid"},
		"outside":        {"GET", "/api/threads/bad/files?path=/etc/passwd", nil, 403, "forbidden"},
		"link out":       {"GET", "/api/threads/bad/files?path=/mnt/user-data/workspace/etc/passwd", nil, 403, "forbidden"},
		"link up":        {"GET", "/api/threads/bad/files?path=/mnt/user-data/workspace/up", nil, 403, "forbidden"},
		"write through":  {"PUT", "/api/threads/bad/files", map[string]any{"path": "/mnt/user-data/workspace/etc/x", "content": "x"}, 403, "forbidden"},
		"fifo":           {"GET", "/api/threads/bad/files?path=/mnt/user-data/workspace/pipe", nil, 400, "invalid"},
		"read-only":      {"PUT", "/api/threads/bad/files", map[string]any{"path": "/mnt/skills/public/x", "content": "x"}, 403, "forbidden"},
		"no file":        {"GET", "/api/threads/bad/files?path=/mnt/user-data/workspace/none", nil, 404, "not_found"},
		"skill":          {"POST", "/api/threads/bad/skills/none/run", map[string]any{"script": "x"}, 404, "not_found"},
		"skill path":     {"POST", "/api/threads/bad/skills/csv-profile/run", map[string]any{"script": "../../x"}, 400, "invalid"},
		"tool":           {"POST", "/api/threads/bad/tools/call", map[string]any{"tool": "none__none", "input": map[string]any{}}, 404, "not_found"},
		"exec":           {"GET", "/api/threads/bad/execs/none", nil, 404, "not_found"},
		"route":          {"GET", "/api/nothing", nil, 404, "not_found"},
	} {
		t.Run(name, func(t *testing.T) {
			a := s.do(c.method, c.path, c.body)
			if a.status != c.status || a.code() != c.code {
				t.Errorf("got %d %s, want %d %s: %s", a.status, a.code(), c.status, c.code, a.body)
			}
			for _, leak := range []string{s.data, "/var/cache", "goroutine"} {
				if strings.Contains(string(a.body), leak) {
					t.Errorf("the answer shows %q: %s", leak, a.body)
				}
			}
			if a.header.Get("X-Request-Id") == "" {
				t.Error("no X-Request-Id")
			}
		})
	}
	s.ok("bad", "true")
}

// TestStreamAndResume: a stream can be taken up again by number; stdin and signals reach the exec.
func TestStreamAndResume(t *testing.T) {
	t.Parallel()
	s := start(t, options{})
	r := s.run("stream", "exec", map[string]any{"command": "read a; echo got $a; trap 'echo term; exit 3' TERM; while :; do sleep 0.05; done", "background": true, "keep_stdin": true})
	at := "/api/threads/stream/execs/" + r.ExecID
	if a := s.do("POST", at+"/stdin", map[string]any{"data": "hello\n", "close": true}); a.status >= 300 {
		t.Fatalf("stdin: %d %s", a.status, a.body)
	}
	eventually(t, "the line comes back", func() bool {
		var now result
		s.do("GET", at, nil).into(t, &now)
		return now.Stdout == "got hello\n"
	})
	time.Sleep(100 * time.Millisecond)
	if a := s.do("POST", at+"/signal", map[string]any{"signal": "TERM"}); a.status >= 300 {
		t.Fatalf("signal: %d %s", a.status, a.body)
	}
	all := string(s.do("GET", at+"/events", nil).body)
	for _, want := range []string{"id: 1\n", "event: started", "got hello", "event: exit", `"exit_code":3`} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is not in the events:\n%s", want, all)
		}
	}
	if rest := string(s.do("GET", at+"/events?after=2", nil).body); strings.Contains(rest, "event: started") || !strings.Contains(rest, "event: exit") {
		t.Errorf("events after 2:\n%s", rest)
	}
}

// TestRestart: embedded state survives: labels and threads.
func TestRestart(t *testing.T) {
	t.Parallel()
	s := start(t, options{})
	if a := s.do("PUT", "/api/threads/kept/sandbox", map[string]any{"labels": map[string]string{"team": "blue"}}); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	before := s.ok("kept", "id -u; hostname; cat /proc/sys/kernel/random/boot_id >/dev/null; echo $$ > /tmp/marker")
	s.stop()
	s.boot()
	if a := s.do("GET", "/api/threads?label=team=blue", nil); !strings.Contains(string(a.body), `"kept"`) {
		t.Errorf("the label is gone: %s", a.body)
	}
	if got := s.ok("kept", "id -u; hostname; ls /tmp/marker"); !strings.HasPrefix(got, before) || !strings.Contains(got, "/tmp/marker") {
		t.Errorf("another sandbox after the restart: %q then %q", before, got)
	}
}

// TestUsers: one user cannot reach another's thread, with keys and On-Behalf-Of.
func TestUsers(t *testing.T) {
	t.Parallel()
	s := start(t, options{args: []string{"--auth", "auto"}})
	var made struct{ Secret string }
	a := s.do("POST", "/api/keys", map[string]any{"name": "backend", "user": "root", "admin": true, "act_for": true})
	a.into(t, &made)
	if a.status != 201 || made.Secret == "" {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if a := s.do("GET", "/api/threads", nil); a.status != 401 || a.code() != "unauthorized" {
		t.Errorf("without a key: %d %s", a.status, a.body)
	}
	s.key, s.user = made.Secret, "alice"
	s.ok("same-name", "echo alice > /mnt/user-data/workspace/who")
	s.ok("hers", "true")
	s.user = "bob"
	if a := s.do("GET", "/api/threads/hers", nil); a.status != 404 {
		t.Errorf("bob sees alice's thread: %d %s", a.status, a.body)
	}
	if a := s.do("GET", "/api/threads/same-name/files?path=/mnt/user-data/workspace/who", nil); a.status != 404 {
		t.Errorf("bob reads alice's file: %d %s", a.status, a.body)
	}
	if got := s.ok("same-name", "ls /mnt/user-data/workspace | wc -l"); strings.TrimSpace(got) != "0" {
		t.Errorf("bob's thread of the same name holds %s files", got)
	}
	for _, id := range []string{"same-name"} {
		s.do("DELETE", "/api/threads/"+id, nil)
	}
	s.user = "alice" // destroy deletes hers
	raw, err := os.ReadFile(filepath.Join(s.data, "extensions_config.json"))
	if err == nil && strings.Contains(string(raw), made.Secret) {
		t.Error("the secret is on disk")
	}
	if strings.Contains(s.log.String(), made.Secret) {
		t.Error("the secret is in the log")
	}
}

// TestEnvironment: what the sandbox has, what an exec adds, and what no caller may set.
func TestEnvironment(t *testing.T) {
	t.Parallel()
	s := start(t, options{})
	if a := s.do("PUT", "/api/threads/env/sandbox", map[string]any{"env": map[string]string{"A": "sandbox", "B": "sandbox"}}); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	r := s.run("env", "exec", map[string]any{"command": "echo $A $B $HOME $SKERRY_THREAD_ID; env | grep -c ^B=", "env": map[string]string{"B": "exec"}})
	if r.Stdout != "sandbox exec /home/agent env\n1\n" {
		t.Errorf("got %q", r.Stdout)
	}
	if a := s.do("POST", "/api/threads/env/exec", map[string]any{"command": "true", "env": map[string]string{"SKERRY_EXEC_TOKEN": "x"}}); a.code() != "invalid" {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := s.do("PUT", "/api/threads/env/sandbox", map[string]any{"skills": []string{"no-such-skill"}}); a.code() != "invalid" {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// TestPause: a paused sandbox stands still, and the next call wakes it.
func TestPause(t *testing.T) {
	t.Parallel()
	onAll(t, func(t *testing.T, o options) {
		s := start(t, o)
		s.ok("p", "echo 1 > /tmp/x")
		var view struct{ Sandbox struct{ State string } }
		s.do("POST", "/api/threads/p/sandbox/pause", map[string]any{}).into(t, &view)
		if view.Sandbox.State != "paused" {
			t.Fatalf("state %q", view.Sandbox.State)
		}
		if got := s.ok("p", "cat /tmp/x"); got != "1\n" {
			t.Errorf("after the pause: %q", got)
		}
		s.ok("p", "echo kept > /mnt/user-data/workspace/f")
		if a := s.do("POST", "/api/threads/p/sandbox/hibernate", map[string]any{}); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		if got := s.ok("p", "cat /mnt/user-data/workspace/f; test ! -e /tmp/x"); got != "kept\n" {
			t.Errorf("after the hibernation: %q", got)
		}
	})
}
