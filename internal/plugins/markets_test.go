package plugins

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

func gitIn(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@x.example", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@x.example")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// TestMarketplaceOverGit: a marketplace in a repository over HTTP, with plugins in it and elsewhere.
func TestMarketplaceOverGit(t *testing.T) {
	ball := tarOf(t, "x/", map[string]string{"sub/plugin.json": `{"$schema":"s","name":"ball"}`, "sub/skills/b/SKILL.md": plainSkill})
	sum := sha256.Sum256(ball)
	path, err := exec.LookPath("git")
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	mux := http.NewServeMux()
	mux.Handle("/repo.git/", &cgi.Handler{Path: path, Args: []string{"http-backend"}, Env: []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"}, Stderr: io.Discard})
	mux.HandleFunc("/ball.tgz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(ball) })
	mux.Handle("/moved.tgz", http.RedirectHandler("/ball.tgz", http.StatusFound))
	mux.Handle("/away.tgz", http.RedirectHandler("http://10.0.0.1/ball.tgz", http.StatusFound))
	srv := httptest.NewServer(mux)
	defer srv.Close()

	dir := filepath.Join(root, "repo.git")
	list := fmt.Sprintf(`{"name":"market","owner":{"name":"o"},"plugins":[
		{"name":"one","source":"./plugins/one","description":"d"},
		{"name":"listed","source":"./","strict":false,"skills":["./extra/only"]},
		{"name":"both","source":"./plugins/one","strict":false,"commands":["./commands"]},
		{"name":"ball","source":{"source":"archive","url":%[1]q,"sha256":%[2]q,"path":"sub"}},
		{"name":"wrong","source":{"source":"archive","url":%[1]q,"sha256":%[3]q,"path":"sub"}},
		{"name":"old","source":{"source":"git-subdir","url":%[4]q,"path":"plugins/one","ref":"v1"}},
		{"name":"npm","source":{"source":"npm","package":"x"}},
		{"name":"away","source":"../../etc"}]}`,
		srv.URL+"/moved.tgz", hex.EncodeToString(sum[:]), strings.Repeat("0", 64), srv.URL+"/repo.git")
	for name, text := range plainPlugin("one") {
		writeFile(t, filepath.Join(dir, "plugins/one", name), text)
	}
	writeFile(t, filepath.Join(dir, "skills/hidden/SKILL.md"), plainSkill)
	writeFile(t, filepath.Join(dir, "extra/only/SKILL.md"), plainSkill)
	writeFile(t, filepath.Join(dir, "other/commands/c.md"), "c")
	gitIn(t, dir, "init", "-q", "-b", "main", ".")
	gitIn(t, dir, "config", "uploadpack.allowReachableSHA1InWant", "true")
	gitIn(t, dir, "add", "-A")
	gitIn(t, dir, "commit", "-qm", "1")
	gitIn(t, dir, "tag", "v1")
	writeFile(t, filepath.Join(dir, marketplaceFile), list)
	writeFile(t, filepath.Join(dir, "plugins/one/commands/new.md"), "new")
	gitIn(t, dir, "add", "-A")
	gitIn(t, dir, "commit", "-qm", "2")
	head := gitIn(t, dir, "rev-parse", "HEAD")

	// Without leave nothing of this network is reached.
	closed := newBed(t, nil)
	for _, from := range []string{srv.URL + "/repo.git", strings.Replace(srv.URL, "http:", "https:", 1) + "/repo.git", "https://169.254.169.254/x.git", "file://" + dir, dir} {
		_, err := closed.AddMarketplace(ctx, caller("admin"), sandbox.PluginInstall{From: from})
		kindIs(t, err, sandbox.Forbidden)
	}
	_, err = closed.Install(ctx, caller("ann"), nil, sandbox.PluginInstall{From: "https://[::1]/x.zip"})
	kindIs(t, err, sandbox.Forbidden)

	b := newBed(t, func(o *Options) { o.Addresses = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")} })
	_, err = b.AddMarketplace(ctx, caller("ann"), sandbox.PluginInstall{From: srv.URL + "/repo.git"})
	kindIs(t, err, sandbox.Forbidden)
	m, err := b.AddMarketplace(ctx, caller("admin"), sandbox.PluginInstall{From: srv.URL + "/repo.git"})
	if err != nil || m.Name != "market" || m.Source.Commit != head || len(m.Plugins) != 8 || m.Plugins[6].Problem == "" || m.Plugins[7].Problem == "" {
		t.Fatalf("%+v %v", m, err)
	}
	// What comes later into the repository is not what was looked at.
	writeFile(t, filepath.Join(dir, "plugins/one/commands/evil.md"), "evil")
	gitIn(t, dir, "add", "-A")
	gitIn(t, dir, "commit", "-qm", "3")
	for name, c := range map[string]struct {
		want             sandbox.Kind
		skills, commands string
	}{
		"one": {"", "a", "do new"}, "listed": {"", "only", ""}, "both": {"", "", "do new"}, "ball": {"", "b", ""}, "old": {"", "a", "do"},
		"wrong": {want: sandbox.Conflict}, "npm": {want: sandbox.NotSupported}, "away": {want: sandbox.NotSupported}, "none": {want: sandbox.NotFound},
	} {
		p, err := b.Install(ctx, caller("ann"), nil, sandbox.PluginInstall{Marketplace: "market", Plugin: name})
		if sandbox.KindOf(err) != c.want {
			t.Errorf("%s: %v, want %q", name, err, c.want)
			continue
		}
		var skills, commands []string
		for _, s := range p.Skills {
			skills = append(skills, s.Name)
		}
		for _, s := range p.Commands {
			commands = append(commands, s.Name)
		}
		if strings.Join(skills, " ") != c.skills || strings.Join(commands, " ") != c.commands {
			t.Errorf("%s: skills %v, commands %v", name, skills, commands)
		}
		if name == "one" && p.Source.Commit != head {
			t.Errorf("%+v", p.Source)
		}
	}
	_, err = b.Install(ctx, caller("ann"), nil, sandbox.PluginInstall{From: srv.URL + "/away.tgz"})
	kindIs(t, err, sandbox.Forbidden)
	if err := b.RemoveMarketplace(ctx, caller("admin"), "market"); err != nil {
		t.Fatal(err)
	}
	kindIs(t, b.RemoveMarketplace(ctx, caller("admin"), "market"), sandbox.NotFound)
}

func writeFile(t *testing.T, p, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
