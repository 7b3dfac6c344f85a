package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// formerData unpacks a data folder that version 0.1 left: a thread with files and a sandbox that hibernates, a skill, a
// secret, keys and the audit log. It returns the administrator's key.
func formerData(t *testing.T, data string) string {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.Command("tar", "--numeric-owner", "-xzpf", "testdata/data-0.1.tar.gz", "-C", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	key, err := os.ReadFile(filepath.Join(dir, "key"))
	must(t, err)
	for from, to := range map[string]string{"data": data, "data.keys": data + ".keys", "keys": data + ".keys"} {
		must(t, os.MkdirAll(to, 0o711)) //nolint:gosec // as servers make it
		if out, err := exec.Command("cp", "-a", filepath.Join(dir, from)+"/.", to).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	return strings.TrimSpace(string(key))
}

// TestFormerDataFolder: this server opens what version 0.1 wrote, and loses nothing of it.
func TestFormerDataFolder(t *testing.T) {
	t.Parallel()
	var key string
	s := start(t, options{fill: func(data string) { key = formerData(t, data) }})
	s.key, s.user = key, "local"
	if got := s.threads(); len(got) != 1 || got[0] != "old" {
		t.Fatalf("threads %v, want the former one", got)
	}
	for path, want := range map[string]string{
		"/mnt/user-data/outputs/note.txt":   "hello from 0.1\n",
		"/mnt/user-data/workspace/a/b/c":    "deep\n",
		"/mnt/skills/custom/notes/SKILL.md": "Takes notes.",
	} {
		r := s.run("old", "exec", map[string]any{"command": "cat " + path})
		if !strings.Contains(r.Stdout, want) {
			t.Errorf("%s: %q (%s), want %q", path, r.Stdout, r.Stderr, want)
		}
	}
	// What the sandbox was asked to be came back with it.
	if r := s.run("old", "exec", map[string]any{"command": "echo $GREETING; echo more >> /mnt/user-data/outputs/note.txt"}); r.Stdout != "hello\n" {
		t.Errorf("the environment: %+v", r)
	}
	for path, want := range map[string]string{
		"/api/secrets": "OLD_TOKEN", "/api/skills": `"name":"notes"`, "/api/audit?thread=old": `"action":"execute_code"`,
	} {
		if res := s.do("GET", path, nil); res.status != 200 || !strings.Contains(string(res.body), want) {
			t.Errorf("%s: %d %s, want %s", path, res.status, res.body, want)
		}
	}
	eventually(t, "the log is signed to its end", func() bool { // the head of the last records is signed within a second
		return exec.Command(filepath.Join(bin, "skerry"), "audit", "verify", "--segments", filepath.Join(s.data, "audit"),
			"--public-key", filepath.Join(s.data+".keys", "audit.pub.pem")).Run() == nil
	})
	if text, err := os.ReadFile(filepath.Join(s.data, "format")); err != nil || string(text) != "1\n" {
		t.Errorf("the folder's version: %q, %v", text, err)
	}
}

// TestNewerDataFolder: a server refuses a data folder of a newer one, says what to do, and changes nothing in it.
func TestNewerDataFolder(t *testing.T) {
	t.Parallel()
	s := start(t, options{})
	s.stop()
	file := filepath.Join(s.data, "format")
	must(t, os.WriteFile(file, []byte("2\n"), 0o600))
	cmd := exec.Command(filepath.Join(bin, "skerry"), s.args...)
	cmd.Env = s.cmd.Env
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "a newer Skerry wrote it. Start that version, or restore a backup from before the upgrade") {
		t.Errorf("%v: %s", err, out)
	}
	must(t, os.WriteFile(file, []byte("1\n"), 0o600)) // the test's end starts it again
}
