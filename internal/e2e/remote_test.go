package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// serviceTemplate is that of the server whose sandboxes hold those of another one.
const serviceTemplate = `name: nest
description: holds sandboxes of another server
image: {oci: base}
runtime: runc
languages: [bash]
idle_timeout_s: 0
limits: {memory: 1GiB, cpu: 2000m, pids: 512, open_files: 1024, file_size: 256MiB, tmp: 64MiB, disk: 1GiB}
loosen: [seccomp.namespaces]
`

// startAtService starts a server whose sandboxes are those of another one, and that one.
func startAtService(t *testing.T, o options) (s, service *server) {
	t.Helper()
	service = start(t, options{templates: map[string]string{"nest.yaml": serviceTemplate}, env: []string{"SKERRY_E2B=true"}})
	service.key = strings.TrimSpace(service.cli("keys", "create", "--admin", "--user", "local"))
	o.driver = "remote"
	o.env = append(o.env, "SKERRY_REMOTE_URL="+service.url, "SKERRY_REMOTE_SANDBOX_URL="+service.url, "SKERRY_REMOTE_TEMPLATE=nest", "SKERRY_REMOTE_API_KEY="+service.key)
	return start(t, o), service
}

// remains are the sandboxes that a service has.
func (s *server) remains() []string {
	s.t.Helper()
	var list []struct {
		ID       string            `json:"sandboxID"`
		Metadata map[string]string `json:"metadata"`
	}
	a := s.do("GET", "/v2/sandboxes", nil)
	if a.status != 200 {
		s.t.Fatalf("%d %s", a.status, a.body)
	}
	a.into(s.t, &list)
	var ids []string
	for _, x := range list {
		ids = append(ids, x.Metadata["skerry-sandbox"])
	}
	return ids
}

