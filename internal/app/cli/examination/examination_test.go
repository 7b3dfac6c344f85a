package examination

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/app/cli/exit"
	"github.com/skerry-sandbox/skerry/internal/audit/signing"
	"github.com/skerry-sandbox/skerry/internal/config"
	"github.com/skerry-sandbox/skerry/internal/observe/doctor"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/template"
)

// patient is an examination of a machine on which nothing is configured.
func patient(t *testing.T, change func(*examination)) *examination {
	t.Helper()
	e := &examination{cfg: config.Default(), mcpWait: 500 * time.Millisecond}
	e.cfg.Data, e.cfg.Listen = t.TempDir(), "127.0.0.1:0"
	if change != nil {
		change(e)
	}
	if !e.usable() {
		t.Fatal(e.problems)
	}
	done, err := e.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		done()
		if _, err := os.Stat(e.scratch); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", e.scratch, err)
		}
	})
	return e
}

// finds runs one check and looks that its lines are as wanted, in any order: "state name|part of the rest".
func finds(t *testing.T, within time.Duration, run func(context.Context, *doctor.Report), want ...string) {
	t.Helper()
	lines := doctor.Run(t.Context(), []doctor.Check{{Name: "check", Within: within, Run: run}}, doctor.Output{})
	for _, w := range want {
		head, part, _ := strings.Cut(w, "|")
		found := false
		for _, l := range lines {
			found = found || strings.TrimSpace(string(l.State)+" "+l.Name) == head && strings.Contains(l.Detail+" "+l.Fix, part) && (l.State == doctor.OK || l.Fix != "")
		}
		if !found {
			t.Errorf("no line %q in %+v", w, lines)
		}
	}
	if len(lines) != len(want) {
		t.Errorf("%d lines, want %d: %+v", len(lines), len(want), lines)
	}
}

// deafSocket is a unix socket that takes connections and never answers.
func deafSocket(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "deaf") // short: a socket's path has 108 bytes
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	group.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			group.Go(func() { _, _ = io.Copy(io.Discard, conn); _ = conn.Close() })
		}
	})
	t.Cleanup(func() { _ = l.Close(); group.Wait(); _ = os.RemoveAll(dir) })
	return path
}

// TestDoctorDocker: an engine that is away, or hangs, is a problem when it is asked for, and soon.
func TestDoctorDocker(t *testing.T) {
	docker := func(e *examination) func(context.Context, *doctor.Report) {
		return func(ctx context.Context, r *doctor.Report) { templateChecks{e}.driver(ctx, r, "docker") }
	}
	away := filepath.Join(t.TempDir(), "none.sock")
	finds(t, time.Minute, docker(patient(t, func(e *examination) { e.cfg.Driver, e.cfg.Docker.Address = "docker", away })), "problem docker|start dockerd")
	deaf := deafSocket(t)
	began := time.Now()
	hung := patient(t, func(e *examination) { e.cfg.Driver, e.cfg.Docker.Address = "docker", deaf })
	finds(t, 200*time.Millisecond, docker(hung), "problem docker|in time")
	finds(t, time.Second, templateChecks{hung}.runtimes, "problem|without a driver")
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("took %s", took)
	}
	oci := func(e *examination) { e.drivers["oci"].set(nil, nil) }
	unused := patient(t, func(e *examination) { e.cfg.Driver, e.cfg.Docker.Address = "oci", away })
	oci(unused)
	finds(t, time.Minute, docker(unused), "ok docker|not needed")
	auto := patient(t, func(e *examination) { e.cfg.Driver, e.cfg.Docker.Address = "auto", deaf })
	oci(auto)
	finds(t, 200*time.Millisecond, docker(auto), "warning docker|and so oci is")
}

// TestDoctorPools: what waits for threads is told, and more than there is room for is a warning.
func TestDoctorPools(t *testing.T) {
	list := []template.Template{{Name: "plain"}, {Name: "warm", Pool: &sandbox.Pool{Target: 3}, Limits: template.Limits{Memory: 512 << 20}}}
	of := func(most int) func(context.Context, *doctor.Report) {
		e := patient(t, func(e *examination) { e.cfg.MaxSandboxes = most })
		return func(_ context.Context, r *doctor.Report) { templateChecks{e}.pools(r, list) }
	}
	finds(t, time.Minute, of(3), "ok warm pool|3 sandboxes wait for threads; each may use up to 512 MiB")
	finds(t, time.Minute, of(2), "ok warm pool|3 sandboxes", "warning pools|set max_sandboxes to more than 3")
}

