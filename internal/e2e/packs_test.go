package e2e

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/crypto/ssh"

	"github.com/skerry-sandbox/skerry/sdk/go/packs"
)

type leadName struct {
	Name string `json:"name" jsonschema:"whom to look for"`
}

type foundLead struct {
	Email string `json:"email"`
	For   string `json:"for"`
}

// leads is a pack with a tool that finds, and one that deletes and needs a capability.
func leads(t *testing.T, tools ...string) *packs.Pack {
	t.Helper()
	p := packs.New("crm", "1.0.0")
	for _, name := range append([]string{"find_lead"}, tools...) {
		must(t, packs.Tool(p, name, "Finds a customer lead by name", func(ctx context.Context, in leadName) (foundLead, error) {
			if in.Name == "" {
				return foundLead{}, fmt.Errorf("a lead has a name")
			}
			if in.Name == "slow" {
				<-ctx.Done()
				return foundLead{}, ctx.Err()
			}
			packs.Progress(ctx, 1, 1, "found "+in.Name)
			c := packs.CallerOf(ctx)
			return foundLead{in.Name + "@example.com", c.Tenant + "/" + c.User + "/" + c.Thread}, nil
		}))
	}
	must(t, packs.Tool(p, "delete_lead", "Deletes a lead", func(context.Context, leadName) (string, error) { return "deleted", nil }, packs.Requires("destructive")))
	return p
}

// provide serves a pack until stop is called, or the test ends. It returns once the server has it.
func (s *server) provide(p *packs.Pack, credential packs.Credential) (stop func()) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	connected, ended := make(chan struct{}, 100), make(chan error, 1)
	go func() {
		ended <- p.Serve(ctx, packs.Server{URL: s.url, Credential: credential, Log: slog.New(slog.DiscardHandler), Connected: func() { connected <- struct{}{} }})
	}()
	done := false
	stop = func() {
		if !done {
			done = true
			cancel()
			<-ended
		}
	}
	s.t.Cleanup(stop)
	select {
	case <-connected:
	case err := <-ended:
		done = true
		s.t.Fatalf("%v\n%s", err, s.log)
	case <-time.After(time.Minute):
		s.t.Fatalf("the pack is not connected within a minute:\n%s", s.log)
	}
	return stop
}

