package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/redis/go-redis/v9"
)

// canaries are secrets that are known, with the place where each was given. They are looked for in everything that the
// system wrote.
type canaries struct {
	t   *testing.T
	all map[string]string
}

func (c *canaries) make(name string) string {
	var raw [15]byte
	rand.Read(raw[:]) //nolint:errcheck // never fails
	c.all[name] = "canary/" + name + "+" + hex.EncodeToString(raw[:])
	return c.all[name]
}

// formsOf are the ways in which a secret might be written, in forms that our own code never writes.
func formsOf(secret string) map[string]string {
	quoted, err := json.Marshal(secret)
	if err != nil {
		panic(err)
	}
	var escaped strings.Builder
	for _, r := range secret {
		fmt.Fprintf(&escaped, `\u%04x`, r)
	}
	all := map[string]string{
		"plain": secret, "JSON": strings.Trim(string(quoted), `"`), "query": url.QueryEscape(secret), "path": url.PathEscape(secret),
		"hex": hex.EncodeToString([]byte(secret)), "HEX": strings.ToUpper(hex.EncodeToString([]byte(secret))), "escaped": escaped.String(),
		"reversed": string(reversed(secret)), "random part": secret[strings.LastIndexByte(secret, '+')+1:],
	}
	for i := range 3 { // wherever in a larger text
		padded := append(bytes.Repeat([]byte("x"), i), secret...)
		text := base64.StdEncoding.EncodeToString(padded)
		all[fmt.Sprint("base64 ", i)] = text[4 : len(text)-4]
		all[fmt.Sprint("base64 URL ", i)] = strings.NewReplacer("+", "-", "/", "_").Replace(text[4 : len(text)-4])
	}
	return all
}

func reversed(s string) []byte {
	out := []byte(s)
	for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
		out[i], out[j] = out[j], out[i]
	}
	return out
}

// leaks names what of the secrets is in a text.
func (c *canaries) leaks(text []byte) []string {
	var list []string
	for name, secret := range c.all {
		for form, needle := range formsOf(secret) {
			if bytes.Contains(text, []byte(needle)) {
				list = append(list, name+" as "+form)
			}
		}
	}
	return list
}

// none fails when a secret is in a text.
func (c *canaries) none(where string, text []byte) {
	c.t.Helper()
	if list := c.leaks(text); len(list) > 0 {
		at := bytes.Index(text, []byte(c.all[strings.Fields(list[0])[0]]))
		c.t.Errorf("%s has %v: …%.300q", where, list, text[max(0, at-100):min(len(text), max(0, at)+200)])
	}
}

// folder looks through all files of a folder.
func (c *canaries) folder(dir string, look func(where string, text []byte)) (files int) {
	c.t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil //nolint:nilerr // it went meanwhile
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil //nolint:nilerr // likewise
		}
		files++
		look(path, text)
		look("the name "+path, []byte(path))
		return nil
	})
	must(c.t, err)
	return files
}

// redis returns all that a Redis holds.
func redisText(t *testing.T, address string) []byte {
	t.Helper()
	o, err := redis.ParseURL(address)
	must(t, err)
	rdb := redis.NewClient(o)
	defer rdb.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	keys, err := rdb.Keys(ctx, "*").Result()
	must(t, err)
	var out bytes.Buffer
	for _, k := range keys {
		fmt.Fprintln(&out, k)
		switch kind := rdb.Type(ctx, k).Val(); kind {
		case "string":
			fmt.Fprintln(&out, rdb.Get(ctx, k).Val())
		case "hash":
			for f, v := range rdb.HGetAll(ctx, k).Val() {
				fmt.Fprintln(&out, f, v)
			}
		case "stream":
			for _, m := range rdb.XRange(ctx, k, "-", "+").Val() {
				for f, v := range m.Values {
					fmt.Fprintln(&out, f, v)
				}
			}
		case "zset":
			fmt.Fprintln(&out, rdb.ZRange(ctx, k, 0, -1).Val())
		case "set":
			fmt.Fprintln(&out, rdb.SMembers(ctx, k).Val())
		case "list":
			fmt.Fprintln(&out, rdb.LRange(ctx, k, 0, -1).Val())
		default:
			t.Errorf("the key %s is a %s, which this test does not read", k, kind)
		}
	}
	return out.Bytes()
}

