// Package conformance_test checks programs that provide tool packs. README.md says what such a program has to do.
package conformance_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store"
	"github.com/skerry-sandbox/skerry/internal/tools/packs"
	"github.com/skerry-sandbox/skerry/internal/tools/packs/identity"
	packsv1 "github.com/skerry-sandbox/skerry/sdk/packs/v1"
)

const bearerKey = "sk_conformance"

type noKeys struct{}

func (noKeys) PutPackKey(context.Context, store.PackKeyRecord) error   { return nil }
func (noKeys) DeletePackKey(context.Context, string) error             { return nil }
func (noKeys) PackKeys(context.Context) ([]store.PackKeyRecord, error) { return nil, nil }

// server is a registry of packs behind a listener, as the API serves it.
type server struct {
	*packs.Registry
	t          *testing.T
	url        string
	authorized string // the file of SSH keys

	mu     sync.Mutex
	events []packs.Event
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{t: t, authorized: filepath.Join(t.TempDir(), "authorized_packs")}
	log := slog.New(slog.DiscardHandler)
	s.Registry = packs.New(packs.Options{
		Log: log, ServerID: "here", Version: "test", Keys: identity.New(s.authorized, noKeys{}, log), Recheck: 50 * time.Millisecond,
		Record: func(_ context.Context, e packs.Event) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.events = append(s.events, e)
		},
	})
	srv := s.unstarted()
	srv.Config.Protocols = &http.Protocols{}
	srv.Config.Protocols.SetUnencryptedHTTP2(true)
	srv.Start()
	t.Cleanup(func() { _ = s.Close(); srv.Close() })
	s.url = srv.URL
	return s
}

// unstarted returns a listener of the server, before it listens.
func (s *server) unstarted() *httptest.Server {
	handler := s.Handler()
	return httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		peer := packs.Peer{Source: "192.0.2.1", Host: r.Host, Unblock: packs.Unblock(http.NewResponseController(w))}
		if r.TLS != nil {
			peer.Certificate = r.TLS.PeerCertificates[0]
		}
		if r.Header.Get("Authorization") == "Bearer "+bearerKey {
			peer.Caller = &sandbox.Caller{Owner: sandbox.Owner{Tenant: "t", User: "ann"}, Role: sandbox.RolePack, KeyID: "k"}
		}
		handler.ServeHTTP(w, r.WithContext(packs.WithPeer(r.Context(), peer)))
	}))
}

// pack waits until the provider is connected.
func (s *server) pack() sandbox.ToolPack {
	s.t.Helper()
	var p sandbox.ToolPack
	eventually(s.t, "the pack connects", func() bool {
		for _, u := range s.Servers("t").List {
			if u.Name == "conformance" && u.Pack.Away() == nil {
				p = u.Pack
			}
		}
		return p != nil
	})
	return p
}

// connected starts a provider with a bearer key.
func connected(t *testing.T) (*server, sandbox.ToolPack) {
	t.Helper()
	s := newServer(t)
	run(t, s.url, "SKERRY_KEY="+bearerKey)
	return s, s.pack()
}

