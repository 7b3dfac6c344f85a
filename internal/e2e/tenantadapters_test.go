package e2e

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/api/e2b"
	"github.com/skerry-sandbox/skerry/internal/api/rest"
)

// adapted is what ann of red has in the words of other products.
type adapted struct {
	*matrix
	sandbox, context, exec string // of E2B's API
	pid                    int
	key, address           string // of DeerFlow's gateway, and of the sandbox that it made for ann
}

// The sandbox and the thread that DeerFlow's gateway of red made for ann.
const (
	redGateway = "gateway-of-red"
	redBox     = `{"sandbox_id":"box-of-red","thread_id":"talk-of-red","user_id":"ann"}`
)

// TestTenantMatrixOfAdapters is TestTenantMatrix for the APIs of other products: every route that E2B's SDKs call, and those of DeerFlow and
// LibreChat, with every caller. A new route of E2B's is in the adapter's list, and so in here.
func TestTenantMatrixOfAdapters(t *testing.T) {
	whole(t, TestTenantMatrix)
	t.Parallel()
	m := &adapted{matrix: newMatrix(t, "SKERRY_E2B=true", "SKERRY_DEERFLOW_ENABLED=true", "SKERRY_LIBRECHAT_ENABLED=true")}
	m.make()
	before := m.had()
	routes := e2b.New(e2b.Options{}).Routes().Routes
	slices.SortStableFunc(routes, func(a, b rest.AdapterRoute) int { // what ends something comes last
		return map[bool]int{false: -1, true: 1}[a.Method == http.MethodDelete] - map[bool]int{false: -1, true: 1}[b.Method == http.MethodDelete]
	})
	for _, route := range routes {
		for _, c := range m.callers {
			m.route(route, c)
		}
	}
	m.gateways()
	m.addresses()
	m.librechat()
	if after := m.had(); after != before {
		t.Errorf("what red has is not as it was:\n%s\nbefore:\n%s", after, before)
	}
	for _, c := range m.callers {
		m.as(c, func() {
			if ids := m.threads(); slices.Contains(ids, m.sandbox) && (c.tenant != "red" || c.user != "ann") {
				t.Errorf("%s has a thread with the name of red's: %v", c, ids)
			}
		})
	}
	t.Logf("%d routes × %d callers: %v", len(routes), len(m.callers), m.calls)
	if len(routes) < 80 || m.calls["not there"] < 150 || m.calls["own"] < 6 || m.calls["refused by role"] < 100 {
		t.Errorf("the matrix is not whole: %d routes, %v", len(routes), m.calls)
	}
}

// as does something as a caller.
func (m *adapted) as(c caller, do func()) {
	m.matrix.key = c.secret
	do()
}

// make makes a sandbox by each API for ann of red, with something of hers in it.
func (m *adapted) make() {
	t := m.t
	ann := m.callers[0]
	var made struct{ SandboxID string }
	a := m.e2b(ann, "POST", "/sandboxes", `{"templateID":"base","timeout":3000,"metadata":{"note":"`+redText+`"}}`)
	a.into(t, &made)
	if m.sandbox = made.SandboxID; a.status != 201 || m.sandbox == "" {
		t.Fatalf("%d %s", a.status, a.body)
	}
	m.matrix.key = ann.secret
	m.ok(m.sandbox, "echo "+redText+" > "+redFile)
	m.exec = m.run(m.sandbox, "exec", map[string]any{"command": "echo " + redText + "; cat", "background": true, "timeout_s": 3000}).ExecID
	var listed struct{ Processes []struct{ Pid int } }
	a = m.e2b(ann, "POST", "/process.Process/List", `{}`)
	a.into(t, &listed)
	if len(listed.Processes) != 1 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	m.pid = listed.Processes[0].Pid
	var context struct{ ID string }
	a = m.e2b(ann, "POST", "/contexts", `{"language":"python"}`)
	a.into(t, &context)
	if m.context = context.ID; m.context == "" {
		t.Fatalf("%d %s", a.status, a.body)
	}
	m.key, m.address = m.gateway(m.callers[2])
	if a := m.deerflow("POST", m.address+"/v1/file/write", "", `{"file":"`+redFile+`","content":"`+redText+`"}`); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
}

