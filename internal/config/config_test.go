package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func env(pairs map[string]string) func(string) (string, bool) {
	return func(k string) (string, bool) { v, ok := pairs[k]; return v, ok }
}

func TestEnvironmentWinsOverFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(file, []byte("listen: 127.0.0.1:1\nmax_sandboxes: 3\nstart_timeout: 5s\nallowed_hosts: [a, b]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load(file, env(map[string]string{"SKERRY_LISTEN": "127.0.0.1:2", "SKERRY_ALLOWED_ORIGINS": "https://x, https://y"}))
	if err != nil {
		t.Fatal(err)
	}
	if c.Listen != "127.0.0.1:2" || c.MaxSandboxes != 3 || c.StartTimeout != 5*time.Second {
		t.Errorf("got %+v", c)
	}
	if !reflect.DeepEqual(c.AllowedHosts, []string{"a", "b"}) || !reflect.DeepEqual(c.AllowedOrigins, []string{"https://x", "https://y"}) {
		t.Errorf("got %+v", c)
	}
}

func TestEveryFieldHasItsVariable(t *testing.T) {
	samples := map[reflect.Kind]string{
		reflect.String: "x", reflect.Slice: "x", reflect.Int: "7", reflect.Int64: "7s", reflect.Bool: "false", reflect.Map: "{acme: {mode: never}}", reflect.Pointer: "7",
	}
	own := "{acme/ann: {execs: 3}}"
	before := Default().Keys()
	if _, ok := before["code_execution.mode"]; !ok || len(before) < 20 {
		t.Fatalf("fields: %v", before)
	}
	for key, was := range before {
		sample := samples[reflect.TypeOf(was).Kind()]
		if was == false {
			sample = "true"
		}
		if _, issuers := was.([]OIDCIssuer); issuers {
			sample = "[{issuer: x}]"
		}
		if _, names := was.(map[string]string); names {
			sample = "{x: y}"
		}
		if strings.HasPrefix(key, "limits.") && reflect.TypeOf(was).Kind() == reflect.Map {
			sample = own
		}
		c, err := Load("", env(map[string]string{EnvName(key): sample}))
		if err != nil {
			t.Errorf("%s: %v", key, err)
		}
		if reflect.DeepEqual(c.Keys()[key], was) {
			t.Errorf("%s: the variable %s changes nothing", key, EnvName(key))
		}
	}
}

// Each data folder has keys of its own, none has them inside.
func TestSecretsKeyFile(t *testing.T) {
	for data, want := range map[string]string{"/var/lib/skerry": "/etc/skerry/secrets-key.txt", "/var/lib/skerry/": "/etc/skerry/secrets-key.txt", "/srv/x/": "/srv/x.keys/secrets.key"} {
		c := Default()
		c.Data = data
		if got := c.SecretsKeyFile(); got != want {
			t.Errorf("%s: %s", data, got)
		}
		if err := c.Check(); err != nil || c.Secrets.KeyFile != want {
			t.Errorf("%s: %s, %v", data, c.Secrets.KeyFile, err)
		}
	}
	c := Default()
	c.Secrets.Env, c.Secrets.Exec = []string{"GOOD", "../bad"}, []string{"a b"}
	if err := c.Check(); err == nil || !strings.Contains(err.Error(), "secrets.env") || !strings.Contains(err.Error(), "secrets.exec") {
		t.Error(err)
	}
}

func TestCodeExecution(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.yaml")
	text := "code_execution:\n  mode: always\n  auto_threshold_tokens: 5000\n  sandbox_timeout: 60\n  tenants:\n    acme: {mode: never, language: python}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load(file, env(map[string]string{"SKERRY_CODE_EXECUTION_AUTO_THRESHOLD_TOKENS": "7000"}))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Check(); err != nil {
		t.Fatal(err)
	}
	all, acme := c.CodeExecution.Of("other"), c.CodeExecution.Of("acme")
	if all.APIMode() != "code" || all.AutoTokens() != 7000 || all.Language != "typescript" || all.SandboxTimeout != 60 || !all.Enabled {
		t.Errorf("all: %+v", all)
	}
	if acme.APIMode() != "direct" || acme.AutoTokens() != 7000 || acme.Language != "python" || acme.SandboxTimeout != 60 {
		t.Errorf("acme: %+v", acme)
	}
	c.CodeExecution.SandboxTimeout, c.CodeExecution.AutoThresholdTokens = 121, -1
	wrong := "cobol"
	c.CodeExecution.Tenants["acme"] = TenantRules{Mode: &wrong, Language: &wrong}
	err = c.Check()
	for _, want := range []string{"code_execution.sandbox_timeout:", "code_execution.auto_threshold_tokens:", "code_execution.tenants.acme.mode:", "code_execution.tenants.acme.language:"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not named in %v", want, err)
		}
	}
}

