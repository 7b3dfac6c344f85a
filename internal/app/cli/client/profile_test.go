package client

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// TestResolve: the command line comes before the environment, and that before the profile. A profile's key goes to
// no other server.
func TestResolve(t *testing.T) {
	file := filepath.Join(t.TempDir(), "dir", "profiles.json")
	t.Setenv("SKERRY_PROFILES", file)
	for _, name := range []string{"SKERRY_SERVER", "SKERRY_API_KEY", "SKERRY_PROFILE"} {
		t.Setenv(name, "")
	}
	want := func(what string, c Client, server, key string) {
		t.Helper()
		if err := c.Resolve(); err != nil || c.Server != server || c.Key != key {
			t.Errorf("%s: %q %q %v", what, c.Server, c.Key, err)
		}
	}
	want("nothing", Client{}, DefaultServer, "")
	want("without a scheme", Client{Server: "localhost:8080/"}, "http://localhost:8080", "")
	p := Profiles{Current: "a", All: map[string]Profile{"a": {Server: "https://a", Key: "ka"}, "b": {Server: "https://b", Key: "kb"}}}
	if err := p.Save(); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(file); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Error(info, err)
	}
	want("the profile in use", Client{}, "https://a", "ka")
	want("a profile", Client{Profile: "b"}, "https://b", "kb")
	want("another server", Client{Server: "https://c"}, "https://c", "")
	want("its server", Client{Server: "https://a"}, "https://a", "ka")
	t.Setenv("SKERRY_SERVER", "https://d")
	t.Setenv("SKERRY_API_KEY", "kd")
	want("the environment", Client{}, "https://d", "kd")
	want("a profile, in spite of the environment", Client{Profile: "b"}, "https://b", "kb")
	for _, c := range []Client{{Profile: "none"}, {Server: "ftp://x"}, {Server: "http://"}} {
		if err := c.Resolve(); err == nil {
			t.Errorf("%+v", c)
		}
	}
}
