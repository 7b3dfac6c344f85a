package hub

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/excerpt"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/serverconfig"
)

// someSecrets are the values of secrets: "user:name" for a user's own, "name" for those of all.
type someSecrets struct {
	mu     sync.Mutex
	values map[string]string
}

func (s *someSecrets) set(name, value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values[name] = value
}

func (s *someSecrets) ForServer(_ context.Context, a sandbox.SecretAsker, name string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v, ok := s.values[a.User+":"+name]; ok && !a.NotOwn && a.User != "" {
		return v, nil
	}
	if v, ok := s.values[name]; ok && !a.OwnOnly {
		return v, nil
	}
	return "", sandbox.Errorf(sandbox.NotFound, "there is no secret %q", name)
}

const (
	crmToken = "crm-0123456789-abcdef"
	envToken = "env-9876543210-zyxwvu"
)

func withSecrets(values map[string]string) (*someSecrets, func(*Options)) {
	s := &someSecrets{values: values}
	return s, func(o *Options) { o.Secrets = s }
}

// The process has the value; its answers, errors and the configuration do not, in any form.
func TestSecretOfAProgram(t *testing.T) {
	t.Parallel()
	_, with := withSecrets(map[string]string{"TOKEN": envToken})
	r := open(t, withServers(`"s":{"command":"%BIN%","args":["test-server"],"env":{"T":"${secret:TOKEN}","DIR":"/srv/public-folder"}}`), with)
	if got := r.ok("s__env", `{"name":"DIR"}`); got != `"/srv/public-folder"` {
		t.Errorf("what is no secret is hidden: %s", got)
	}
	if got := r.ok("s__env", `{"name":"T"}`); got != `"[redacted]"` {
		t.Errorf("T is %s", got)
	}
	if got := r.ok("s__env", `{"name":"NOT_SET"}`); got != `""` {
		t.Errorf("the control: %s", got)
	}
	for name, form := range map[string]string{
		"plain": envToken, "base64": base64.StdEncoding.EncodeToString([]byte("user:" + envToken)), "hex": hex.EncodeToString([]byte(envToken)),
		"json": `{\"token\":\"` + envToken + `\"}`, "escaped": strings.Replace(envToken, "e", `\\u0065`, 1),
	} {
		res, err := r.call("s__echo", `{"message":"`+form+`"}`)
		if err != nil {
			t.Fatal(err)
		}
		for what, text := range map[string]string{"result": string(res.Result), "raw": string(res.Raw)} {
			if name != "escaped" && !strings.Contains(text, "[redacted]") || strings.Contains(text, envToken) || strings.Contains(text, hex.EncodeToString([]byte(envToken))) || strings.Contains(text, form) && name != "escaped" || !json.Valid([]byte(text)) {
				t.Errorf("%s, %s: %s", name, what, text)
			}
		}
	}
	configs, err := r.Servers.ServerConfigs(t.Context())
	if err != nil || strings.Contains(string(configs["s"]), envToken) {
		t.Errorf("%s, %v", configs["s"], err)
	}
}

// A secret that is not there is an error of each call, which names it; when it is set, the next call works.
func TestMissingSecret(t *testing.T) {
	t.Parallel()
	values, with := withSecrets(map[string]string{})
	r := open(t, withServers(`"s":{"command":"%BIN%","args":["test-server"],"env":{"T":"${secret:TOKEN}"}}`), with)
	_, err := r.call("s__echo", `{"message":"a"}`)
	if sandbox.KindOf(err) != sandbox.Unavailable || !strings.Contains(err.Error(), `env.T: there is no secret "TOKEN"`) {
		t.Fatal(err)
	}
	values.set("TOKEN", envToken)
	r.SecretsChanged()
	untilNil(t, func() error { _, err := r.call("s__echo", `{"message":"a"}`); return err })
	values.set("TOKEN", "another-0123456789")
	r.SecretsChanged()
	untilNil(t, func() error {
		res, err := r.call("s__echo", `{"message":"another-0123456789"}`)
		if err == nil && string(res.Result) != `"[redacted]"` {
			err = fmt.Errorf("the connection has the old value: %s", res.Result)
		}
		return err
	})
}

func untilNil(t *testing.T, try func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if err = try(); err == nil {
			return
		}
	}
	t.Fatal(err)
}