// TestDoctorData: a data folder that is none, and one with a damaged journal; the journal itself is left as it is.
func TestDoctorData(t *testing.T) {
	file := filepath.Join(t.TempDir(), "data")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	finds(t, time.Minute, patient(t, func(e *examination) { e.cfg.Data = file }).dataFolder, "problem|is no folder")

	e := patient(t, nil)
	finds(t, time.Minute, e.state, "ok|embedded", "ok keys|none is wanted")
	e = patient(t, func(e *examination) { e.cfg.Listen = "0.0.0.0:0" })
	finds(t, time.Minute, e.state, "ok|embedded", "problem keys|skerry keys create --admin")
	e = patient(t, nil)
	journal, damaged := filepath.Join(e.cfg.Data, "state.jsonl"), "{\n{\n"
	if err := os.WriteFile(journal, []byte(damaged), 0o600); err != nil {
		t.Fatal(err)
	}
	finds(t, time.Minute, e.state, "problem journal|line 1 is damaged")
	if text, err := os.ReadFile(journal); err != nil || string(text) != damaged {
		t.Errorf("the journal is %q, %v", text, err)
	}
}

// TestDoctorRedis: a missing Redis is a problem, in time and without its password.
func TestDoctorRedis(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	e := patient(t, func(e *examination) { e.cfg.Redis = "redis://me:hunter2-hunter2@" + addr })
	finds(t, time.Minute, e.state, "problem redis|does not answer")
	e = patient(t, func(e *examination) { e.cfg.Redis = "redis://me:hunter2-hunter2@host:port:2" })
	var shown bytes.Buffer
	out := newDoctorOutput(&shown, io.Discard, false)
	e.hideSecrets(out)
	out.lines(doctor.Run(t.Context(), []doctor.Check{{Name: "state", Within: time.Minute, Run: e.state}}, doctor.Output{}))
	out.lines([]doctor.Line{{Check: "x", Detail: "an engine says redis://me:hunter2-hunter2@" + addr + "\x1b[2J"}})
	if text := shown.String(); !strings.Contains(text, "problem  state redis") || strings.Contains(text, "hunter2") || strings.Contains(text, "\x1b") {
		t.Errorf("%s", text)
	}
}

// TestDoctorAudit: the key that signs the log, where it may not be and who may not read it, and sinks that are away.
func TestDoctorAudit(t *testing.T) {
	dir := t.TempDir()
	key := filepath.Join(dir, "keys", "audit.pem")
	of := func(change func(e *examination)) func(context.Context, *doctor.Report) {
		return auditChecks{patient(t, func(e *examination) {
			e.cfg.Audit.SigningKeyFile = key
			change(e)
		})}.audit
	}
	nothing := func(*examination) {}
	finds(t, time.Minute, of(nothing), "ok signing key|there is no "+key+" yet", "ok sinks|none")
	if _, err := os.Stat(key); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("doctor made a key: %v", err)
	}
	finds(t, time.Minute, of(func(e *examination) { e.cfg.Audit.SigningKeyFile = filepath.Join(e.cfg.Data, "keys", "audit.pem") }),
		"problem signing key|name a file outside of it", "ok sinks|")
	if _, _, err := signing.OpenFile(key, filepath.Join(dir, "data")); err != nil {
		t.Fatal(err)
	}
	finds(t, time.Minute, of(nothing), "ok signing key|mode 0600; keep a copy of "+signing.PublicPath(key), "ok sinks|")
	if err := os.Chmod(key, 0o644); err != nil { //nolint:gosec // what is to be found
		t.Fatal(err)
	}
	finds(t, time.Minute, of(nothing), "problem signing key|chmod 600", "ok sinks|")
	finds(t, time.Minute, of(func(e *examination) { e.cfg.Audit.SigningKeyFile = "" }), "warning signing key|is not signed", "ok sinks|")
	finds(t, time.Minute, of(func(e *examination) { e.signingKeyErr = errors.New("no key") }), "problem signing key|openssl", "ok sinks|")
	finds(t, time.Minute, of(func(e *examination) {
		e.cfg.Audit.Signer, e.cfg.Audit.PublicKeyFile = "/bin/false", signing.PublicPath(key)
	}),
		"warning signing key|does not sign", "ok sinks|")

	var methods []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		methods = append(methods, r.Method)
		w.WriteHeader(http.StatusMethodNotAllowed)
	}))
	defer srv.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	sinks := func(e *examination) {
		e.signingKeyErr = errors.New("no key")
		e.cfg.Audit.Webhook, e.cfg.Audit.WebhookSecret, e.cfg.Audit.WebhookAddresses = srv.URL+"/in?token=hunter2", "0123456789abcdef", []string{"127.0.0.1"}
		e.cfg.Audit.Syslog = "tcp://" + l.Addr().String()
	}
	finds(t, time.Minute, of(sinks), "problem signing key|", "ok webhook|answers", "ok syslog|takes connections")
	if strings.Join(methods, " ") != "HEAD" {
		t.Errorf("the webhook got %v", methods)
	}
	finds(t, time.Minute, of(func(e *examination) { sinks(e); e.cfg.Audit.Syslog = "udp://" + l.Addr().String() }), "problem signing key|", "ok webhook|", "ok syslog|UDP")
	srv.Close()
	_ = l.Close()
	var shown bytes.Buffer
	lines := doctor.Run(t.Context(), []doctor.Check{{Name: "audit", Within: time.Minute, Run: of(sinks)}}, doctor.Output{})
	newDoctorOutput(&shown, io.Discard, false).lines(lines)
	if text := shown.String(); !strings.Contains(text, "warning  audit webhook: the audit webhook does not answer: ") || !strings.Contains(text, "warning  audit syslog: ") || strings.Contains(text, "hunter2") {
		t.Errorf("%s", text)
	}
}

