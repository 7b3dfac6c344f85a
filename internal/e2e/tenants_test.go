package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// The names of what belongs to ann of the tenant red, and a text that is in all of it. The names may be echoed by
// an error, the text never.
const (
	redThread = "thread-of-red"
	redSkill  = "skill-of-red"
	redSecret = "TOKEN_OF_RED" //nolint:gosec // a name
	redText   = "written-in-red-ink"
	redFile   = "/mnt/user-data/workspace/" + redSkill + ".txt"
)

// caller is a key of the matrix.
type caller struct{ tenant, user, role, secret string }

func (c caller) String() string { return c.tenant + "/" + c.user + " (" + c.role + ")" }

// matrix is a server with two tenants, of which one has something of everything.
type matrix struct {
	*server
	callers []caller
	ids     map[string]string // by the name of a path's parameter

	mu    sync.Mutex
	calls map[string]int // guarded by mu
}

func (m *matrix) count(what string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls[what]++
}

// TestTenantMatrix calls every route of the document, the terminal and /mcp. It does so with every role of
// another tenant, of another user of the tenant, and of the user itself. What the rule of a route refuses is
// 403, before anything else. Resources of others are in no answer, list, stream, archive or replay.
// Afterwards all of them are as they were. A new route is in the document, and so in this test.
func TestTenantMatrix(t *testing.T) {
	t.Parallel()
	m := newMatrix(t)
	before := m.state()
	doc := m.document()
	var reads sync.WaitGroup
	atOnce := make(chan struct{}, 16)
	for _, op := range doc {
		for _, c := range m.callers {
			if op.method != http.MethodGet {
				m.call(op, c)
				continue
			}
			reads.Go(func() { // a stream is read for 10 s
				atOnce <- struct{}{}
				m.call(op, c)
				<-atOnce
			})
		}
	}
	m.idempotency()
	m.sockets()
	m.mcp()
	reads.Wait()
	if after := m.state(); after != before {
		t.Errorf("what red has is not as it was:\n%s\nbefore:\n%s", after, before)
	}
	t.Logf("%d routes × %d callers: %v", len(doc), len(m.callers), m.calls)
	if len(doc) < 80 || m.calls["refused by role"] < 200 || m.calls["not there"] < 150 {
		t.Errorf("the matrix is not whole: %d routes, %v", len(doc), m.calls)
	}
}