// leakyHTTP is an MCP server over HTTP that says its token, in results and in errors.
func leakyHTTP(t *testing.T, want string) string {
	t.Helper()
	s := mcp.NewServer(&mcp.Implementation{Name: "leaky", Version: "1"}, nil)
	say := func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		token := r.Extra.Header.Get("Authorization")
		if strings.TrimPrefix(token, "Bearer ") != want {
			t.Errorf("the header is %q", token)
		}
		raw := []byte(want)
		text := fmt.Sprintf("%s %s %s %x %X %s %q", token, base64.StdEncoding.EncodeToString(raw), base64.URLEncoding.EncodeToString(append([]byte("a:"), raw...)),
			raw, raw, url.QueryEscape(want), want)
		res := &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}
		if r.Params.Name == "fail" {
			res.IsError = true
		}
		return res, nil
	}
	for _, name := range []string{"leak", "fail"} {
		s.AddTool(&mcp.Tool{Name: name, Description: "Says its token", InputSchema: json.RawMessage(`{"type":"object"}`)}, say)
	}
	inner := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/broken" {
			w.Header().Set("X-Token", r.Header.Get("Authorization"))
			http.Error(w, "I do not like "+r.Header.Get("Authorization"), http.StatusForbidden)
			return
		}
		inner.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