// TestPacks: a Go program gives agents its functions as tools. They are listed, found and called by HTTP, by /mcp and by a
// typed wrapper from code; policy, capabilities and the audit log count for them as for any tool. The tools of a program
// that goes stay listed and are unavailable, and a new manifest is told.
func TestPacks(t *testing.T) {
	t.Parallel()
	s := start(t, options{})
	pack := leads(t)
	stop := s.provide(pack, nil)
	s.acquire("t", "direct")
	call := func(tool, name string) answer {
		return s.do("POST", "/api/threads/t/tools/call", map[string]any{"tool": tool, "input": map[string]any{"name": name}})
	}
	if a := call("crm__find_lead", "Ada"); a.status != 200 || !strings.Contains(string(a.body), `"email":"Ada@example.com","for":"default/local/t"`) {
		t.Fatalf("HTTP: %d %s", a.status, a.body)
	}
	if a := call("crm__find_lead", ""); a.status != 200 || !strings.Contains(string(a.body), "a lead has a name") || !strings.Contains(string(a.body), `"is_error":true`) {
		t.Errorf("a failure of the tool: %d %s", a.status, a.body)
	}
	if a := s.do("POST", "/api/threads/t/tools/call", map[string]any{"tool": "crm__find_lead", "input": map[string]any{"name": 5}}); a.status != 422 && a.status != 400 {
		t.Errorf("wrong arguments: %d %s", a.status, a.body)
	}
	if a := s.do("GET", "/api/threads/t/tools?query=customer+lead", nil); !strings.Contains(string(a.body), "find_lead") {
		t.Errorf("search: %s", a.body)
	}
	if a := s.do("GET", "/api/threads/t/servers", nil); !strings.Contains(string(a.body), `"transport":"pack"`) {
		t.Errorf("servers: %s", a.body)
	}
	for language, code := range map[string]string{
		"python":     "from servers.crm import find_lead\nprint(find_lead(name='Bo')['email'])",
		"typescript": "import { findLead } from './servers/crm';\nconst lead = await findLead({ name: 'Bo' });\nconsole.log(lead.email);",
	} {
		if r := s.run("t", "execute_code", map[string]any{"language": language, "code": code}); r.Stdout != "Bo@example.com\n" {
			t.Errorf("%s: %+v", language, r)
		}
	}
	s.packOverMCP(pack)
	if n, m := len(s.records("action=tool_call&thread=t&tool=crm__find_lead", "attempt")), len(s.records("action=tool_call&thread=t&tool=crm__find_lead", "result")); n == 0 || n != m {
		t.Errorf("%d attempts and %d results are recorded", n, m)
	}
	put := s.do("PUT", "/api/policy", map[string]any{"text": "version: 1\ndefault: allow\nrules:\n- {id: no-crm, effect: deny, match: {server: crm}, when: args.name == 'Eve'}\n"})
	if put.status != 200 {
		t.Fatalf("%d %s", put.status, put.body)
	}
	if a := call("crm__find_lead", "Eve"); !strings.Contains(string(a.body), "no-crm") {
		t.Errorf("policy: %d %s", a.status, a.body)
	}
	s.do("PUT", "/api/policy", map[string]any{"text": "version: 1\ndefault: allow\n"})

	stop()
	if a := call("crm__find_lead", "Ada"); a.code() != "unavailable" || !strings.Contains(string(a.body), "crm") {
		t.Errorf("a pack that went: %d %s", a.status, a.body)
	}
	if a := s.do("GET", "/api/threads/t/servers", nil); !strings.Contains(string(a.body), `"state":"unavailable"`) || !strings.Contains(string(a.body), `"tool_count":3`) {
		t.Errorf("servers: %s", a.body)
	}
	s.provide(pack, nil)
	if a := call("crm__find_lead", "Ada"); a.status != 200 {
		t.Errorf("a pack that is back: %d %s", a.status, a.body)
	}
	var list struct {
		Items []struct{ ID, State, Identity string }
	}
	s.do("GET", "/api/packs", nil).into(t, &list)
	if len(list.Items) != 1 || list.Items[0].ID != "crm" || list.Items[0].State != "connected" {
		t.Errorf("%+v", list)
	}
	if a := s.do("GET", "/api/packs/crm", nil); !strings.Contains(string(a.body), `"required_capabilities":["destructive"]`) || !strings.Contains(string(a.body), `"timeout_s":30`) {
		t.Errorf("%s", a.body)
	}
}

// packOverMCP calls a tool of the pack by /mcp, and then gives the pack another tool, of which the client is told.
func (s *server) packOverMCP(pack *packs.Pack) {
	t := s.t
	t.Helper()
	changed := make(chan struct{}, 100)
	progress := make(chan string, 100)
	session := s.mcpClient("/mcp/t", &mcp.ClientOptions{
		ToolListChangedHandler:      func(context.Context, *mcp.ToolListChangedRequest) { changed <- struct{}{} },
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { progress <- r.Params.Message },
	})
	if names := toolNames(t, session); !slices.Contains(names, "crm__find_lead") {
		t.Fatalf("/mcp lists %q", names)
	}
	res, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "crm__find_lead", Arguments: map[string]any{"name": "Cy"}, Meta: mcp.Meta{"progressToken": "p"}})
	raw, _ := json.Marshal(res)
	if err != nil || !strings.Contains(string(raw), `"email":"Cy@example.com"`) {
		t.Errorf("/mcp: %v %s", err, raw)
	}
	if got := <-progress; got != "found Cy" {
		t.Errorf("progress %q", got)
	}
	must(t, packs.Tool(pack, "count_leads", "Counts", func(context.Context, struct{}) (string, error) { return "2", nil }))
	must(t, pack.Reload(t.Context()))
	<-changed
	eventually(t, "the new tool is listed", func() bool { return slices.Contains(toolNames(t, session), "crm__count_leads") })
}