// TestRemote: sandboxes of one server are those of another one that serves E2B's API: commands, files both ways, code that
// calls tools through the bridge; what a killed server left it finds; and deleting leaves nothing there.
func TestRemote(t *testing.T) {
	whole(t, TestRemoteLost)
	t.Parallel()
	shared := sharedFolder(t)
	s, service := startAtService(t, options{extensions: mcpServers(t, shared)})
	const thread, content = "far", "/api/threads/far/files/content?path=/mnt/user-data/"

	if code := s.putBytes(content+"uploads/in.txt", []byte("from here\n")); code != 201 {
		t.Fatalf("upload: %d", code)
	}
	if got := s.ok(thread, "cat /mnt/user-data/uploads/in.txt; echo from there > /mnt/user-data/outputs/out.txt; pwd"); got != "from here\n/mnt/user-data/workspace\n" {
		t.Errorf("%q", got)
	}
	if a := s.do("GET", content+"outputs/out.txt", nil); a.status != 200 || string(a.body) != "from there\n" {
		t.Errorf("%d %s", a.status, a.body)
	}
	s.ok(thread, "head -c 40000000 /dev/urandom > big && sha256sum big > big.sum && cat big | head -c 3000000 | base64 -w0 | wc -c")
	if a := s.do("GET", content+"workspace/big", nil); a.status != 200 || len(a.body) != 40_000_000 {
		t.Errorf("a large file: %d, %d bytes", a.status, len(a.body))
	}
	atService := strings.Join(service.remains(), " ")
	if id := s.sandboxOf(thread); id == "" || atService != id {
		t.Errorf("the sandbox is %q, and the service has %q", id, atService)
	}

	for what, command := range map[string]string{
		"root":                     "test $(id -u) -gt 0",
		"its own uid":              "test $(stat -c %u /mnt/user-data/workspace) = $(id -u)",
		"no capability":            "grep -q '^CapEff:.*0000000000000000$' /proc/self/status",
		"a filter":                 "grep -q '^Seccomp:.*2$' /proc/self/status",
		"loopback alone":           "test $(ls /sys/class/net /proc/self/net/dev >/dev/null; tail -n +3 /proc/self/net/dev | wc -l) = 1",
		"the server's skills":      "ls /mnt/skills/public | grep -q .",
		"skills that are its own":  "! touch /mnt/skills/x 2>/dev/null",
		"a root that is read-only": "! touch /x /mnt/x /etc/x 2>/dev/null",
		"nothing of the service's": "! ls -d /mnt/user-data/workspace/.skerry /home/user 2>/dev/null && test -z \"$(ls -A /run | grep -v skerry)\"",
	} {
		if r := s.exec(thread, command); r.ExitCode == nil || *r.ExitCode != 0 {
			t.Errorf("%s: %s %s%s", what, r.Status, r.Stdout, r.Stderr)
		}
	}

	s.connect(thread)
	for lang, code := range map[string]string{
		"typescript": `import { readTextFile } from './servers/filesystem'; console.log((await readTextFile({ path: '%s/a.txt' })).content.split('\n')[1])`,
		"python":     "from servers.filesystem import read_text_file\nprint(read_text_file(path='%s/a.txt')['content'].splitlines()[1])",
	} {
		r := s.run(thread, "execute_code", map[string]any{"code": fmt.Sprintf(code, shared), "language": lang})
		if r.Stdout != "two\n" || len(r.ToolsCalled) != 1 {
			t.Errorf("%s: %+v", lang, r)
		}
	}

	id := s.sandboxOf(thread)
	running := s.background(thread, "sleep 1000; true")
	s.kill()
	s.boot()
	if got := s.ok(thread, "cat /mnt/user-data/outputs/out.txt; sha256sum -c --quiet big.sum && ls"); got != "from there\nbig\nbig.sum\n" {
		t.Errorf("after a kill: %q", got)
	}
	if now := s.sandboxOf(thread); now != id {
		t.Errorf("after a kill the sandbox is %s, and was %s", now, id)
	}
	if got := s.status(thread, running); got != "lost" && got != "running" {
		t.Errorf("what ran is %q", got)
	}

	if a := s.do("DELETE", "/api/threads/"+thread, nil); a.status != 204 {
		t.Errorf("delete: %d %s", a.status, a.body)
	}
	if left := service.remains(); len(left) != 0 {
		t.Errorf("the service still has %v", left)
	}
	if left := service.threads(); len(left) != 0 {
		t.Errorf("the service still has the threads %v", left)
	}
	if strings.Contains(s.log.String(), service.key) {
		t.Error("the key is in the log")
	}
}

// TestRemoteLost: a sandbox that the service ended is lost, its files are not, and the next call has another one; what cannot
// be had is refused by name.
func TestRemoteLost(t *testing.T) { // alone: doctor reads this process's environment
	s, service := startAtService(t, options{})
	s.ok("lost", "echo kept > a")
	first := s.sandboxOf("lost")
	for _, id := range service.threads() {
		if a := service.do("DELETE", "/sandboxes/"+id, nil); a.status != 204 {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	eventually(t, "another sandbox is there", func() bool {
		r := s.exec("lost", "cat a")
		return r.Stdout == "kept\n"
	})
	if now := s.sandboxOf("lost"); now == first || now == "" {
		t.Errorf("the sandbox is %q, and was %q", now, first)
	}
	if a := s.do("POST", "/api/threads/lost/sandbox/pause", nil); a.code() != "not_supported" {
		t.Errorf("pause: %d %s", a.status, a.body)
	}
	for _, v := range s.env {
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
	t.Setenv("SKERRY_REMOTE_BRIDGE", filepath.Join(bin, "skerry-bridge"))
	code, lines := s.examined("--driver", "remote")
	text := fmt.Sprint(lines)
	if code != 0 {
		t.Errorf("doctor: %d %s", code, text)
	}
	for _, want := range []string{"not promised by this server", "isolation, memory, CPU time and disk", "have no ports"} {
		if !strings.Contains(text, want) {
			t.Errorf("doctor does not say %q: %s", want, text)
		}
	}
	if strings.Contains(text, service.key) {
		t.Error("doctor shows the key")
	}
}