// TestOlderThreshold: a number of tools is read as tokens, for all and for a tenant, and both forms together are refused.
func TestOlderThreshold(t *testing.T) {
	for text, want := range map[string][2]int{ // for all, and for acme
		"{auto_threshold: 20}": {3000, 3000},
		"{auto_threshold: 0}":  {0, 0},
		"{auto_threshold: 5, tenants: {acme: {auto_threshold_tokens: 300}}}":    {750, 300},
		"{auto_threshold_tokens: 300, tenants: {acme: {auto_threshold: 1000}}}": {300, 150_000},
		"{auto_threshold: 5, tenants: {acme: {language: python}}}":              {750, 750},
		"{tenants: {acme: {auto_threshold: 5, mode: auto}}}":                    {3000, 750},
	} {
		file := filepath.Join(t.TempDir(), "c.yaml")
		if err := os.WriteFile(file, []byte("code_execution: "+text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := Load(file, env(nil))
		if err = errors.Join(err, c.Check()); err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := [2]int{c.CodeExecution.Of("other").AutoTokens(), c.CodeExecution.Of("acme").AutoTokens()}; got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
	c, err := Load("", env(map[string]string{
		"SKERRY_CODE_EXECUTION_AUTO_THRESHOLD": "20", "SKERRY_CODE_EXECUTION_AUTO_THRESHOLD_TOKENS": "300",
		"SKERRY_CODE_EXECUTION_TENANTS": "{acme: {auto_threshold: 1, auto_threshold_tokens: 1}}",
	}))
	if err != nil {
		t.Fatal(err)
	}
	err = c.Check()
	for _, want := range []string{"code_execution.auto_threshold: it is the older form of auto_threshold_tokens", "code_execution.tenants.acme.auto_threshold: it is"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
}

func TestLimits(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.yaml")
	text := "limits:\n  tenants:\n    '*': {execs: 50}\n    acme: {execs: 200}\n  users:\n    '*': {execs: 4, disk_mib: 100}\n    acme/*: {execs: 5}\n    acme/ann: {execs: 0, sandboxes: 2}\n  keys:\n    key_1: {requests_per_minute: 60}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load(file, env(map[string]string{"SKERRY_LIMITS_KEYS": "{key_3: {execs: 7}}"}))
	if err = errors.Join(err, c.Check()); err != nil {
		t.Fatal(err)
	}
	l := &c.Limits
	if l.OfTenant("other").Execs != 50 || l.OfTenant("acme").Execs != 200 || l.OfUser("acme", "bob").Execs != 5 || l.OfUser("other", "bob").Execs != 4 || l.OfKey("key_3").Execs != 7 || l.OfKey("key_1").RequestsPerMinute != 60 || l.OfKey("key_2") != (LimitRules{}) {
		t.Errorf("%+v", l)
	}
	if ann := l.OfUser("acme", "ann"); ann != (LimitRules{Sandboxes: 2, DiskMiB: 100}) {
		t.Errorf("ann: %+v", ann)
	}
	if none := Default().Limits; none.OfUser("a", "b") != (LimitRules{}) {
		t.Error("there is a limit that nobody asked for")
	}
	wrong := -1
	l.Users["ann"], l.Users["acme/bob"], l.Keys["*"] = OwnLimits{}, OwnLimits{Execs: &wrong}, OwnLimits{DiskMiB: l.Users["*"].DiskMiB}
	err = c.Check()
	for _, want := range []string{"limits.users.acme/bob.execs:", "limits.keys.*.disk_mib:", "limits.users: \"ann\""} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is missing in: %v", want, err)
		}
	}
}

func TestEveryProblemIsNamedAtOnce(t *testing.T) {
	c := Default()
	c.Listen, c.Driver, c.Auth, c.MaxSandboxes, c.Redis = "0.0.0.0:80", "podman", "none", 0, "localhost"
	err := c.Check()
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"driver:", "auth:", "max_sandboxes:", "redis:"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not named in %q", want, err)
		}
	}
}

func TestUnknownKeyIsRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(file, []byte("listne: x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(file, env(nil)); err == nil || !strings.Contains(err.Error(), "listne") {
		t.Errorf("got %v", err)
	}
}

// TestS3: what cannot be right is named, and addresses are networks.
func TestS3(t *testing.T) {
	c := Default()
	c.S3 = S3{Endpoint: "s3.example.com", AccessKey: "a", Addresses: []string{"10.0.0.0/8", "nonsense"}}
	err := c.Check()
	for _, want := range []string{"s3.endpoint", "s3.access_key", "s3.addresses"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is missing in: %v", want, err)
		}
	}
	c.S3 = S3{Endpoint: "https://s3.example.com", AccessKey: "a", SecretKey: "b", Addresses: []string{"10.1.2.3/8", "192.168.1.7", "fd00::/8"}}
	got, err := c.S3.Prefixes()
	if err := errors.Join(err, c.Check()); err != nil || len(got) != 3 || got[0].String() != "10.0.0.0/8" || got[1].String() != "192.168.1.7/32" {
		t.Errorf("%v, %v", got, err)
	}
}

