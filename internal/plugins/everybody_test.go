package plugins

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/plugins/folder"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/skills/lint"
	"github.com/skerry-sandbox/skerry/internal/skills/scan"
	bundled "github.com/skerry-sandbox/skerry/plugins"
)

// everybodyBed has the plugins of a folder, each given by its name and its files.
func everybodyBed(t *testing.T, plugins map[string]map[string]string, change func(*Options)) (*bed, string) {
	t.Helper()
	dir := t.TempDir()
	for name, files := range plugins {
		for file, text := range files {
			writeFile(t, filepath.Join(dir, folder.Installed, name, file), text)
		}
	}
	f, err := folder.Open(folder.Options{Dir: dir, Keep: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return newBed(t, func(o *Options) {
		o.Everybody = f
		if change != nil {
			change(o)
		}
	}), dir
}

// TestEverybody: all users have the plugins of the folder, each switches them for themselves, extensions_config.json
// for all, and none removes them. A broken one hides no other.
func TestEverybody(t *testing.T) {
	t.Parallel()
	b, _ := everybodyBed(t, map[string]map[string]string{
		"given": plainPlugin("given"), "other": plainPlugin("other"), "torn": {claudeManifest: "{"},
		"twice": {claudeManifest: `{"name":"other"}`, "commands/x.md": "x"},
	}, nil)
	b.want("ann", "given", "other", "-torn")
	b.want("bob", "given", "other", "-torn")
	p, err := b.Get(ctx, caller("ann"), "given")
	if err != nil || !p.Shared || p.Source.Kind != SourceServer || p.Source.Path != "installed/given" || p.Digest == "" || p.InstalledAt.IsZero() {
		t.Errorf("%+v, %v", p, err)
	}
	if p, err = b.Get(ctx, caller("ann"), "other"); err != nil || len(p.Findings) == 0 || p.Findings[len(p.Findings)-1].Rule != "plugin-twice" {
		t.Errorf("the second of a name is not told: %+v, %v", p.Findings, err)
	}
	if p, err = b.Get(ctx, caller("ann"), "torn"); err != nil || len(p.Findings) == 0 || p.Findings[0].Rule != "not-loaded" {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := b.Switch(ctx, caller("ann"), "given", false); err != nil {
		t.Fatal(err)
	}
	b.want("ann", "-given", "other", "-torn")
	b.want("bob", "given", "other", "-torn")
	for _, user := range []string{"ann", "admin"} {
		kindIs(t, b.Remove(ctx, caller(user), "given"), sandbox.Forbidden)
	}
	if err := b.ext.SetEnabled(ctx, sandbox.Owner{}, "plugins", "other", false); err != nil {
		t.Fatal(err)
	}
	b.want("bob", "given", "-other", "-torn")
	mounts, err := b.Mounts(sandbox.Owner{})
	if err != nil || len(mounts.List) != 1 || mounts.List[0].Name != "given" || !mounts.List[0].Trusted {
		t.Errorf("a user who has nothing: %+v, %v", mounts, err)
	}
}

// TestEverybodyHidden: a user's own plugin and one of the tenant hide the folder's of the same name, until they go.
func TestEverybodyHidden(t *testing.T) {
	t.Parallel()
	b, _ := everybodyBed(t, map[string]map[string]string{"given": plainPlugin("given")}, nil)
	from := func(user, want string) {
		t.Helper()
		if p, err := b.Get(ctx, caller(user), "given"); err != nil || p.Source.Kind != want {
			t.Errorf("%s has it from %q, %v, want %q", user, p.Source.Kind, err, want)
		}
	}
	b.mustUpload("ann", "given")
	from("ann", SourceArchive)
	from("bob", SourceServer)
	if err := b.Remove(ctx, caller("ann"), "given"); err != nil {
		t.Fatal(err)
	}
	from("ann", SourceServer)
}

// TestWithoutServers: the setting leaves the MCP servers of all plugins out, and says so.
func TestWithoutServers(t *testing.T) {
	t.Parallel()
	for without, want := range map[bool]int{false: 1, true: 0} {
		b, _ := everybodyBed(t, map[string]map[string]string{
			"given": {".mcp.json": `{"mcpServers":{"web":{"url":"https://x.example/mcp"}}}`, claudeManifest: `{"name":"given"}`},
		}, func(o *Options) { o.WithoutServers = without })
		servers, err := b.Servers(caller("ann").Owner)
		if err != nil || len(servers.List) != want {
			t.Errorf("without %v: %+v, %v", without, servers, err)
		}
		p, err := b.Get(ctx, caller("ann"), "given")
		if err != nil || without != strings.Contains(p.Servers[0].Reason, "auto_merge_mcp") || (p.Servers[0].State == "ok") == without {
			t.Errorf("without %v: %+v, %v", without, p.Servers, err)
		}
	}
}

// TestBundled: the plugins of the repository load without a finding, and pass the scan and our lint. The marketplace
// lists them all.
func TestBundled(t *testing.T) {
	t.Parallel()
	dir := "../../plugins"
	r, err := Inspect(dir)
	if err != nil || r.Marketplace == nil || len(r.Marketplace.Findings) > 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	folders, err := os.ReadDir(filepath.Join(dir, folder.Installed))
	if err != nil || len(folders) < 2 || len(r.Plugins) != len(folders) || len(r.Marketplace.Entries) != len(folders) {
		t.Fatalf("%d folders, %d plugins, %d entries, %v", len(folders), len(r.Plugins), len(r.Marketplace.Entries), err)
	}
	for _, p := range r.Plugins {
		if p.Broken || len(p.Plugin.Findings) > 0 || len(p.Plugin.Skills) == 0 || len(p.Plugin.Commands) == 0 || p.Plugin.Version == "" {
			t.Errorf("%s: %+v", p.Folder, p.Plugin)
		}
		found, err := scan.Folder(ctx, os.DirFS(filepath.Join(dir, p.Folder)))
		for _, f := range found {
			if !p.Plugin.expects(f) {
				t.Errorf("%s: scan: %+v", p.Folder, f)
			}
		}
		if err != nil {
			t.Error(err)
		}
		for _, sk := range p.Plugin.Skills {
			found, err := lint.Folder(ctx, filepath.Join(dir, p.Folder, sk.Folder), sk.Name)
			if err != nil || len(found) > 0 {
				t.Errorf("%s: %+v, %v", sk.Name, found, err)
			}
		}
	}
	f, err := folder.Open(folder.Options{FS: bundled.FS, Keep: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	if err != nil || len(f.Current().Plugins) != len(folders) {
		t.Fatalf("compiled in: %+v, %v", f, err)
	}
}

// TestBundledMarketplace: other servers add our folder of plugins, of a repository or as it is, by its
// marketplace.json.
func TestBundledMarketplace(t *testing.T) {
	t.Parallel()
	repo := t.TempDir()
	if err := os.CopyFS(filepath.Join(repo, "plugins"), os.DirFS("../../plugins")); err != nil {
		t.Fatal(err)
	}
	gitIn(t, repo, "init", "-q", "-b", "main", ".")
	gitIn(t, repo, "add", "-A")
	gitIn(t, repo, "commit", "-qm", "1")
	for from, kind := range map[string]string{filepath.Join(repo, "plugins"): SourceFolder, "file://" + repo: SourceGit} {
		b := newBed(t, func(o *Options) { o.Folders = []string{repo} })
		req := sandbox.PluginInstall{From: from}
		if kind == SourceGit {
			req.Path = "plugins"
		}
		m, err := b.AddMarketplace(ctx, caller("admin"), req)
		if err != nil || m.Name != "skerry" || len(m.Plugins) < 2 || len(m.Findings) > 0 {
			t.Fatalf("%s: %+v, %v", kind, m, err)
		}
		p, err := b.Install(ctx, caller("ann"), nil, sandbox.PluginInstall{Marketplace: "skerry", Plugin: "code-review"})
		if err != nil || p.Source.Kind != kind || len(p.Skills) != 2 || len(p.Commands) != 3 {
			t.Errorf("%s: %+v, %v", kind, p, err)
		}
	}
}
