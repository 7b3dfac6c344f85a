package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/e2e/docblock"
)

// shell is where blocks of documents run, by a person who has a server at localhost:8080.
type shell struct {
	s       *server
	dir     string
	env     []string
	stdin   string
	replace []string // what stands for something that only the reader has
}

func (s *server) shell() *shell { return &shell{s: s, dir: s.t.TempDir()} }

// run runs a block as it stands there, looks for what it is said to print and for more, and returns all that it printed.
func (sh *shell) run(b docblock.Block, wants ...string) string {
	t := sh.s.t
	t.Helper()
	addr := strings.TrimPrefix(sh.s.url, "http://")
	script := strings.NewReplacer(append(sh.replace, "localhost:8080", addr, "127.0.0.1:8080", addr, "/var/lib/skerry", sh.s.data,
		"curl -s ", "curl -sf ", "sudo bin/skerry", "skerry", "bin/skerry", "skerry")...).Replace(b.Commands())
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", script)
	cmd.Dir, cmd.Stdin = sh.dir, strings.NewReader(sh.stdin)
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "SKERRY_SERVER="+sh.s.url,
		// what is read on the server's own host, such as by doctor
		"SKERRY_DATA="+sh.s.data, "SKERRY_DISK_QUOTA=off", "SKERRY_DRIVER=oci", "SKERRY_LISTEN="+addr,
		"SKERRY_AUDIT_SIGNING_KEY_FILE="+filepath.Join(sh.s.data+".keys", "audit.pem"),
		"SKERRY_TEMPLATES="+filepath.Join(sh.s.data, "templates"), "SKERRY_IMAGES="+filepath.Join(cache(), "images"), "SKERRY_SKILLS="+abs(t, "../../skills"))
	cmd.Env = append(cmd.Env, sh.env...)
	raw, err := cmd.CombinedOutput()
	out := string(raw)
	if err != nil {
		t.Fatalf("%s: %v\n%s\n%s", b, err, script, out)
	}
	for _, line := range b.Missing(out) {
		t.Errorf("%s: %q is not in what it prints:\n%s", b, line, out)
	}
	for _, want := range wants {
		if !strings.Contains(out, want) {
			t.Errorf("%s: %s is not in what it prints:\n%s", b, want, out)
		}
	}
	return out
}

// firstKey makes the server's first key, as the operator of a machine would, and uses it.
func (sh *shell) firstKey() {
	sh.s.t.Helper()
	sh.s.key = strings.TrimSpace(sh.s.cli("keys", "create", "--admin", "--act-for", "--user", "local"))
	sh.env = append(sh.env, "SKERRY_API_KEY="+sh.s.key)
}

// TestDocuments runs what the documents show for a shell, against one server. What a page says is there already, is.
func TestDocuments(t *testing.T) {
	whole(t, TestReadme)
	t.Parallel()
	blocks := docblock.Marked(t)
	shared := sharedFolder(t)
	s := start(t, options{extensions: mcpServers(t, shared)})
	s.connect("connects")
	sh := s.shell()
	sh.firstKey()
	sh.stdin = filepath.Join(shared, "a.txt") + "\n\n\n" // path, tail and head of a file: what a person would answer
	sh.write("token.txt", "a-token-of-twenty-letters\n")
	sh.write("my-skill/SKILL.md", "---\nname: my-skill\ndescription: Says what it is told. Use it when somebody wants that.\n---\nRun scripts/run.py WORD.\n")
	sh.write("my-skill/scripts/run.py", "import sys; print('said', sys.argv[1])\n")
	s.run("doc", "execute_code", map[string]any{"language": "python", "code": "call_mcp_tool('everything__echo', {'message': 'hi'})"})
	all, err := docblock.Read(os.DirFS("../.."))
	must(t, err)
	for _, b := range all {
		if b.Page == "docs/policy.md" && b.Lang == "yaml" && strings.Contains(b.Text, "id: payments") {
			sh.write("policy.yaml", b.Text)
		}
	}
	sh.audited()
	sh.replace = append(sh.replace, "2026-11-01", time.Now().AddDate(0, 0, -10).UTC().Format(time.DateOnly))
	for range 5 { // on a busy machine the servers take their time
		if exec.CommandContext(t.Context(), filepath.Join(bin, "skerry"), "mcp", "list", "--address", s.url, "--api-key", s.key).Run() == nil {
			break
		}
	}
	for _, b := range blocks {
		t.Run(b.String(), func(t *testing.T) {
			s.t = t
			sh.run(b)
		})
		s.t = t
	}
}

func (sh *shell) write(name, text string) {
	sh.s.t.Helper()
	file := filepath.Join(sh.dir, name)
	must(sh.s.t, os.MkdirAll(filepath.Dir(file), 0o755))
	must(sh.s.t, os.WriteFile(file, []byte(text), 0o644))
}

// audited makes what docs/audit.md speaks of: a head and a checkpoint that were kept elsewhere, a copy of the log after them,
// an archive, the public key; and the record of docs/policy.md.
func (sh *shell) audited() {
	t, s := sh.s.t, sh.s
	t.Helper()
	calls := s.records("action=tool_call", "attempt")
	if len(calls) == 0 {
		t.Fatal("no record of a call")
	}
	text := s.cli("audit", "checkpoint", "--api-key", s.key)
	var head struct {
		Writer, Hash string
		Seq          json.Number
	}
	must(t, json.Unmarshal([]byte(strings.SplitN(text, "\n", 2)[0]), &head))
	sh.write("checkpoint.jsonl", text)
	audit, public := filepath.Join(s.data, "audit"), filepath.Join(sh.dir, "audit.pub.pem")
	run := func(name string, args ...string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	run("openssl", "pkey", "-in", filepath.Join(s.data+".keys", "audit.pem"), "-pubout", "-out", public)
	eventually(t, "a signature covers the log", func() bool { // until then verify fails
		out, _ := exec.CommandContext(t.Context(), filepath.Join(bin, "skerry"), "audit", "verify", "--segments", audit, "--public-key", public).CombinedOutput()
		return strings.Contains(string(out), "; signed to record")
	})
	run("cp", "-r", audit, filepath.Join(sh.dir, "copy"))
	sh.replace = append(sh.replace, "w1f0c…:1042:9b1d…", head.Writer+":"+head.Seq.String()+":"+head.Hash, "/mnt/archive", "./copy",
		"01990f5e-7c1a-7b7e-9d38-2f8f2c1f0a11", calls[0]["id"].(string))
}
