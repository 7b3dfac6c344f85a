package hub

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/excerpt"
)

func TestBrokenFile(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"{\n  \"mcpServers\": {\n    \"a\": {,}\n  }\n}": "line 3, column 11",
		`{"mcpServers": [1]}`:                            "mcpServers is not an object",
		`{"mcpServers": {"a":{}}`:                        "ends too early",
		`[]`:                                             "want an object",
		"{}\n{}":                                         "line 2, column 1: invalid character",
		`{"mcpServers":{"a":{"command":"x"},"a":{}}}`: "has a name twice",
		"{\"a\":\xff}": "not UTF-8",
		"{\n \"mcpServers\": {},\n \"x\": tru\n}": "line 3",
		strings.Repeat("[", 20000):                "",
	} {
		r := open(t, text)
		err := r.ConfigError()
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "extensions_config.json: ") {
			t.Errorf("%.40s: %v, want %q", text, err, want)
		}
		if err != nil && strings.Contains(excerpt.Detail(err), filepath.Dir(r.path)) {
			t.Errorf("a host path: %v", err)
		}
		if set, err := r.Catalog.Tools(context.Background(), alice); err != nil || len(set.Tools) != 0 {
			t.Errorf("%v, %d tools", err, len(set.Tools))
		}
		if err := r.Servers.PutServer(context.Background(), "b", []byte(`{"command":"true"}`)); sandbox.KindOf(err) != sandbox.Conflict {
			t.Errorf("a put into a broken file: %v", err)
		}
		if now, _ := os.ReadFile(r.path); string(now) != text {
			t.Errorf("the broken file was changed: %s", now)
		}
	}
}

// TestHotReload: a change counts at once, a broken file keeps the last good one, and servers that did
// not change keep their process.
func TestHotReload(t *testing.T) {
	t.Parallel()
	r := open(t, "")
	if r.ConfigError() != nil {
		t.Fatal(r.ConfigError())
	}
	version := r.Version()
	bin := testBinary(t)
	server := `{"command":"` + bin + `","args":["test-server"]}`
	r.write(`{"mcpServers":{"a":` + server + `}}`)
	if r.Version() == version {
		t.Error("Version did not see the new file")
	}
	pid := r.pid("a")
	r.write(`{"mcpServers":{"a":`)
	if r.pid("a") != pid || r.ConfigError() == nil {
		t.Errorf("a broken file: %v", r.ConfigError())
	}
	r.write(`{"other":{"x":1},"mcpServers":{"b":` + server + `, "a" : ` + server + `}}`)
	if r.pid("a") != pid || r.ConfigError() != nil {
		t.Errorf("a new neighbour: %v", r.ConfigError())
	}
	r.pid("b")
	r.write(`{"mcpServers":{"a":{"args":["test-server"],"command":"` + bin + `","timeout":5000,"disabledTools":["json"],"tools":{"fail":{"disclosure":"hidden"}}}}}`)
	if r.pid("a") != pid {
		t.Error("other terms took the connection down")
	}
	r.fails("a__json", "", sandbox.NotFound)
	r.fails("a__fail", "", sandbox.NotFound)
	r.write(`{"mcpServers":{"a":{"command":"` + bin + `","args":["test-server","noisy"]}}}`)
	if r.pid("a") == pid {
		t.Error("another command, the same process")
	}
	r.ok("a__json", "")
	r.fails("b__echo", "", sandbox.NotFound)
	if err := os.Remove(r.path); err != nil {
		t.Fatal(err)
	}
	r.fails("a__echo", "", sandbox.NotFound)
}

const stored = `{
  "skills": {"x": true},
  "mcpServers": {
    "one": {"command": "true", "env": {"TOKEN": "${SECRET}", "B": "plain-secret"}, "future": [1, 2]},
    "two": {"type": "http", "url": "http://127.0.0.1:1/", "headers": {"Authorization": "Bearer abcdefgh"}}
  },
	"zebra": 1.50
}
`