// TestCanaries puts secrets into the system in every possible way. It makes MCP servers and code repeat them
// in every way that they can, and lets calls fail. Then it searches everything that the system wrote. No
// secret is outside of the encrypted store.
func TestCanaries(t *testing.T) {
	t.Parallel()
	redisURL := startRedis(t)
	c := &canaries{t: t, all: map[string]string{}}
	names := []string{"HTTP", "STDIO", "FILE", "EXEC", "SKILL", "REQUEST", "SANDBOX", "MISSING"}
	for _, n := range names {
		c.make(n)
	}
	dir := sharedFolder(t)
	script, err := os.ReadFile("testdata/leaky_server.py")
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "leaky.py"), script, 0o644)) //nolint:gosec // nobody runs it
	mounted := t.TempDir()
	must(t, os.WriteFile(filepath.Join(mounted, "FILE"), []byte(c.all["FILE"]+"\n"), 0o600))
	base := leakyHTTP(t, c.all["HTTP"])
	config, err := json.Marshal(map[string]any{"mcpServers": map[string]any{
		"web":    map[string]any{"type": "http", "url": base, "headers": map[string]string{"Authorization": "Bearer ${secret:HTTP}"}},
		"broken": map[string]any{"type": "http", "url": base + "/broken", "headers": map[string]string{"X-Api-Key": "${secret:FILE}", "Authorization": "Bearer ${secret:HTTP}"}},
		"prog":   map[string]any{"command": "/usr/bin/python3", "args": []string{filepath.Join(dir, "leaky.py")}, "env": map[string]string{"TOKEN": "${secret:STDIO}"}},
		"absent": map[string]any{"command": "/usr/bin/python3", "args": []string{filepath.Join(dir, "leaky.py")}, "env": map[string]string{"TOKEN": "${secret:NOT_THERE}"}},
	}})
	must(t, err)
	s := start(t, options{extensions: string(config), args: []string{"--redis", redisURL}, env: []string{"SKERRY_LOG_LEVEL=debug", "SKERRY_SECRETS_DIR=" + mounted}})
	set := func(name string, flags ...string) {
		t.Helper()
		cmd := exec.Command(filepath.Join(bin, "skerry"), append([]string{"--server", s.url, "secrets", "set", name}, flags...)...)
		cmd.Stdin = strings.NewReader(c.all[name] + "\n")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
		c.none("the output of set", out)
	}
	set("HTTP", "--tenant")
	set("STDIO")
	set("EXEC", "--exec")
	set("SKILL", "--for-skill", "nothing")

	hidden := 0
	saw := func(what string, a answer) answer {
		t.Helper()
		c.none(what, a.body)
		hidden += strings.Count(string(a.body), "[redacted]") + strings.Count(string(a.body), "***")
		return a
	}
	call := func(tool string, status int) answer {
		t.Helper()
		a := saw(tool, s.do("POST", "/api/threads/t/tools/call", map[string]any{"tool": tool, "input": map[string]any{}}))
		if a.status != status {
			t.Errorf("%s: %d %.300s", tool, a.status, a.body)
		}
		return a
	}

	// The environment of the sandbox, and a refused one.
	saw("acquire", s.do("PUT", "/api/threads/t/sandbox", map[string]any{"env": map[string]string{"BOX": c.all["SANDBOX"]}}))
	saw("refused", s.do("PUT", "/api/secrets/X", map[string]any{"value": []string{c.all["MISSING"]}}))
	saw("refused", s.do("PUT", "/api/secrets/X", map[string]any{"value": c.all["MISSING"] + "\x00"}))
	saw("refused", s.do("PUT", "/api/secrets/X?scope=nobody", map[string]any{"value": c.all["MISSING"]}))
	saw("refused", s.do("POST", "/api/threads/t/exec", map[string]any{"command": "true", "env": map[string]string{"SKERRY_X": c.all["MISSING"]}}))

	// Tools, by the API.
	for _, tool := range []string{"web__leak", "web__fail", "prog__leak", "prog__large"} {
		call(tool, 200)
	}
	call("prog__fail", 502)
	for _, tool := range []string{"prog__crash", "broken__x", "absent__leak"} { // no tool of prog answers for a while after its crash
		call(tool, 503)
	}
	if a := call("absent__leak", 503); !strings.Contains(string(a.body), `NOT_THERE`) {
		t.Errorf("the missing secret is not named: %s", a.body)
	}

	// Tools, by code; and the environment, in all forms, in pieces, to both streams, to long outputs.
	run := func(route string, body map[string]any) result {
		t.Helper()
		a := saw(route, s.do("POST", "/api/threads/t/"+route, body))
		var r result
		a.into(t, &r)
		return r
	}
	run("execute_code", map[string]any{"language": "python", "timeout": 60, "redact_env": true, "code": `
import base64, json, os, sys, time
from helpers.call_mcp_tool import call_mcp_tool
for tool in ("web__leak", "web__fail", "prog__leak", "prog__fail", "prog__large", "broken__x", "absent__leak"):
    try:
        print(json.dumps(call_mcp_tool(tool, {}))[:5000])
    except Exception as error:
        print(tool, error, file=sys.stderr)
box = os.environ["BOX"]
print(box, base64.b64encode(box.encode()), box.encode().hex(), json.dumps(box))
for char in box:
    sys.stdout.write(char); sys.stdout.flush(); time.sleep(0.001)
raise SystemExit("ended with " + box)
`})
	long := `i=0; while [ $i -lt 40000 ]; do echo "$TOKEN $OWN $BOX"; i=$((i+1)); done; echo $TOKEN | base64 >&2; exit 3`
	r := run("exec", map[string]any{"command": long, "env_secrets": map[string]string{"TOKEN": "EXEC"}, "env": map[string]string{"OWN": c.all["REQUEST"]}, "redact_env": true})
	if r.ExitCode == nil || *r.ExitCode != 3 {
		t.Errorf("%+v", r)
	}
	for _, body := range []map[string]any{
		{"argv": []string{"/no/such/program"}, "env": map[string]string{"OWN": c.all["REQUEST"]}, "redact_env": true},
		{"command": "true", "env_secrets": map[string]string{"T": "HTTP"}},
		{"command": "true", "env_secrets": map[string]string{"T": "SKILL"}},
	} {
		if a := saw("a refused exec", s.do("POST", "/api/threads/t/exec", body)); a.status < 400 {
			t.Errorf("%v: %d %s", body, a.status, a.body)
		}
	}

	// Another exec finds no secret of those before: not in files, not in other processes.
	around := s.do("POST", "/api/threads/t/exec", map[string]any{"command": `cat /proc/[0-9]*/cmdline 2>/dev/null; grep -rhaE "canary" /mnt /tmp /run 2>/dev/null; true`, "redact_env": true})
	for _, name := range []string{"HTTP", "STDIO", "FILE", "SKILL"} {
		if bytes.Contains(around.body, []byte(c.all[name])) {
			t.Errorf("the sandbox has %s", name)
		}
	}
	c.none("what another exec sees", around.body)

	// Lists, records, metrics.
	for _, path := range []string{
		"/api/secrets", "/api/secrets/HTTP", "/api/mcp/servers", "/api/mcp/servers/prog/tools", "/api/mcp/servers/web/tools", "/api/mcp/drift", "/api/audit?limit=1000", "/api/threads", "/api/threads/t",
		"/api/threads/t/execs", "/api/threads/t/servers", "/api/threads/t/tools?detail=full", "/api/threads/t/prompt", "/api/threads/t/execs/" + r.ExecID, "/metrics", "/readyz", "/openapi.json",
	} {
		if a := saw(path, s.do("GET", path, nil)); a.status != 200 {
			t.Errorf("%s: %d", path, a.status)
		}
	}
	if hidden < 50 {
		t.Errorf("only %d times something was hidden: nobody has said the secrets", hidden)
	}

	processSecrets(t, c, s.cmd.Process.Pid)

	// All that is kept, also after the key was exchanged, and after the process was made to dump its stacks.
	if a := saw("rotate", s.do("POST", "/api/secrets/rotate", map[string]any{})); a.status != 200 || strings.Contains(string(a.body), `"renewed":0`) {
		t.Errorf("rotate: %d %s", a.status, a.body)
	}
	call("web__leak", 200)
	must(t, s.cmd.Process.Signal(syscall.SIGQUIT))
	<-s.done
	if !strings.Contains(s.log.String(), "goroutine ") {
		t.Error("there is no dump")
	}
	c.none("the server's log", []byte(s.log.String()))
	kept := redisText(t, redisURL)
	if !bytes.Contains(kept, []byte("tool_call")) || !bytes.Contains(kept, []byte(`"name":"HTTP"`)) {
		t.Error("the dump of Redis lacks what has to be there")
	}
	c.none("Redis", kept)
	if n := c.folder(s.data, c.none); n < 20 {
		t.Errorf("the data folder has %d files", n)
	}
	t.Logf("%d secrets in %d forms, hidden %d times; %d bytes in Redis, %d of log", len(c.all), len(formsOf("x+y00000000")), hidden, len(kept), len(s.log.String()))
	c.control(t, s.data)
}

