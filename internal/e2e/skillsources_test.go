package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/skills/archive"
)

// writeFiles makes files below a folder.
func writeFiles(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		file := filepath.Join(dir, name)
		must(t, errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)))
	}
}

// TestSkillSources: the server reads a list of skills in the shape that other programs have: a folder, and
// an archive of a web server. Scripts of an entry get its environment and its secret. What of an entry has
// no effect here is a finding. A marketplace has skills that are no part of a plugin, and the command line
// installs them.
func TestSkillSources(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{
		"github/SKILL.md": fmt.Sprintf(skillText, "github"), "github/show.sh": "#!/bin/sh\necho \"$MODE ${#GITHUB_TOKEN}\"\n",
		"src/SKILL.md": fmt.Sprintf(skillText, "fetched"), "src/logo.bin": "\xff\x00\x01",
		"market/.claude-plugin/marketplace.json": `{"name":"ours","owner":{"name":"we"},"skills":[
			{"name":"bare","source":"./skills/bare","description":"bare"},
			{"name":"gone","source":"./skills/gone","description":"not there"},
			{"name":"packed","source":{"source":"archive","url":"WEB/fetched.skill","sha256":"SUM"},"description":"pinned"},
			{"name":"other","source":{"source":"archive","url":"WEB/fetched.skill","sha256":"` + strings.Repeat("0", 64) + `"},"description":"changed"}]}`,
		"market/skills/bare/SKILL.md": fmt.Sprintf(skillText, "bare"), "market/skills/bare/run.sh": "#!/bin/sh\necho bare\n",
	})
	var packed bytes.Buffer
	must(t, archive.Pack(t.Context(), &packed, filepath.Join(dir, "src"), "fetched", archive.DefaultLimits()))
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/fetched.skill" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(packed.Bytes())
	}))
	t.Cleanup(web.Close)
	sum := sha256.Sum256(packed.Bytes())
	list := filepath.Join(dir, "market/.claude-plugin/marketplace.json")
	text, err := os.ReadFile(list)
	must(t, err)
	writeFiles(t, dir, map[string]string{
		"market/.claude-plugin/marketplace.json": strings.NewReplacer("WEB", web.URL, "SUM", hex.EncodeToString(sum[:])).Replace(string(text)),
		"skills.json": fmt.Sprintf(`{"skills": {
			"github": {"source": "directory", "path": "./github", "trusted": true,
				"script_executor": {"type": "docker", "image": "python:3.11-slim", "timeout_secs": 20, "env": {"GITHUB_TOKEN": "${GITHUB_TOKEN}", "MODE": "fast"}}},
			"fetched": {"source": "archive", "url": "%s/fetched.skill?token=hush", "trusted": true}}}`, web.URL),
	})
	s := start(t, options{env: []string{
		"SKERRY_SKILL_SOURCES=" + filepath.Join(dir, "skills.json"), "SKERRY_PLUGINS_ADDRESSES=127.0.0.1/32", "SKERRY_PLUGINS_FOLDERS=" + filepath.Join(dir, "market"),
	}})
	var all struct {
		Skills []struct {
			Name, Category string
			Findings       []struct{ Rule, Message string }
		}
	}
	s.do("GET", "/api/skills", nil).into(t, &all)
	found := map[string]string{}
	for _, sk := range all.Skills {
		found[sk.Name] = sk.Category + fmt.Sprint(sk.Findings)
	}
	if !strings.HasPrefix(found["fetched"], "public") || !strings.Contains(found["github"], "executor-ignored script_executor.image") {
		t.Errorf("%v", found)
	}
	if got := s.ok("s", "wc -c < /mnt/skills/public/fetched/logo.bin"); got != "3\n" {
		t.Errorf("the archive's binary file: %q", got)
	}
	if a := s.do("POST", "/api/threads/s/skills/github/run", map[string]any{"script": "show.sh"}); a.code() != "not_found" || !strings.Contains(string(a.body), "GITHUB_TOKEN") {
		t.Errorf("without the secret: %d %s", a.status, a.body)
	}
	if a := s.do("PUT", "/api/secrets/GITHUB_TOKEN", map[string]any{"value": "ghp_0123456789", "exec": true}); a.status >= 300 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if r := s.run("s", "skills/github/run", map[string]any{"script": "show.sh"}); r.Stdout != "fast 14\n" {
		t.Errorf("of the entry: %+v", r)
	}
	if r := s.run("s", "skills/github/run", map[string]any{"script": "show.sh", "env": map[string]string{"MODE": "slow", "GITHUB_TOKEN": "own"}}); r.Stdout != "slow 3\n" {
		t.Errorf("what the request says does not count: %+v", r)
	}

	if out := s.cli("plugins", "marketplaces", "add", filepath.Join(dir, "market")); !strings.Contains(out, "marketplace ours") {
		t.Error(out)
	}
	if out := s.cli("skills", "install", "bare@ours"); !strings.Contains(out, "skill bare is installed  bare@ours") {
		t.Error(out)
	}
	if r := s.run("s", "skills/bare/run", map[string]any{"script": "run.sh"}); r.Stdout != "bare\n" {
		t.Errorf("%+v", r)
	}
	for name, want := range map[string]string{"gone": "not_found", "none": "not_found", "other": "conflict"} {
		if a := s.do("POST", "/api/skills/install", map[string]any{"marketplace": "ours", "skill": name}); a.code() != want {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	var done struct {
		Name string `json:"skill_name"`
	}
	if s.do("POST", "/api/skills/install", map[string]any{"marketplace": "ours", "skill": "packed"}).into(t, &done); done.Name != "packed" {
		t.Errorf("%+v", done)
	}
	var markets struct {
		Items []struct{ Skills []struct{ Name string } }
	}
	if s.do("GET", "/api/marketplaces", nil).into(t, &markets); len(markets.Items) != 1 || len(markets.Items[0].Skills) != 4 {
		t.Errorf("%+v", markets)
	}
}

// TestSkillFolder: a whole folder, with a binary file and a SKILL.md of its own, becomes a skill of one
// thread, and is replaced.
func TestSkillFolder(t *testing.T) {
	t.Parallel()
	s := start(t, options{})
	body := map[string]any{
		"name": "stamper", "replace": true,
		"files":        map[string]string{"SKILL.md": "---\nname: stamper\ndescription: Stamps.\nlicense: MIT\n---\nRun stamp.sh.\n", "stamp.sh": "#!/bin/sh\nwc -c < ${0%/*}/seal.bin\n"},
		"binary_files": map[string]string{"seal.bin": base64.StdEncoding.EncodeToString([]byte{0xff, 0, 0xfe})},
	}
	digests := map[string]bool{}
	for _, size := range []string{"3\n", "1\n"} {
		var added struct{ Digest, Category string }
		s.do("POST", "/api/threads/f/skills", body).into(t, &added)
		digests[added.Digest] = true
		if got := s.ok("f", "/mnt/skills/virtual/stamper/stamp.sh"); got != size || added.Category != "virtual" {
			t.Errorf("%q %+v", got, added)
		}
		body["binary_files"] = map[string]string{"seal.bin": "eA=="}
	}
	if len(digests) != 2 {
		t.Errorf("%v", digests)
	}
	body["replace"] = false
	if a := s.do("POST", "/api/threads/f/skills", body); a.code() != "conflict" {
		t.Errorf("%d %s", a.status, a.body)
	}
	body["replace"], body["files"] = true, map[string]string{"SKILL.md": "no frontmatter"}
	if a := s.do("POST", "/api/threads/f/skills", body); a.code() != "invalid" {
		t.Errorf("%d %s", a.status, a.body)
	}
	if got := s.ok("f", "/mnt/skills/virtual/stamper/stamp.sh"); got != "1\n" {
		t.Errorf("what was refused has taken its place: %q", got)
	}
	if got := s.ok("g", "ls /mnt/skills/virtual 2>/dev/null | wc -l"); got != "0\n" {
		t.Errorf("in another thread: %q", got)
	}
}

// skillServer is an MCP server that offers a skill by the Skills extension, and says which of its files were
// read.
const skillServer = `import base64, hashlib, json, sys
files = {"SKILL.md": b"---\nname: stamp\ndescription: Stamps letters\n---\nRun ${CLAUDE_SKILL_DIR}/stamp.sh.\n",
         "stamp.sh": b"#!/bin/sh\nwc -c < ${0%/*}/seal.bin\n", "seal.bin": bytes(range(256))}
base, read = "skill://letters/stamp/", []
for line in sys.stdin:
    m = json.loads(line)
    if "id" not in m:
        continue
    r = None
    if m["method"] == "initialize":
        r = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}, "resources": {}, "extensions": {"io.modelcontextprotocol/skills": {}}}, "serverInfo": {"name": "own", "version": "1"}}
    elif m["method"] == "tools/list":
        r = {"tools": [{"name": "read", "inputSchema": {"type": "object"}}]}
    elif m["method"] == "tools/call":
        r = {"content": [{"type": "text", "text": " ".join(read)}]}
    elif m["method"] == "skills/list":
        r = {"skills": [{"uri": base + "SKILL.md", "frontmatter": {"name": "stamp", "description": "Stamps letters"}, "resources": [
            {"uri": base + n, "digest": "sha256:" + hashlib.sha256(d).hexdigest(), "size": len(d)} for n, d in files.items()]}]}
    elif m["method"] == "resources/read":
        name = m["params"]["uri"][len(base):]
        read.append(name)
        content = {"uri": m["params"]["uri"]}
        if name == "seal.bin":
            content["blob"] = base64.b64encode(files[name]).decode()
        else:
            content["text"] = files[name].decode()
        r = {"contents": [content]}
    out = {"jsonrpc": "2.0", "id": m["id"]}
    if r is None:
        out["error"] = {"code": -32601, "message": "no such method"}
    else:
        out["result"] = r
    print(json.dumps(out), flush=True)
`

// TestServerSkills: a skill that an MCP server offers is in the prompt and in searches, marked by the
// server, and none of its files is read. Activated, it is in the sandbox, and its scripts run when a person
// allows it.
func TestServerSkills(t *testing.T) {
	t.Parallel()
	dir := sharedFolder(t)
	writeFiles(t, dir, map[string]string{"skills.py": skillServer})
	s := start(t, options{extensions: fmt.Sprintf(`{"mcpServers":{"letters":{"command":"/usr/bin/python3","args":["-u",%q]}}}`, filepath.Join(dir, "skills.py"))})
	reads := func() string {
		t.Helper()
		var call struct{ Result string }
		s.do("POST", "/api/threads/s/tools/call", map[string]any{"tool": "letters__read", "input": map[string]any{}}).into(t, &call)
		return call.Result
	}
	if got := reads(); got != "" { // it connects, too
		t.Errorf("read before anything was asked: %q", got)
	}
	if a := s.do("GET", "/api/threads/s/prompt", nil); !strings.Contains(string(a.body), "letters:stamp") {
		t.Errorf("the prompt does not know the skill: %s", a.body)
	}
	var found struct {
		Skills []struct{ Name, Description, Location string }
	}
	s.do("GET", "/api/threads/s/skills?query=stamp+letters", nil).into(t, &found)
	if len(found.Skills) == 0 || found.Skills[len(found.Skills)-1].Name != "letters:stamp" || found.Skills[len(found.Skills)-1].Location != "skill://letters/stamp/SKILL.md" {
		t.Errorf("%+v", found)
	}
	if got := reads(); got != "" {
		t.Errorf("read before an agent wants it: %q", got)
	}
	var active struct {
		Content, Location string
		Resources         []string
	}
	s.do("POST", "/api/threads/s/skills/letters:stamp/activate", nil).into(t, &active)
	if active.Location != "/mnt/skills/virtual/letters--stamp/SKILL.md" || !strings.Contains(active.Content, "Run /mnt/skills/virtual/letters--stamp/stamp.sh.") || len(active.Resources) != 2 {
		t.Errorf("%+v", active)
	}
	if got := reads(); len(strings.Fields(got)) != 3 {
		t.Errorf("read: %q", got)
	}
	if got := s.ok("s", "sha256sum < /mnt/skills/virtual/letters--stamp/seal.bin"); !strings.HasPrefix(got, "40aff2e9d2d8922e47afd4648e6967497158785fbd1da870e7110266bf944880") {
		t.Errorf("its binary file: %q", got)
	}
	if got := s.ok("other", "ls /mnt/skills/virtual 2>/dev/null | wc -l"); got != "0\n" {
		t.Errorf("in another thread: %q", got)
	}
	done := make(chan result)
	go func() {
		var r result
		a, err := s.request("POST", "/api/threads/s/skills/letters:stamp/run", map[string]any{"script": "stamp.sh"})
		if err == nil {
			a.into(t, &r)
		}
		done <- r
	}()
	var id string
	eventually(t, "the run waits for a person", func() bool {
		var waiting struct{ Items []struct{ ID, Skill string } }
		s.do("GET", "/api/approvals?state=pending", nil).into(t, &waiting)
		for _, w := range waiting.Items {
			id = w.ID
		}
		return id != ""
	})
	s.do("POST", "/api/approvals/"+id, map[string]any{"decision": "approve", "reason": "read"})
	if r := <-done; r.Stdout != "256\n" {
		t.Errorf("%+v", r)
	}
}