// TestAuditArchive: what cannot be right is named, and nothing is removed without an archive.
func TestAuditArchive(t *testing.T) {
	for _, x := range []struct {
		archive string
		keep    int
		want    string
	}{
		{"", 0, ""}, {"/mnt/archive", 30, ""}, {"s3://bucket", 0, ""}, {"s3://bucket/logs/", 1, ""},
		{"archive", 0, "audit.archive"}, {"s3://", 0, "audit.archive"}, {"s3:///logs", 0, "audit.archive"}, {"https://host/x", 0, "audit.archive"},
		{"", 30, "audit.keep_segments"}, {"/mnt/archive", -1, "audit.keep_segments"},
	} {
		c := Default()
		c.Audit.Archive, c.Audit.KeepSegments = x.archive, x.keep
		if err := c.Check(); (err == nil) != (x.want == "") || err != nil && !strings.Contains(err.Error(), x.want) {
			t.Errorf("%q, %d days: %v", x.archive, x.keep, err)
		}
	}
}

// TestPlugins: what cannot be right is named.
func TestPlugins(t *testing.T) {
	c := Default()
	c.Plugins = Plugins{Addresses: []string{"nonsense"}, Folders: []string{"relative", "/", "/srv/plugins"}}
	err := c.Check()
	if err == nil || strings.Count(err.Error(), "plugins.folders") != 2 || !strings.Contains(err.Error(), "plugins.addresses") || strings.Contains(err.Error(), "/srv/plugins") {
		t.Error(err)
	}
}

func TestTaints(t *testing.T) {
	k := Kubernetes{Tolerations: []string{"dedicated=sandboxes:NoSchedule", "gpu:NoExecute", "spot", "empty="}}
	value, empty := "sandboxes", ""
	want := []Taint{{"dedicated", &value, "NoSchedule"}, {"gpu", nil, "NoExecute"}, {"spot", nil, ""}, {"empty", &empty, ""}}
	if got := k.Taints(); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	for _, bad := range []string{"", "=x", "a=b:Never", "a=b=c", ":NoSchedule"} {
		k := defaultKubernetes()
		k.BridgeImage, k.Tolerations = "b", []string{bad}
		var keys []string
		k.check(func(key, _ string, _ ...any) { keys = append(keys, key) })
		if !slices.Equal(keys, []string{"kubernetes.tolerations"}) {
			t.Errorf("%q: problems with %v", bad, keys)
		}
	}
}

// TestRemote: each setting that cannot be right is named once, and no error has the key.
func TestRemote(t *testing.T) {
	for name, c := range map[string]struct {
		remote Remote
		want   []string
	}{
		"E2B":            {Remote{URL: "https://api.e2b.app", APIKey: "e2b_00", Template: "base"}, nil},
		"Skerry":         {Remote{URL: "http://127.0.0.1:8080", SandboxURL: "http://127.0.0.1:8080", Template: "nest"}, nil},
		"nothing":        {Remote{Template: "base"}, []string{"remote.url"}},
		"clear text":     {Remote{URL: "http://api.example.com", APIKey: "hunter2", Template: "base"}, []string{"remote.url"}},
		"a path":         {Remote{URL: "https://api.example.com/v1", APIKey: "hunter2", Template: "base"}, []string{"remote.url"}},
		"a user":         {Remote{URL: "https://me:hunter2@api.example.com", APIKey: "k", Template: "base"}, []string{"remote.url"}},
		"no domain":      {Remote{URL: "https://sandboxes.example.com", APIKey: "hunter2", Template: "base"}, []string{"remote.sandbox_url"}},
		"no key":         {Remote{URL: "https://api.example.com", Template: "base"}, []string{"remote.api_key"}},
		"two keys":       {Remote{URL: "https://api.example.com", APIKey: "hunter2", APIKeyFile: "/key", Template: "base"}, []string{"remote.api_key"}},
		"no word":        {Remote{URL: "https://api.example.com", APIKey: "hunter2 b", Template: "base"}, []string{"remote.api_key"}},
		"no template":    {Remote{URL: "https://api.example.com", APIKey: "hunter2"}, []string{"remote.template"}},
		"sandboxes' URL": {Remote{URL: "https://api.example.com", SandboxURL: "ftp://x", APIKey: "hunter2", Template: "base"}, []string{"remote.sandbox_url"}},
	} {
		var keys []string
		c.remote.check(func(key, format string, args ...any) {
			keys = append(keys, key)
			if text := fmt.Sprintf(format, args...); strings.Contains(text, "hunter2") && name != "a user" {
				t.Errorf("%s: %s", name, text)
			}
		})
		if !slices.Equal(keys, c.want) {
			t.Errorf("%s: problems with %v, want %v", name, keys, c.want)
		}
	}
	if got := (&Remote{URL: "https://api.e2b.app"}).Domain(); got != "e2b.app" {
		t.Errorf("the domain is %q", got)
	}
}