func call(ctx context.Context, p sandbox.ToolPack, tool, input string, progress func(sandbox.ToolProgress)) ([]byte, error) {
	if progress == nil {
		progress = func(sandbox.ToolProgress) {}
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return p.Call(ctx, sandbox.PackCall{Tool: tool, Input: json.RawMessage(input), Thread: sandbox.Thread{Owner: sandbox.Owner{Tenant: "t", User: "ann"}, ID: "x"}, Progress: progress})
}

// result makes a call that must have a result.
func result(t *testing.T, p sandbox.ToolPack, tool, input string) answer {
	t.Helper()
	raw, err := call(t.Context(), p, tool, input, nil)
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	return read(t, raw)
}

func sameJSON(t *testing.T, raw []byte, want string) bool {
	t.Helper()
	var a, b any
	must(t, json.Unmarshal([]byte(want), &b))
	return json.Unmarshal(raw, &a) == nil && reflect.DeepEqual(a, b)
}

// schema is what the suite looks at.
type schema struct {
	Type       string `json:"type"`
	Properties map[string]struct {
		Type any `json:"type"` // a name, or several of which one may be null
	} `json:"properties"`
	Required []string `json:"required"`
}

func (s schema) String() string {
	parts := []string{s.Type}
	for name, p := range s.Properties {
		kind := strings.NewReplacer("null ", "", " null", "").Replace(strings.Trim(fmt.Sprint(p.Type), "[]"))
		parts = append(parts, name+":"+kind)
	}
	slices.Sort(parts[1:])
	return strings.Join(parts, " ")
}

// TestManifest: what the program says of itself and its tools.
func TestManifest(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	run(t, s.url())
	x := s.next()
	m := x.welcome(limits())
	if m.GetPackId() != "conformance" || m.GetVersion() != "1.0.0" || m.GetDescription() != "What a provider promises" || m.GetMaxParallelCalls() != 4 {
		t.Errorf("%q %q %q %d", m.GetPackId(), m.GetVersion(), m.GetDescription(), m.GetMaxParallelCalls())
	}
	want := map[string]string{ // of the input, and of the output when there is a schema
		"echo": "object text:string", "add": "object a:integer b:integer -> object sum:integer", "fail": "object text:string", "crash": "object",
		"who": "object -> object tenant:string thread:string user:string", "steps": "object n:integer", "wait": "object ms:integer name:string",
		"noted": "object -> object names:array", "large": "object bytes:integer", "options": "object", "grow": "object", "spoil": "object",
	}
	tools := map[string]*packsv1.ToolDefinition{}
	for _, d := range m.GetTools() {
		tools[d.GetName()] = d
		var in, out schema
		must(t, json.Unmarshal([]byte(d.GetInputSchemaJson()), &in))
		got := in.String()
		if text := d.GetOutputSchemaJson(); text != "" {
			must(t, json.Unmarshal([]byte(text), &out))
			got += " -> " + out.String()
		}
		if got != want[d.GetName()] {
			t.Errorf("%s has the schemas %q, and not %q", d.GetName(), got, want[d.GetName()])
		}
		if len(in.Required) != len(in.Properties) {
			t.Errorf("%s requires %v of %v", d.GetName(), in.Required, in.Properties)
		}
	}
	if len(m.GetTools()) != len(want) {
		t.Errorf("%d tools, and not %d", len(m.GetTools()), len(want))
	}
	if got := tools["echo"].GetDescription(); got != "Returns a text" {
		t.Errorf("echo: %q", got)
	}
	o := tools["options"]
	if o.GetTitle() != "Has options" || o.GetTimeoutSeconds() != 2 || !slices.Equal(o.GetRequiredCapabilities(), []string{"crm"}) || o.GetDisclosure() != "hidden" || !sameJSON(t, []byte(o.GetAnnotationsJson()), `{"readOnlyHint":true}`) {
		t.Errorf("options: %v", o)
	}
}

// TestResults: text, structure, failures, progress and the caller pass as they are.
func TestResults(t *testing.T) {
	t.Parallel()
	_, p := connected(t)
	const text = "Grüße\n\"<&>\" \U0001f600"
	in, err := json.Marshal(map[string]string{"text": text})
	must(t, err)
	if a := result(t, p, "echo", string(in)); a.text() != text || a.IsError || a.Structured != nil {
		t.Errorf("echo: %+v", a)
	}
	if a := result(t, p, "add", `{"a":2,"b":40}`); !sameJSON(t, a.Structured, `{"sum":42}`) || !sameJSON(t, []byte(a.text()), `{"sum":42}`) {
		t.Errorf("add: %+v", a)
	}
	if a := result(t, p, "fail", string(in)); a.text() != text || !a.IsError {
		t.Errorf("fail: %+v", a)
	}
	if a := result(t, p, "crash", `{}`); !a.IsError || a.text() == "" {
		t.Errorf("crash: %+v", a)
	}
	if a := result(t, p, "who", `{}`); !sameJSON(t, a.Structured, `{"tenant":"t","user":"ann","thread":"x"}`) {
		t.Errorf("who: %s", a.Structured)
	}
	var heard []string
	raw, err := call(t.Context(), p, "steps", `{"n":3}`, func(g sandbox.ToolProgress) {
		heard = append(heard, fmt.Sprintf("%g of %g: %s", g.Progress, g.Total, g.Message))
	})
	if err != nil || read(t, raw).text() != "done" || strings.Join(heard, ", ") != "1 of 3: step 1, 2 of 3: step 2, 3 of 3: step 3" {
		t.Errorf("steps: %v %s %q", err, raw, heard)
	}
	if a := result(t, p, "large", `{"bytes":1048576}`); a.text() != strings.Repeat("x", 1<<20) {
		t.Errorf("large: %d bytes", len(a.text()))
	}
	if a := result(t, p, "large", `{"bytes":20971520}`); !a.IsError || !strings.Contains(a.text(), "16777216") {
		t.Errorf("a result that is too large: %.300s", a.text())
	}
}

// TestCancel: a caller that gives up ends the tool, and the stream goes on.
func TestCancel(t *testing.T) {
	t.Parallel()
	s, p := connected(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := call(ctx, p, "wait", `{"name":"given up","ms":600000}`, nil)
		ended <- err
	}()
	eventually(t, "the call runs", func() bool {
		i, err := s.Get(sandbox.Caller{Owner: sandbox.Owner{Tenant: "t"}}, "conformance")
		return err == nil && i.Running == 1
	})
	if a := result(t, p, "echo", `{"text":"beside it"}`); a.text() != "beside it" {
		t.Errorf("%+v", a)
	}
	cancel()
	<-ended
	eventually(t, "the tool noted it", func() bool {
		return sameJSON(t, result(t, p, "noted", `{}`).Structured, `{"names":["given up"]}`)
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.events) != 1 { // it connected, and nothing else
		t.Errorf("%+v", s.events)
	}
}

// TestReload: new tools are there at once, and those that the server refuses change nothing.
func TestReload(t *testing.T) {
	t.Parallel()
	_, p := connected(t)
	before, _ := p.List()
	if a := result(t, p, "spoil", `{}`); a.IsError || !strings.Contains(a.text(), "not a name") && !strings.Contains(a.text(), "broken") {
		t.Errorf("spoil: %+v", a)
	}
	if after, _ := p.List(); !reflect.DeepEqual(after, before) {
		t.Errorf("a refused manifest has changed the tools: %s", after)
	}
	if a := result(t, p, "grow", `{}`); a.text() != "reloaded" {
		t.Errorf("grow: %+v", a)
	}
	if after, _ := p.List(); !strings.Contains(string(after), `"grown"`) {
		t.Errorf("after a reload: %s", after)
	}
	if a := result(t, p, "grown", `{}`); a.text() != "grown" {
		t.Errorf("grown: %+v", a)
	}
}

// keyFile writes a private key as OpenSSH has it.
func keyFile(t *testing.T, dir, name string, private any) (file string, signer ssh.Signer) {
	t.Helper()
	block, err := ssh.MarshalPrivateKey(private, name)
	must(t, err)
	file = filepath.Join(dir, name)
	must(t, os.WriteFile(file, pem.EncodeToMemory(block), 0o600))
	signer, err = ssh.NewSignerFromKey(private)
	must(t, err)
	return file, signer
}

// TestCredentials: SSH keys of each type, a certificate, and a bearer key are taken. A wrong one ends the program.
func TestCredentials(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var lines []string
	files := map[string]string{}
	private := map[string]any{}
	var err error
	_, private["ed25519"], err = ed25519.GenerateKey(rand.Reader)
	must(t, err)
	private["ecdsa"], err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	private["rsa"], err = rsa.GenerateKey(rand.Reader, 3072)
	must(t, err)
	for name, key := range private {
		file, signer := keyFile(t, dir, name, key)
		files[name] = file
		lines = append(lines, `tenant="t" `+string(ssh.MarshalAuthorizedKey(signer.PublicKey())))
	}
	_, caKey, err := ed25519.GenerateKey(rand.Reader)
	must(t, err)
	_, ca := keyFile(t, dir, "ca", caKey)
	_, ownKey, err := ed25519.GenerateKey(rand.Reader)
	must(t, err)
	own, signer := keyFile(t, dir, "own", ownKey)
	cert := &ssh.Certificate{Key: signer.PublicKey(), CertType: ssh.UserCert, KeyId: "ci", ValidPrincipals: []string{"conformance"}, ValidBefore: ssh.CertTimeInfinity}
	must(t, cert.SignCert(rand.Reader, ca))
	must(t, os.WriteFile(own+"-cert.pub", ssh.MarshalAuthorizedKey(cert), 0o600))
	files["certificate"] = own
	lines = append(lines, `cert-authority,tenant="t" `+string(ssh.MarshalAuthorizedKey(ca.PublicKey())))
	for name, file := range files {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			must(t, os.WriteFile(s.authorized, []byte(strings.Join(lines, "")), 0o600))
			p := run(t, s.url, "SKERRY_SSH_KEY="+file)
			s.pack()
			p.drain()
			if code := p.code(); code != 0 {
				t.Errorf("it ended with %d", code)
			}
		})
	}
	t.Run("wrong", func(t *testing.T) {
		t.Parallel()
		s := newServer(t)
		p := run(t, s.url, "SKERRY_SSH_KEY="+files["ed25519"])
		if code := p.code(); code == 0 || !strings.Contains(p.printed(), "key") {
			t.Errorf("it ended with %d, and printed %q", code, p.printed())
		}
	})
}