func TestWhereSecretsCannotBe(t *testing.T) {
	t.Parallel()
	_, with := withSecrets(map[string]string{"TOKEN": envToken, "alice:HOST": "https://evil.example"})
	for config, want := range map[string]string{
		`{"command":"%BIN%","args":["test-server","${secret:TOKEN}"]}`:                      "args[1]: the secret \"TOKEN\" cannot be here",
		`{"command":"${secret:TOKEN}"}`:                                                     "command: the secret \"TOKEN\" cannot be here",
		`{"command":"%BIN%","env":{"T":"${secret:TOKEN:-x}"}}`:                              "a secret has no default",
		`{"url":"${secret:HOST}/mcp","headers":{"Authorization":"Bearer ${secret:TOKEN}"}}`: "url: there is no secret \"HOST\"",
	} {
		r := open(t, withServers(`"s":`+config), with)
		if _, err := r.call("s__echo", `{"message":"a"}`); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", config, err)
		}
	}
	r := open(t, withServers(`"s":{"command":"%BIN%","args":["test-server"],"env":{"T":"${secret:TOKEN}"}}`))
	if _, err := r.call("s__echo", `{"message":"a"}`); err == nil || !strings.Contains(err.Error(), `"TOKEN" is known to a Skerry server only`) {
		t.Error(err)
	}
}

// Each user's connection has that user's value.
func TestSecretOfAUser(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	seen := map[string]bool{}
	mcpServer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		mu.Lock()
		seen[req.Header.Get("Authorization")] = true
		mu.Unlock()
		http.Error(w, "no: "+req.Header.Get("Authorization"), http.StatusForbidden)
	}))
	defer mcpServer.Close()
	_, with := withSecrets(map[string]string{"TOKEN": crmToken, "alice:TOKEN": "of-alice-0123456789"})
	r := open(t, withServers(`"s":{"type":"http","url":"`+mcpServer.URL+`","headers":{"Authorization":"Bearer ${secret:TOKEN}"}}`), with)
	for _, th := range []sandbox.Thread{alice, bob} {
		_, err := r.callAs(th, "s__echo", `{}`)
		if err == nil || strings.Contains(err.Error(), "0123456789") || !strings.Contains(err.Error(), "no: ***") && !strings.Contains(err.Error(), "no: Bearer ***") {
			t.Errorf("%v", err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if !seen["Bearer of-alice-0123456789"] || !seen["Bearer "+crmToken] {
		t.Error(seen)
	}
}

// sealing is a Sealer that shows what it does.
type sealing struct{}

func (sealing) Seal(purpose string, plain []byte) ([]byte, error) {
	return []byte("age-encryption.org/v1\n" + purpose + "\n" + hex.EncodeToString(plain)), nil
}

func (sealing) Open(purpose string, sealed []byte) ([]byte, error) {
	text, ok := strings.CutPrefix(string(sealed), "age-encryption.org/v1\n"+purpose+"\n")
	if !ok {
		return nil, sandbox.Errorf(sandbox.Unavailable, "it was encrypted as something else")
	}
	return hex.DecodeString(text)
}

// A plugin gets what its user lends it by name, and can name nothing itself.
func TestSecretsOfPlugins(t *testing.T) {
	t.Parallel()
	_, with := withSecrets(map[string]string{"TOKEN": crmToken, "alice:MINE": "of-alice-0123456789"})
	sealed, err := sealing{}.Seal(sandbox.PluginValuePurpose(alice.Owner), []byte("sealed-0123456789"))
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]string{"LENT": "${secret:MINE}", "TENANTS": "${secret:TOKEN}", "KEPT": sandbox.SealedValue + base64.StdEncoding.EncodeToString(sealed), "PLAIN": "plain"}
	h := open(t, "", with, func(o *Options) { o.Sealer = sealing{} })
	for text, want := range map[string]string{
		"${LENT}": "of-alice-0123456789", "${KEPT}": "sealed-0123456789", "${PLAIN}": "plain",
		"${TENANTS}": "error: env.T: there is no secret \"TOKEN\"", "${secret:MINE}": "error: env.T: a plugin cannot name secrets; set a value that it asks for to ${secret:MINE}",
	} {
		s := serverconfig.ParseUserServer(&sandbox.UserServer{Name: "plugin:p:s", Config: json.RawMessage(`{"command":"x","env":{"T":"` + text + `"}}`), Values: values}, nil)
		got, err := h.pool.dialer.expander.Expand(t.Context(), s, serverconfig.ScopeOf(serverconfig.ScopeUser, alice), "/srv/home")
		if err != nil {
			if "error: "+err.Error() != want && "error: "+excerpt.Detail(err) != want {
				t.Errorf("%s: %v, want %s", text, err, want)
			}
			continue
		}
		if got.Env[0] != "T="+want {
			t.Errorf("%s: %s", text, got.Env)
		}
		if want != "plain" && strings.Contains(string(got.Redact.JSON(json.RawMessage(`"`+want+`"`))), "0123456789") {
			t.Errorf("%s is not hidden", text)
		}
	}
}