func newMatrix(t *testing.T, env ...string) *matrix {
	t.Helper()
	m := &matrix{server: start(t, options{env: env}), ids: map[string]string{}, calls: map[string]int{}}
	m.stop()
	key := func(tenant, user, role string, more ...string) string {
		args := append([]string{"keys", "create", "--data", m.data, "--tenant", tenant, "--user", user, "--role", role}, more...)
		out, err := exec.Command(filepath.Join(bin, "skerry"), args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return strings.TrimSpace(string(out))
	}
	for _, c := range []caller{
		{"red", "ann", "agent", ""}, {"red", "ann", "developer", ""}, {"red", "ann", "admin", ""}, {"red", "ann", "auditor", ""},
		{"red", "bob", "agent", ""}, {"red", "bob", "developer", ""},
		{"blue", "ann", "agent", ""}, {"blue", "ann", "developer", ""}, {"blue", "ann", "admin", ""}, {"blue", "ann", "auditor", ""},
		{"default", "ann", "admin", ""}, // the operator
	} {
		c.secret = key(c.tenant, c.user, c.role)
		m.callers = append(m.callers, c)
	}
	m.boot()
	t.Cleanup(func() { // what the callers made
		for _, c := range m.callers {
			for m.key = c.secret; c.role != "auditor"; {
				ids := m.threads()
				for _, id := range ids {
					if a := m.do("DELETE", "/api/threads/"+id, nil); a.status != 204 {
						t.Errorf("delete %s: %s", id, a.body)
					}
				}
				if len(ids) == 0 {
					break
				}
			}
		}
	})
	m.fill()
	return m
}

// fill makes something of everything for ann of red.
func (m *matrix) fill() {
	t := m.t
	m.key = m.callers[2].secret // the administrator is a developer and an agent, too
	m.ok(redThread, "echo "+redText+" > "+redFile)
	if a := m.do("PUT", "/api/threads/"+redThread+"/sandbox", map[string]any{"labels": map[string]string{"note": redText}}); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	run := m.run(redThread, "exec", map[string]any{"command": "echo " + redText + "; cat", "background": true, "timeout_s": 3000, "pty": map[string]int{"cols": 80, "rows": 24}})
	var ctx struct {
		ID string `json:"context_id"`
	}
	a := m.do("POST", "/api/threads/"+redThread+"/contexts", map[string]any{"language": "python"})
	a.into(t, &ctx)
	if a.status != 201 {
		t.Fatalf("context: %d %s", a.status, a.body)
	}
	skill := map[string]any{"name": redSkill + "-here", "description": "red ink " + redText, "body": redText}
	if a := m.do("POST", "/api/threads/"+redThread+"/skills", skill); a.status != 201 {
		t.Fatalf("skill: %d %s", a.status, a.body)
	}
	text := "---\nname: " + redSkill + "\ndescription: " + redText + "\n---\n" + redText + "\n"
	m.ok(redThread, "mkdir -p /tmp/s/"+redSkill+" && printf '%s' '"+strings.ReplaceAll(text, "'", "")+"' > /tmp/s/"+redSkill+"/SKILL.md && cd /tmp/s && python3 -m zipfile -c /mnt/user-data/workspace/x.skill "+redSkill)
	if a := m.do("POST", "/api/skills/install", map[string]any{"thread_id": redThread, "path": "/mnt/user-data/workspace/x.skill"}); a.status >= 300 {
		t.Fatalf("install: %d %s", a.status, a.body)
	}
	if a := m.do("PUT", "/api/secrets/"+redSecret, map[string]any{"value": redText}); a.status >= 300 {
		t.Fatalf("secret: %d %s", a.status, a.body)
	}
	var keys struct{ Items []struct{ ID string } }
	m.do("GET", "/api/keys", nil).into(t, &keys)
	m.ids = map[string]string{
		"thread": redThread, "exec": run.ExecID, "context": ctx.ID, "skill": redSkill, "id": keys.Items[0].ID, "name": redSkill, "plugin": redSkill, "command": "x",
		"secret": redSecret,
	}
}

var matrixTimes = regexp.MustCompile(`"last_[a-z_]+":"[^"]*"`) // reading is use

// state is what ann of red has.
func (m *matrix) state() string {
	m.key = m.callers[2].secret
	var out []string
	for _, path := range []string{
		"/api/threads/" + redThread + "/files?path=" + redFile, "/api/threads/" + redThread + "/contexts", "/api/threads/" + redThread + "/skills?query=" + redText,
		"/api/skills/" + redSkill, "/api/secrets",
	} {
		a := m.do("GET", path, nil)
		out = append(out, fmt.Sprintf("%s: %d %s", path, a.status, a.body))
	}
	var e result
	m.do("GET", "/api/threads/"+redThread+"/execs/"+m.ids["exec"], nil).into(m.t, &e)
	var keys struct{ Items []struct{ ID string } }
	m.do("GET", "/api/keys", nil).into(m.t, &keys)
	return matrixTimes.ReplaceAllString(strings.Join(append(out, e.Status, fmt.Sprint(keys.Items)), "\n"), "")
}

// operation is a route of the document.
type operation struct {
	method, path, id string
	roles            []string
	operator         bool
	query            []string // names of parameters
}

func (m *matrix) document() []operation {
	m.t.Helper()
	var doc struct {
		Paths map[string]map[string]struct {
			ID         string                      `json:"operationId"`
			Roles      []string                    `json:"x-skerry-roles"`
			Operator   bool                        `json:"x-skerry-operator"`
			Parameters []struct{ Name, In string } `json:"parameters"`
		}
	}
	a := m.do("GET", "/openapi.json", nil)
	a.into(m.t, &doc)
	if !bytes.Contains(a.body, []byte(`"x-skerry-roles"`)) {
		m.t.Fatal("the document says not who may call what")
	}
	var all []operation
	for path, verbs := range doc.Paths {
		for verb, op := range verbs {
			if op.Roles == nil {
				m.t.Errorf("%s %s: nothing says who may call it", verb, path)
			}
			o := operation{method: strings.ToUpper(verb), path: path, id: op.ID, roles: op.Roles, operator: op.Operator}
			for _, p := range op.Parameters {
				if p.In == "query" {
					o.query = append(o.query, p.Name)
				}
			}
			all = append(all, o)
		}
	}
	slices.SortFunc(all, func(a, b operation) int { // what ends a thread comes last
		if x, y := a.method == "DELETE", b.method == "DELETE"; x != y {
			if x {
				return 1
			}
			return -1
		}
		return strings.Compare(a.path+a.method, b.path+b.method)
	})
	return all
}

// bodies of requests that would do something, for red or for the sender.
var matrixBodies = map[string]any{
	"exec":            map[string]any{"command": "cat " + redFile + "; ls /mnt/skills/custom; env", "timeout_s": 30},
	"executeCode":     map[string]any{"language": "bash", "code": "cat " + redFile},
	"acquireSandbox":  map[string]any{},
	"execStdin":       map[string]any{"data": "x\n", "close": true},
	"execSignal":      map[string]any{"signal": "KILL"},
	"createContext":   nil,
	"writeFile":       map[string]any{"path": redFile, "content": "overwritten"},
	"editFile":        map[string]any{"path": redFile, "old": redText, "new": "overwritten"},
	"moveFile":        map[string]any{"from": redFile, "to": redFile + "2"},
	"makeFolder":      map[string]any{"path": "/mnt/user-data/workspace/d"},
	"downloadFiles":   map[string]any{"paths": []string{redFile}},
	"installSkill":    map[string]any{"thread_id": redThread, "path": "/mnt/user-data/workspace/x.skill"},
	"switchSkill":     map[string]any{"enabled": false},
	"runSkill":        map[string]any{"script": "scripts/x.py"},
	"callTool":        map[string]any{"tool": "x__y", "input": map[string]any{}},
	"createKey":       map[string]any{"name": "x", "user": "ann", "tenant": "red"},
	"changePlugin":    map[string]any{"enabled": false},
	"putArchive":      map[string]any{"no": "archive"},
	"putMCPServer":    map[string]any{"command": "true"},
	"addVirtualSkill": map[string]any{"name": "own", "description": "x", "body": "x"},
}

var matrixParameter = regexp.MustCompile(`\{([a-z]+)\}`)

func (m *matrix) request(ctx context.Context, op operation, c caller, header ...string) (answer, error) {
	path := matrixParameter.ReplaceAllStringFunc(op.path, func(p string) string {
		name := strings.Trim(p, "{}")
		if strings.HasPrefix(op.path, "/api/secrets/") {
			name = "secret"
		}
		if v := m.ids[name]; v != "" {
			return v
		}
		return "x"
	})
	values := url.Values{"path": {redFile}, "pattern": {redText}, "query": {"ink"}, "exec": {m.ids["exec"]}, "thread": {redThread}, "limit": {"50"}}
	for _, unwanted := range []string{"/api/threads", "/api/secrets", "/api/keys", "/api/skills", "/api/plugins"} {
		if op.path == unwanted {
			values = nil
		}
	}
	if strings.HasSuffix(op.path, "/archive") || strings.HasSuffix(op.path, "/list") || strings.HasSuffix(op.path, "/glob") || strings.HasSuffix(op.path, "/grep") {
		values = url.Values{"path": {"/mnt/user-data/workspace"}, "pattern": {map[bool]string{true: redText, false: "**"}[strings.HasSuffix(op.path, "/grep")]}}
	}
	maps.DeleteFunc(values, func(name string, _ []string) bool { return !slices.Contains(op.query, name) })
	query := "?" + values.Encode()
	var in io.Reader
	if op.method == "POST" || op.method == "PUT" {
		body, ok := matrixBodies[op.id]
		if !ok {
			body = map[string]any{}
		}
		raw, err := json.Marshal(body)
		if err != nil {
			return answer{}, err
		}
		in = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, op.method, m.url+path+query, in)
	if err != nil {
		return answer{}, err
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.secret != "" {
		req.Header.Set("X-API-Key", c.secret)
	}
	for _, h := range header {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if ctx.Err() != nil { // a stream without an end: what came is what counts
		err = nil
	}
	return answer{res.StatusCode, res.Header, raw}, err
}

// call makes one call of the matrix, and judges its answer.
func (m *matrix) call(op operation, c caller) {
	if len(op.roles) == 0 {
		m.count("for anyone")
		return
	}
	self := c.tenant == "red" && c.user == "ann"
	allowed := slices.Contains(op.roles, c.role) && (!op.operator || c.tenant == "default")
	if allowed && (op.operator || self && op.method != "GET" || c.tenant == "default") {
		m.count("allowed, not called") // it would do what it is for
		return
	}
	wait := time.Minute
	if op.method == "GET" {
		wait = 10 * time.Second
	}
	ctx, cancel := context.WithTimeout(m.t.Context(), wait)
	defer cancel()
	a, err := m.request(ctx, op, c)
	what := fmt.Sprintf("%s %s as %s: %d %.300s", op.method, op.path, c, a.status, a.body)
	switch {
	case err != nil && ctx.Err() == nil:
		m.t.Errorf("%s: %v", what, err)
	case !allowed:
		m.count("refused by role")
		if a.status != 403 || op.method != "HEAD" && (a.code() != "forbidden" || !strings.Contains(string(a.body), "it takes ")) {
			m.t.Errorf("%s; want 403 by its role", what)
		}
	case self:
		m.count("own")
		if a.status == 401 || a.status == 403 {
			m.t.Errorf("%s; it is the caller's own", what)
		}
	case c.tenant == "red" && (c.role == "admin" || c.role == "auditor"), op.id == "listAudit" && c.tenant == "red":
		m.count("own tenant")
	default:
		m.foreign(op, c, a, what)
	}
}

// foreign judges an answer to a caller to whom nothing of red's ann belongs.
func (m *matrix) foreign(op operation, c caller, a answer, what string) {
	if bytes.Contains(a.body, []byte(redText)) {
		m.t.Errorf("%s: it shows what is red's", what)
	}
	list := !strings.Contains(op.path, "{")
	named := bytes.Contains(a.body, []byte("of-red")) && op.id != "listThreads" // which may have one of the same name
	if list && op.method == "GET" && c.tenant != "red" && (named || bytes.Contains(a.body, []byte(`"tenant":"red"`)) || bytes.Contains(a.body, []byte(m.ids["id"]))) {
		m.t.Errorf("%s: it names what is red's", what)
	}
	switch {
	case a.status == 403 && op.id != "createKey": // which names another tenant
		m.t.Errorf("%s; what is others' is not there", what)
	case a.status == 401 || a.status >= 500 && a.status != 501:
		m.t.Errorf("%s", what)
	case a.status == 404:
		m.count("not there")
	case a.status < 300:
		m.count("its own")
	default:
		m.count("other refusals")
	}
}

// idempotency: the answer to a request is for its caller only, not even for another role of the same user.
func (m *matrix) idempotency() {
	op := operation{method: "POST", path: "/api/threads/{thread}/files/download", id: "downloadFiles"}
	make1 := operation{method: "POST", path: "/api/skills/install", id: "installSkill"}
	red := m.callers[2]
	for _, o := range []operation{op, make1} {
		seen := map[string]bool{}
		if a, err := m.request(m.t.Context(), o, red, "Idempotency-Key: shared"+o.id); err != nil || a.status >= 500 {
			m.t.Fatalf("%v %d %s", err, a.status, a.body)
		}
		for _, c := range m.callers {
			if c.tenant == "red" && c.user == "ann" && c.role != "agent" && c.role != "auditor" {
				continue
			}
			a, err := m.request(m.t.Context(), o, c, "Idempotency-Key: shared"+o.id)
			m.count("replays tried")
			own := c.tenant == "red" && c.user == "ann" && o.id == op.id && c.role == "agent"
			replayed := a.header.Get("Idempotent-Replayed") != "" && !seen[c.tenant+c.user]
			seen[c.tenant+c.user] = true
			if err != nil || !own && (replayed || bytes.Contains(a.body, []byte(redText))) {
				m.t.Errorf("%s as %s got the answer of another: %v %d %s", o.id, c, err, a.status, a.body)
			}
		}
	}
}

// sockets: the terminal of red's exec.
func (m *matrix) sockets() {
	for _, c := range m.callers {
		ctx, cancel := context.WithTimeout(m.t.Context(), time.Minute)
		conn, res, err := websocket.Dial(ctx, m.url+"/api/threads/"+redThread+"/pty?exec="+m.ids["exec"], &websocket.DialOptions{HTTPHeader: http.Header{"X-Api-Key": {c.secret}}})
		self := c.tenant == "red" && c.user == "ann"
		want := map[bool]int{true: 101, false: 404}[self]
		if c.role == "auditor" {
			want = 403
		}
		m.count("terminals")
		if res == nil || res.StatusCode != want {
			m.t.Errorf("terminal as %s: %v, %v; want %d", c, res, err, want)
		}
		if conn != nil {
			_ = conn.CloseNow()
		}
		cancel()
	}
}

// mcp: what a caller is offered over /mcp is its own.
func (m *matrix) mcp() {
	for _, c := range m.callers {
		for _, method := range []string{"tools/list", "resources/list", "prompts/list", "skills/list"} {
			body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"x","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`, method)
			req, err := http.NewRequestWithContext(m.t.Context(), "POST", m.url+"/mcp/"+redThread, strings.NewReader(body))
			must(m.t, err)
			req.Header = http.Header{
				"X-Api-Key": {c.secret}, "Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"},
				"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {method},
			}
			res, err := http.DefaultClient.Do(req)
			must(m.t, err)
			raw, err := io.ReadAll(res.Body)
			must(m.t, err)
			must(m.t, res.Body.Close())
			m.count("/mcp")
			self := c.tenant == "red" && c.user == "ann"
			switch {
			case c.role == "auditor":
				if res.StatusCode != 403 {
					m.t.Errorf("/mcp %s as %s: %d %s", method, c, res.StatusCode, raw)
				}
			case res.StatusCode != 200, !self && bytes.Contains(raw, []byte("of-red")), bytes.Contains(raw, []byte(redText)) && !self:
				m.t.Errorf("/mcp %s as %s: %d %s", method, c, res.StatusCode, raw)
			}
		}
	}
}