// gateway makes a key for DeerFlow in the tenant of an administrator, and the sandbox of redBox with it.
func (m *adapted) gateway(admin caller) (key, address string) {
	m.t.Helper()
	var made struct{ Secret string }
	m.as(admin, func() {
		m.do("POST", "/api/keys", map[string]any{"name": "deerflow", "user": redGateway, "act_for": true}).into(m.t, &made)
	})
	var box struct {
		URL string `json:"sandbox_url"`
	}
	a := m.deerflow("POST", "/deerflow/api/sandboxes", made.Secret, redBox)
	a.into(m.t, &box)
	if a.status != 200 || !strings.HasPrefix(box.URL, m.url+"/deerflow/sandboxes/sk_") {
		m.t.Fatalf("%d %s", a.status, a.body)
	}
	return made.Secret, strings.TrimPrefix(box.URL, m.url)
}

// had is what ann of red has.
func (m *adapted) had() string {
	m.matrix.key = m.callers[0].secret
	var out []string
	for _, path := range []string{"/files?path=" + redFile, "/contexts", ""} {
		a := m.do("GET", "/api/threads/"+m.sandbox+path, nil)
		out = append(out, fmt.Sprintf("%s: %d %s", path, a.status, a.body))
	}
	var e result
	m.do("GET", "/api/threads/"+m.sandbox+"/execs/"+m.exec, nil).into(m.t, &e)
	a := m.do("GET", "/api/threads/talk-of-red/files?path="+redFile, nil)
	b := m.deerflow("GET", m.address+"/v1/sandbox", "", "")
	out = append(out, e.Status, fmt.Sprintf("DeerFlow: %d %s %d", a.status, a.body, b.status))
	return matrixTimes.ReplaceAllString(strings.Join(out, "\n"), "")
}

// e2b sends a request as an SDK of E2B does.
func (m *adapted) e2b(c caller, method, path, body string, header ...string) answer {
	m.t.Helper()
	header = append([]string{"Content-Type: application/json", "E2b-Sandbox-Id: " + m.sandbox, "X-API-Key: e2b_" + hex.EncodeToString([]byte(c.secret))}, header...)
	return m.send(method, path, body, header...)
}

// deerflow sends a request as DeerFlow does.
func (m *adapted) deerflow(method, path, key, body string) answer {
	m.t.Helper()
	header := []string{"Content-Type: application/json"}
	if key != "" {
		header = append(header, "X-API-Key: "+key)
	}
	return m.send(method, path, body, header...)
}

func (m *adapted) send(method, path, body string, header ...string) answer {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, m.url+path, strings.NewReader(body))
	must(m.t, err)
	for _, h := range header {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		m.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err != nil {
		m.t.Fatalf("%s %s: %v, after %s", method, path, err, raw)
	}
	return answer{res.StatusCode, res.Header, raw}
}

// e2bBody is the body of a request that would do something, in JSON.
func (m *adapted) e2bBody(path string) (body string, stream bool) {
	process := fmt.Sprintf(`{"process":{"pid":%d}`, m.pid)
	bodies := map[string]string{
		"/process.Process/Start":                  `{"process":{"cmd":"/bin/bash","args":["-l","-c","cat ` + redFile + `"]}}`,
		"/process.Process/Connect":                process + `}`,
		"/process.Process/Update":                 process + `,"pty":{"size":{"cols":1,"rows":1}}}`,
		"/process.Process/SendInput":              process + `,"input":{"stdin":"eAo="}}`,
		"/process.Process/SendSignal":             process + `,"signal":"SIGNAL_SIGKILL"}`,
		"/process.Process/CloseStdin":             process + `}`,
		"/filesystem.Filesystem/Move":             `{"source":"` + redFile + `","destination":"` + redFile + `2"}`,
		"/filesystem.Filesystem/MakeDir":          `{"path":"` + redFile + `.d"}`,
		"/filesystem.Filesystem/ListDir":          `{"path":"/home/user","depth":1}`,
		"/filesystem.Filesystem/WatchDir":         `{"path":"/home/user"}`,
		"/filesystem.Filesystem/CreateWatcher":    `{"path":"/home/user"}`,
		"/filesystem.Filesystem/Stat":             `{"path":"` + redFile + `"}`,
		"/filesystem.Filesystem/Remove":           `{"path":"` + redFile + `"}`,
		"/execute":                                `{"code":"print(open('` + redFile + `').read())","language":"python"}`,
		"/contexts":                               `{"language":"python"}`,
		"/files":                                  "overwritten",
		"/sandboxes/:thread/timeout":              `{"timeout":1}`,
		"/filesystem.Filesystem/RemoveWatcher":    `{"watcherId":"x"}`,
		"/filesystem.Filesystem/GetWatcherEvents": `{"watcherId":"x"}`,
	}
	body, ok := bodies[path]
	if !ok {
		body = "{}"
	}
	return body, slices.Contains([]string{"/process.Process/Start", "/process.Process/Connect", "/filesystem.Filesystem/WatchDir"}, path)
}

