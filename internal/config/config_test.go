package config

import (
	"os"
	"path/filepath"
	"reflect"
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
	v := reflect.TypeFor[Config]()
	for i := range v.NumField() {
		f := v.Field(i)
		sample := map[reflect.Kind]string{reflect.String: "x", reflect.Slice: "x", reflect.Int: "7", reflect.Int64: "7s"}[f.Type.Kind()]
		c, err := Load("", env(map[string]string{EnvName(f.Tag.Get("yaml")): sample}))
		if err != nil {
			t.Errorf("%s: %v", f.Name, err)
		}
		if reflect.DeepEqual(reflect.ValueOf(c).Field(i).Interface(), reflect.ValueOf(Default()).Field(i).Interface()) {
			t.Errorf("%s: the variable %s changes nothing", f.Name, EnvName(f.Tag.Get("yaml")))
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