// TestPackCall: `skerry packs call` tries a tool in a thread, with policy and audit as for any call. A thread of its own is
// gone afterwards.
func TestPackCall(t *testing.T) {
	t.Parallel()
	s := start(t, options{})
	s.provide(leads(t), nil)
	call := func(stdin string, args ...string) (int, string, string) {
		return cli(t, stdin, append([]string{"packs", "call", "crm", "--server", s.url}, args...)...)
	}
	file := filepath.Join(t.TempDir(), "lead.json")
	must(t, os.WriteFile(file, []byte(`{"name": "Ada"}`+"\n"), 0o600))
	for _, input := range []string{`{"name": "Ada"}`, "@" + file, "-"} {
		code, out, errs := call(`{"name": "Ada"}`, "find_lead", "--thread", "mine", "--input", input)
		if code != 0 || out != `{"email":"Ada@example.com","for":"default/local/mine"}`+"\n" || errs != "1 of 1: found Ada\n" {
			t.Errorf("%s: %d %q %q", input, code, out, errs)
		}
	}
	code, out, errs := call("", "find_lead", "--input", `{"name": "Bo"}`, "--json")
	var res struct {
		StructuredContent foundLead
	}
	if err := json.Unmarshal([]byte(out), &res); err != nil || code != 0 {
		t.Fatalf("%d %q %q: %v", code, out, errs, err)
	}
	thread, ok := strings.CutPrefix(res.StructuredContent.For, "default/local/")
	if !ok || !strings.HasPrefix(thread, "packs-call-") || res.StructuredContent.Email != "Bo@example.com" {
		t.Errorf("%q", out)
	}
	if a := s.do("GET", "/api/threads/"+thread, nil); a.code() != "not_found" {
		t.Errorf("the thread of the call: %d %s", a.status, a.body)
	}
	if n := len(s.records("action=tool_call&tool=crm__find_lead&thread="+thread, "result")); n != 1 {
		t.Errorf("%d records of the call", n)
	}
	s.do("PUT", "/api/policy", map[string]any{"text": "version: 1\ndefault: allow\nrules:\n- {id: no-crm, effect: deny, match: {server: crm}, when: args.name == 'Eve'}\n"})
	for _, c := range []struct {
		tool, input string
		code        int
		says        string
	}{
		{"find_lead", `{"name": ""}`, 1, "skerry: a lead has a name\n"},
		{"find_lead", `{"name": 5}`, 1, "input.name got number"},
		{"find_lead", `{"name": "Eve"}`, 1, "no-crm"},
		{"find_lead", `[]`, 2, "--input wants a JSON object"},
		{"find_lead", "@" + file + ".none", 2, "no such file"},
		{"lose_lead", `{}`, 3, `skerry: there is no tool "crm.lose_lead"`},
	} {
		if code, out, errs := call("", c.tool, "--input", c.input); code != c.code || out != "" || !strings.Contains(errs, c.says) {
			t.Errorf("%+v: %d %q %q", c, code, out, errs)
		}
	}
	if code, _, errs := cli(t, "", "packs", "call", "--server", s.url, "erp", "find"); code != 3 || !strings.Contains(errs, `no pack "erp"`) {
		t.Errorf("%d %q", code, errs)
	}
}

// TestPackCallers: with keys, only a key with the role pack provides packs, and it does nothing else. Callers see only the
// tools for which they have all capabilities. What a revoked key provides ends within 5 s, with the calls on it.
func TestPackCallers(t *testing.T) {
	t.Parallel()
	s := start(t, options{})
	as := func(secret, method, path string, body any) answer {
		other := *s
		other.key = secret
		return other.do(method, path, body)
	}
	key := func(by, role string, capabilities ...string) (secret, id string) {
		var made struct{ ID, Secret string }
		as(by, "POST", "/api/keys", map[string]any{"name": role, "user": role, "role": role, "capabilities": capabilities}).into(t, &made)
		return made.Secret, made.ID
	}
	admin, _ := key("", "admin")
	agent, _ := key(admin, "agent")
	able, _ := key(admin, "developer", "destructive")
	secret, id := key(admin, "pack")
	for _, bad := range []packs.Credential{nil, packs.BearerKey(agent), packs.BearerKey("sk_" + strings.Repeat("0", 64))} {
		if err := leads(t).Serve(t.Context(), packs.Server{URL: s.url, Credential: bad, Log: slog.New(slog.DiscardHandler)}); err == nil {
			t.Error("a pack without a good credential was taken")
		}
	}
	s.provide(leads(t), packs.BearerKey(secret))
	for _, path := range []string{"/api/threads", "/api/packs", "/api/skills", "/api/audit"} {
		if a := as(secret, "GET", path, nil); a.status != 403 {
			t.Errorf("a key for packs may GET %s: %d %s", path, a.status, a.body)
		}
	}
	list := func(secret string) string {
		return string(as(secret, "GET", "/api/threads/t/tools?query=lead", nil).body)
	}
	if got := list(agent); !strings.Contains(got, "find_lead") || strings.Contains(got, "delete_lead") {
		t.Errorf("an agent without the capability sees %s", got)
	}
	if got := list(able); !strings.Contains(got, "delete_lead") {
		t.Errorf("an agent with the capability sees %s", got)
	}
	del := map[string]any{"tool": "crm__delete_lead", "input": map[string]any{"name": "x"}}
	if a := as(agent, "POST", "/api/threads/t/tools/call", del); a.status != 404 {
		t.Errorf("without the capability: %d %s", a.status, a.body)
	}
	if a := as(able, "POST", "/api/threads/t/tools/call", del); a.status != 200 {
		t.Errorf("with the capability: %d %s", a.status, a.body)
	}
	ended := make(chan answer, 1)
	caller := *s
	caller.key = agent
	go func() {
		a, _ := caller.request("POST", "/api/threads/t/tools/call", map[string]any{"tool": "crm__find_lead", "input": map[string]any{"name": "slow"}})
		ended <- a
	}()
	eventually(t, "the call runs", func() bool { return strings.Contains(string(as(admin, "GET", "/api/packs", nil).body), `"running":1`) })
	began := time.Now()
	if a := as(admin, "DELETE", "/api/keys/"+id, nil); a.status != 204 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	a := <-ended
	if a.code() != "unavailable" || !strings.Contains(string(a.body), "revoked") {
		t.Errorf("a call whose pack lost its key: %d %s", a.status, a.body)
	}
	t.Logf("the call ended %s after its key was revoked", time.Since(began))
}