// route sends a request of E2B's about red's sandbox, and judges the answer.
func (m *adapted) route(route rest.AdapterRoute, c caller) {
	path := strings.NewReplacer(":thread", m.sandbox, ":context", m.context, "*rest", "x").Replace(route.Path)
	self := c.tenant == "red" && c.user == "ann" && c.role != "auditor"
	making := strings.HasSuffix(route.Path, "/sandboxes") && route.Method == http.MethodPost
	list := strings.HasSuffix(route.Path, "/sandboxes") && route.Method == http.MethodGet
	if self && !list || making && c.role != "auditor" {
		m.count("allowed, not called")
		return
	}
	body, stream := m.e2bBody(route.Path)
	kind := "application/json"
	switch {
	case route.Method == http.MethodGet || route.Method == http.MethodDelete:
		body = ""
	case stream:
		kind = "application/connect+json"
		body = string(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body)))) + body //nolint:gosec // it is short
	case route.Path == "/files":
		kind = "application/octet-stream"
	}
	if route.Path == "/files" {
		path += "?path=" + redFile
	}
	a := m.e2b(c, route.Method, path, body, "Content-Type: "+kind)
	what := fmt.Sprintf("%s %s as %s: %d %.300s", route.Method, route.Path, c, a.status, a.body)
	switch shows := bytes.Contains(a.body, []byte(redText)) || list && bytes.Contains(a.body, []byte(m.sandbox)); {
	case self:
		m.count("own")
		if a.status != 200 || !shows {
			m.t.Errorf("%s; it is the caller's own", what)
		}
	case shows:
		m.t.Errorf("%s: it shows what is red's", what)
	case c.role == "auditor":
		m.count("refused by role")
		if a.status != 403 {
			m.t.Errorf("%s; want 403 by its role", what)
		}
	case list, route.Path == "/templates" && route.Method == http.MethodGet: // the server's, for all
		m.count("its own")
		if a.status != 200 {
			m.t.Error(what)
		}
	case a.status == 501:
		m.count("not supported")
	case a.status == 503 && bytes.Contains(a.body, []byte("the sandbox was not found")), a.status == 404, a.status == 502, stream && a.status == 200 && bytes.Contains(a.body, []byte(`"error":{"code":"`)):
		m.count("not there")
	default:
		m.t.Errorf("%s; what is others' is not there", what)
	}
}

// gateways: each caller asks for the sandbox that DeerFlow's gateway of red made, and so does the gateway of blue.
func (m *adapted) gateways() {
	blue, at := m.gateway(m.callers[8])
	if at == m.address {
		m.t.Error("the sandboxes of two tenants have one address")
	}
	keys := map[string]string{"nobody": "", "blue's gateway": blue}
	for _, c := range m.callers {
		keys[c.String()] = c.secret
	}
	for name, key := range keys {
		for _, q := range []struct {
			method, path, body string
			want               []int
		}{
			{"GET", "/deerflow/api/sandboxes", "", []int{200}},
			{"GET", "/deerflow/api/sandboxes/box-of-red", "", []int{404}},
			{"POST", "/deerflow/api/sandboxes", redBox, []int{403}},
			{"DELETE", "/deerflow/api/sandboxes/box-of-red", "", []int{200}}, // as DeerFlow's own does for what is not there
		} {
			a := m.deerflow(q.method, q.path, key, q.body)
			want := q.want
			switch {
			case name == "nobody":
				want = []int{401}
			case strings.Contains(name, "auditor"):
				want = []int{200, 403, 404} // a list of what it has, which is nothing
			case name == "blue's gateway": // which has a sandbox of that name
				want = []int{200}
			}
			m.count("gateways")
			if !slices.Contains(want, a.status) || bytes.Contains(a.body, []byte(m.address)) || bytes.Contains(a.body, []byte(redText)) {
				m.t.Errorf("%s %s as %s: %d %s; want %v, and nothing of red's", q.method, q.path, name, a.status, a.body, want)
			}
		}
	}
	if a := m.deerflow("GET", "/deerflow/api/sandboxes/box-of-red", m.key, ""); a.status != 200 || !bytes.Contains(a.body, []byte(m.address)) {
		m.t.Errorf("red's own gateway: %d %s", a.status, a.body)
	}
}