func TestAdministration(t *testing.T) {
	t.Parallel()
	r := open(t, stored)
	ctx := context.Background()
	configs, err := r.Servers.ServerConfigs(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(configs["one"]); got != `{"command":"true","env":{"TOKEN":"***","B":"***"},"future":[1,2]}` {
		t.Error(got)
	}
	if got := string(configs["two"]); strings.Contains(got, "abcdefgh") {
		t.Error(got)
	}
	for body, want := range map[string]string{
		`{"command":"x","env":{"NEW":"***"}}`: "env.NEW", `{"command":""}`: "command", `{}`: "command", `{"url":"ftp://x"}`: "url",
		`{"url":"http://x","headers":{"A B":"c"}}`: "headers.A B", `{"command":"x","timeout":"soon"}`: "timeout", `{"command":"x","scope":"all"}`: "scope",
		`[]`: "object", `{"command":"x","timeout":1}`: "timeout", `{"command":"x","env":{"A":"1","A":"***"}}`: "env", `nonsense`: "object",
	} {
		if err := r.Servers.PutServer(ctx, "one", []byte(body)); sandbox.KindOf(err) != sandbox.Invalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", body, err)
		}
	}
	if err := r.Servers.PutServer(ctx, "a/b", []byte(`{"command":"x"}`)); sandbox.KindOf(err) != sandbox.Invalid {
		t.Error(err)
	}
	if now, _ := os.ReadFile(r.path); string(now) != stored {
		t.Errorf("a refused change has changed the file: %s", now)
	}
	if err := r.Servers.PutServer(ctx, "one", []byte(`{"command":"false","env":{"TOKEN":"***","B":"new"}}`)); err != nil {
		t.Fatal(err)
	}
	if err := r.Servers.PutServer(ctx, "three", []byte(`{"command":"true","args":["${SECRET}"]}`)); err != nil {
		t.Fatal(err)
	}
	if err := r.Servers.PutServer(ctx, "th-ree", []byte(`{"command":"true"}`)); err != nil {
		t.Fatal(err)
	}
	if err := r.Servers.PutServer(ctx, "th_ree", []byte(`{"command":"true"}`)); sandbox.KindOf(err) != sandbox.Conflict || !strings.Contains(err.Error(), "th-ree") {
		t.Error(err)
	}
	if err := r.Servers.DeleteServer(ctx, "two"); err != nil {
		t.Fatal(err)
	}
	if err := r.Servers.DeleteServer(ctx, "two"); sandbox.KindOf(err) != sandbox.NotFound {
		t.Error(err)
	}
	if err := r.Servers.ReconnectServer(ctx, "two"); sandbox.KindOf(err) != sandbox.NotFound {
		t.Error(err)
	}
	now, err := os.ReadFile(r.path)
	if err != nil {
		t.Fatal(err)
	}
	want := `{
  "skills": {"x": true},
  "mcpServers": {
    "one": {
      "command": "false",
      "env": {
        "TOKEN": "${SECRET}",
        "B": "new"
      }
    },
    "three": {
      "command": "true",
      "args": [
        "${SECRET}"
      ]
    },
    "th-ree": {
      "command": "true"
    }
  },
	"zebra": 1.50
}
`
	if string(now) != want {
		t.Errorf("the file is now\n%s", now)
	}
	if info, _ := os.Stat(r.path); info.Mode().Perm() != 0o600 {
		t.Errorf("mode %s", info.Mode())
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(r.path), ".*")); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}

func TestFirstServerOfANewFile(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "{}", "{\"a\":1}", `{"mcpServers":null}`, "{\n}\n", `{"mcpServers":{}}`} {
		r := open(t, text)
		for _, name := range []string{"x", `y "z"`} {
			if err := r.Servers.PutServer(context.Background(), name, []byte(`{"command":"true"}`)); err != nil {
				t.Errorf("%q: %v", text, err)
			}
		}
		for _, name := range []string{"x", `y "z"`} {
			if err := r.Servers.DeleteServer(context.Background(), name); err != nil {
				t.Errorf("%q: %v", text, err)
			}
		}
		if out, _ := os.ReadFile(r.path); !json.Valid(out) {
			t.Errorf("%q: %s", text, out)
		}
	}
}

func TestServerTools(t *testing.T) {
	t.Parallel()
	r := open(t, withServers(`"x":`+testServer+`,"bad":{"command":"no-such"},"off":{"command":"true","enabled":false}`))
	admin := sandbox.Caller{Owner: alice.Owner, Role: sandbox.RoleAdmin, Operator: true}
	list, err := r.Servers.ServerTools(context.Background(), admin, "x")
	if err != nil || len(list) != 12 || list[0].Name != "blocks" {
		t.Errorf("%v: %d tools", err, len(list))
	}
	for name, kind := range map[string]sandbox.Kind{"bad": sandbox.Unavailable, "off": sandbox.Conflict, "none": sandbox.NotFound} {
		if _, err := r.Servers.ServerTools(context.Background(), admin, name); sandbox.KindOf(err) != kind {
			t.Errorf("%s: %v", name, err)
		}
	}
	pid := r.pid("x")
	if err := r.Servers.ReconnectServer(context.Background(), "x"); err != nil || r.pid("x") == pid {
		t.Errorf("reconnect: %v", err)
	}
}