// TestPackKeys: a program proves who it is by an SSH key that the operator has added by the command line, and is
// disconnected when the key is deleted.
func TestPackKeys(t *testing.T) {
	t.Parallel()
	s := start(t, options{})
	other := *s
	var made struct{ Secret string }
	s.do("POST", "/api/keys", map[string]any{"name": "a", "user": "ann", "role": "admin"}).into(t, &made)
	s.key = made.Secret
	file := filepath.Join(s.data+".keys", "pack")
	_, private, err := ed25519.GenerateKey(rand.Reader)
	must(t, err)
	block, err := ssh.MarshalPrivateKey(private, "")
	must(t, err)
	signer, err := ssh.NewSignerFromSigner(private)
	must(t, err)
	must(t, os.WriteFile(file, pem.EncodeToMemory(block), 0o600))
	must(t, os.WriteFile(file+".pub", append(bytes.TrimSpace(ssh.MarshalAuthorizedKey(signer.PublicKey())), " ci\n"...), 0o600))
	skerry := func(args ...string) (string, error) {
		cmd := exec.Command(filepath.Join(bin, "skerry"), append(args, "--server", s.url)...)
		cmd.Env = append(os.Environ(), "SKERRY_API_KEY="+s.key)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	bad := packs.Server{URL: s.url, Credential: packs.SSHKeyFile(file), Log: slog.New(slog.DiscardHandler)}
	if err := leads(t).Serve(t.Context(), bad); err == nil || !strings.Contains(err.Error(), "not among the keys") {
		t.Errorf("a key that was not added: %v", err)
	}
	if out, err := skerry("packs", "keys", "add", file); err == nil || !strings.Contains(out, "private key") {
		t.Errorf("a private key: %v %s", err, out)
	}
	added, err := skerry("packs", "keys", "add", file+".pub", "--packs", "crm", "--tenant", "default")
	must(t, err)
	s.provide(leads(t), packs.SSHKeyFile(file))
	for command, want := range map[string]string{"packs list": "SSH key SHA256:", "packs inspect crm": "find_lead", "packs keys list": "ci"} {
		if out, err := skerry(strings.Fields(command)...); err != nil || !strings.Contains(out, want) {
			t.Errorf("%s: %v %s", command, err, out)
		}
	}
	call := func() answer {
		return s.do("POST", "/api/threads/t/tools/call", map[string]any{"tool": "crm__find_lead", "input": map[string]any{"name": "Ada"}})
	}
	if a := call(); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	out2, err := skerry("packs", "keys", "rm", strings.TrimSpace(strings.TrimPrefix(added, "added ")))
	if err != nil {
		t.Fatalf("%v %s", err, out2)
	}
	eventually(t, "the pack of a deleted key is gone", func() bool { return call().code() == "unavailable" })
	if n := len(s.records("action=pack_key", "result")); n != 2 {
		t.Errorf("%d records of changed keys, want 2", n)
	}
	if n := len(s.records("action=pack", "result")); n < 3 {
		t.Errorf("%d records of the pack, want at least that it was refused, connected and ended", n)
	}
	if a := other.do("GET", "/api/packs/keys", nil); a.status != 401 {
		t.Errorf("without a key: %d", a.status)
	}
}