// TestDoctorTools: files that are broken, and MCP servers that hang, fail or are wrongly configured: each has its line, and none
// keeps the others from having theirs.
func TestDoctorTools(t *testing.T) {
	e := patient(t, nil)
	write := func(name, text string) {
		t.Helper()
		file := filepath.Join(e.cfg.Data, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	finds(t, time.Minute, toolChecks{e}.extensions, "ok|there is no ")
	finds(t, time.Minute, toolChecks{e}.egress, "ok|has a way out")
	write("extensions_config.json", `{"mcpServers": {
		"deaf": {"command": "sleep", "args": ["1000"]}, "ends": {"command": "false"}, "wrong": {"command": ""},
		"boxed": {"command": "x", "sandbox": {"egress": ["api.example.com"]}}, "lost": {"command": "x", "sandbox": {"egress": ["10.0.0.1"]}}}}`)
	write("extensions_config.d/acme/ann.json", `{"skills": {"pdf": {"enabled": false}}}`)
	write("extensions_config.d/acme/bob.json", `{"skills": [`)
	finds(t, time.Minute, toolChecks{e}.extensions, "warning acme/bob|", "ok|2 files of users")
	finds(t, time.Minute, toolChecks{e}.egress, "warning lost|sandbox.egress", "ok|1 host and nothing else: api.example.com")
	e.server.set(nil, errors.New("no driver"))
	began := time.Now()
	finds(t, time.Minute, toolChecks{e}.mcpServers, "warning deaf|", "warning ends|", "warning wrong|command", "warning boxed|sandboxes do not start here", "warning lost|")
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("took %s", took)
	}
	write("extensions_config.json", `{"mcpServers": `)
	finds(t, time.Minute, toolChecks{e}.extensions, "problem|mend the file")
}

// TestDoctorSkills: without any sandbox their files are looked at all the same, those of users, too.
func TestDoctorSkills(t *testing.T) {
	dir := t.TempDir()
	skillFolder(t, dir, "public/good")
	if err := os.MkdirAll(filepath.Join(dir, "public/bad"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "public/bad/SKILL.md"), []byte("no frontmatter"), 0o600); err != nil {
		t.Fatal(err)
	}
	e := patient(t, func(e *examination) { e.cfg.Skills, e.cfg.Plugins.Path = dir, dir })
	list := filepath.Join(e.cfg.Data, "tenants/acme/users/ann/skills.json")
	if err := errors.Join(os.MkdirAll(filepath.Dir(list), 0o755), os.WriteFile(list, []byte("["), 0o600)); err != nil {
		t.Fatal(err)
	}
	e.server.set(nil, errors.New("no driver"))
	finds(t, time.Minute, toolChecks{e}.skills, "warning bad|does not load", "warning acme/ann|is broken", "ok|1 load, 1 do not")
}

// TestDoctorReadyz: what a server says of itself is shown beside.
func TestDoctorReadyz(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, `{"ready":false,"checks":[{"name":"state","ok":true},{"name":"driver","ok":false,"detail":"gone"}]}`)
	}))
	e := patient(t, func(e *examination) { e.address = srv.URL + "/" })
	finds(t, time.Minute, toolChecks{e}.readyz, "ok state|ready", "problem driver|gone", "problem|is not ready")
	srv.Close()
	finds(t, time.Minute, toolChecks{e}.readyz, "problem|does not answer")
	http.DefaultClient.CloseIdleConnections()
}

// TestDoctorConfiguration: a configuration that is wrong ends with its problems, and the exit code says so.
func TestDoctorConfiguration(t *testing.T) {
	var shown bytes.Buffer
	e := &examination{cfg: config.Default()}
	e.cfg.Driver, e.cfg.Listen = "podman", "here"
	err := e.run(t.Context(), newDoctorOutput(&shown, io.Discard, true))
	var answer struct {
		Serves bool
		Checks []doctor.Line
	}
	if e := json.Unmarshal(shown.Bytes(), &answer); e != nil || answer.Serves || len(answer.Checks) != 2 || answer.Checks[0].State != doctor.Problem {
		t.Errorf("%v: %s", e, &shown)
	}
	var code exit.Code
	if !errors.As(err, &code) || code != 1 {
		t.Error(err)
	}
}

// skillFolder makes the folder of a skill.
func skillFolder(t *testing.T, dir, name string) {
	t.Helper()
	folder := filepath.Join(dir, name)
	text := "---\nname: " + filepath.Base(name) + "\ndescription: does it\n---\nRead.\n"
	if err := errors.Join(os.MkdirAll(folder, 0o755), os.WriteFile(filepath.Join(folder, "SKILL.md"), []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
}