// addresses: what blue's gateway can do at an address of its own is not done in red's sandbox.
func (m *adapted) addresses() {
	_, at := m.gateway(m.callers[8])
	key := strings.TrimPrefix(at, "/deerflow/sandboxes/")
	for path, body := range map[string]string{
		"/v1/file/read": `{"file":"` + redFile + `"}`, "/v1/file/list": `{"path":"/mnt/user-data","recursive":true}`, "/v1/file/grep": `{"path":"/mnt/user-data","pattern":"` + redText[:7] + `"}`,
		"/v1/shell/exec": `{"command":"cat ` + redFile + `; ls -R /mnt/user-data"}`, "/v1/bash/exec": `{"command":"cat ` + redFile + `"}`, "/v1/file/find": `{"path":"/mnt/user-data","glob":"*"}`,
	} {
		m.count("addresses")
		if a := m.deerflow("POST", at+path, "", body); a.status >= 500 || bytes.Contains(a.body, []byte(redText)) || bytes.Contains(a.body, []byte(redSkill+".txt\n")) {
			m.t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	// The key of an address is good for its thread alone, whatever names the thread.
	for _, a := range []answer{
		m.e2b(caller{secret: key}, "GET", "/sandboxes/"+m.sandbox, ""), m.e2b(caller{secret: key}, "POST", "/process.Process/List", "{}"), m.e2b(caller{secret: key}, "GET", "/sandboxes", ""),
		m.deerflow("GET", "/api/threads/"+redThread, key, ""), m.deerflow("POST", "/deerflow/api/sandboxes", key, redBox),
	} {
		if a.status != 403 {
			m.t.Errorf("with the key of an address: %d %s", a.status, a.body)
		}
	}
}

// librechat: each caller asks for a file that ann of red has uploaded, by all names that it has.
func (m *adapted) librechat() {
	const at = "/librechat/v1"
	ask := func(c caller, method, path, kind, body string) answer {
		return m.send(method, at+path, body, "Content-Type: "+kind, "X-API-Key: "+c.secret)
	}
	form := "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"red.txt\"\r\n\r\n" + redText + "\r\n--x--\r\n"
	var up struct {
		Session string `json:"storage_session_id"`
		Files   []struct {
			ID string `json:"fileId"`
		}
	}
	if ask(m.callers[0], "POST", "/upload", "multipart/form-data; boundary=x", form).into(m.t, &up); len(up.Files) != 1 {
		m.t.Fatalf("%+v", up)
	}
	file := up.Session + "/" + up.Files[0].ID
	ref := `{"lang":"bash","code":"cat red.txt","session_id":"of-another-one-000000","files":[{"id":"` + up.Files[0].ID + `","storage_session_id":"` + up.Session + `","name":"red.txt"}]}`
	for _, c := range append([]caller{{secret: "sk_" + strings.Repeat("0", 64), role: "nobody"}}, m.callers...) {
		self := c.tenant == "red" && c.user == "ann" && c.role != "auditor"
		for _, q := range []struct{ method, path, body string }{
			{"GET", "/files/" + up.Session, ""}, {"GET", "/files/" + up.Session + "?detail=full", ""}, {"GET", "/download/" + file, ""},
			{"GET", "/sessions/" + up.Session + "/objects/" + up.Files[0].ID, ""}, {"POST", "/exec", ref}, {"DELETE", "/files/" + file, ""},
		} {
			if self && q.method != "GET" {
				continue
			}
			a := ask(c, q.method, q.path, "application/json", q.body)
			want := []int{200, 404} // a list of what it has, which is nothing
			switch {
			case c.role == "nobody":
				want = []int{401}
			case c.role == "auditor":
				want = []int{403}
			case self:
				want = []int{200}
			}
			shows := bytes.Contains(a.body, []byte(redText)) || a.status == 200 && bytes.Contains(a.body, []byte(up.Files[0].ID))
			if m.count("librechat"); !slices.Contains(want, a.status) || shows != self {
				m.t.Errorf("%s %s as %s: %d %s; want %v", q.method, q.path, c, a.status, a.body, want)
			}
		}
	}
	if a := ask(m.callers[0], "GET", "/download/"+file, "", ""); a.status != 200 || string(a.body) != redText {
		m.t.Errorf("the file of ann: %d %s", a.status, a.body)
	}
}