// processSecrets looks at the command lines and environments of the server and of its children. The server's
// own environment has no stored secret, and a program of an MCP server only its own. A process of the
// sandbox has only the secrets given for all of them.
func processSecrets(t *testing.T, c *canaries, server int) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	must(t, err)
	for _, path := range all {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil || pid == os.Getpid() {
			continue
		}
		c.none(path, text)
		environ, err := os.ReadFile(filepath.Join(filepath.Dir(path), "environ"))
		if err != nil {
			continue
		}
		if bytes.Contains(text, []byte("leaky.py")) {
			environ = bytes.ReplaceAll(environ, []byte(c.all["STDIO"]), nil) // its own, as it is meant
		}
		// Of the sandbox, as it is meant: an exec, or an interpreter that waits.
		if bytes.Contains(environ, []byte("SKERRY_THREAD_ID=t\x00")) || bytes.Contains(text, []byte("\x00/tmp/code-")) {
			environ = bytes.ReplaceAll(environ, []byte(c.all["SANDBOX"]), nil)
		}
		c.none(fmt.Sprintf("the environment of %d (%.80q; the server is %d)", pid, text, server), environ)
	}
}

// control leaks on purpose: a search that finds nothing may be a search that looks nowhere.
func (c *canaries) control(t *testing.T, data string) {
	t.Helper()
	for form, text := range formsOf(c.all["HTTP"]) {
		path := filepath.Join(data, "leak")
		must(t, os.WriteFile(path, []byte("x"+text+"y"), 0o600))
		found := 0
		c.folder(data, func(_ string, text []byte) { found += len(c.leaks(text)) })
		if found == 0 {
			t.Errorf("a leak as %s is not found", form)
		}
		must(t, os.Remove(path))
	}
}
