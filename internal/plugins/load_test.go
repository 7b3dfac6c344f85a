package plugins

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

const plainSkill = "---\nname: a\ndescription: does a\n---\nbody\n"

// folderWith writes files into a new folder; a name that ends in / is a folder, and "-> x" a link to x.
func folderWith(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if to, ok := strings.CutPrefix(text, "-> "); ok {
			err = os.Symlink(to, p)
		} else if strings.HasSuffix(name, "/") {
			err = os.MkdirAll(p, 0o755)
		} else {
			err = os.WriteFile(p, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func loadDir(t testing.TB, dir string, e *Entry) (*Plugin, error) {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	return Load(root, "fallback", e)
}

func load(t testing.TB, files map[string]string) *Plugin {
	t.Helper()
	p, err := loadDir(t, folderWith(t, files), nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func rules(p *Plugin) []string {
	var all []string
	for _, f := range p.Findings {
		all = append(all, f.Rule)
	}
	slices.Sort(all)
	return all
}

func skillNames(p *Plugin) (names []string) {
	for _, s := range p.Skills {
		names = append(names, s.Name)
	}
	return names
}

func TestClaudeFormat(t *testing.T) {
	p := load(t, map[string]string{
		".claude-plugin/plugin.json": `{"name":"sales","version":"1.2.0","description":"Sells\nthings","author":{"name":"A"},"keywords":["x"],
			"repository":{"url":"https://r.example"},"skills":["./more/one","./more"],"mcpServers":{"inline":{"command":"${CLAUDE_PLUGIN_ROOT}/run","env":{"N":1}}},
			"userConfig":{"KEY":{"type":"string","title":"Key","sensitive":true},"n":{"type":"number","default":3},"1x":{"type":"string"}},"hooks":"./h.json","funny":1}`,
		"skills/a/SKILL.md": plainSkill, "more/one/SKILL.md": plainSkill, "more/two/SKILL.md": plainSkill, "more/none/x": "",
		".mcp.json":              `{"mcpServers":{"web":{"type":"http","url":"https://x.example/mcp"},"google calendar":{"type":"http","url":""},"odd":{"type":"ws","url":"wss://x"}}}`,
		"commands/do.md":         "---\ndescription: does it\nargument-hint: [file] [n]\nallowed-tools: Read, Bash(git add:*)\n---\nDo $1\n",
		"commands/team/check.md": "Check it\n",
		"commands/a.md":          "hidden by the skill\n", "commands/README.md": "no command",
	})
	if p.Name != "sales" || p.Version != "1.2.0" || p.Description != "Sells things" || p.Author != "A" || p.Repository != "https://r.example" || p.Format != FormatClaude {
		t.Errorf("%+v", p)
	}
	if got := skillNames(p); !slices.Equal(got, []string{"a", "one", "two"}) {
		t.Errorf("skills %v", got)
	}
	if got := p.Skills[1].Location; got != "/mnt/plugins/sales/more/one/SKILL.md" {
		t.Errorf("location %s", got)
	}
	if len(p.Commands) != 2 || p.Commands[0].Name != "do" || p.Commands[1].Name != "team:check" || p.Commands[1].Description != "Check it" {
		t.Fatalf("commands %+v", p.Commands)
	}
	if c := p.Commands[0]; c.ArgumentHint == "" || !slices.Equal(c.AllowedTools, []string{"Read", "Bash(git add:*)"}) {
		t.Errorf("%+v", c)
	}
	problems := map[string]bool{}
	for _, s := range p.Servers {
		problems[s.Name+" "+s.Transport] = s.Problem != ""
	}
	if want := map[string]bool{"web http": false, "google calendar http": true, "odd http": true, "inline stdio": false}; fmt.Sprint(problems) != fmt.Sprint(want) {
		t.Errorf("servers %v", problems)
	}
	if len(p.Options) != 2 || !p.Options[0].Sensitive || p.Options[1].Default != 3.0 {
		t.Errorf("options %+v", p.Options)
	}
	for _, want := range []string{"unknown-key", "not-supported", "server-url-empty", "server-name-space", "command-shadowed", "option", "no-skill"} {
		if !slices.Contains(rules(p), want) {
			t.Errorf("no finding %s in %v", want, rules(p))
		}
	}
}

func TestAgentFormat(t *testing.T) {
	p := load(t, map[string]string{
		"plugin.json":       `{"$schema":"https://agent-plugins.org/plugin.json","name":"ap","commands":"./commands","skills":"./elsewhere"}`,
		"mcp.json":          `{"$schema":"x","mcpServers":{"a":{"type":"streamable-http","url":"https://x.example"},"b":{"type":"streamable-http","url":"http://x.example"},"c":{"type":"stdio","command":"x","cwd":"${PLUGIN_ROOT}"},"d":{"type":"streamable-http","url":"http://127.0.0.1:1/"}}}`,
		"skills/a/SKILL.md": plainSkill, "elsewhere/b/SKILL.md": plainSkill, "commands/x.md": "no commands in this format", ".mcp.json": `{"mcpServers":{"z":{}}}`,
	})
	if p.Format != FormatAgent || len(p.Skills) != 1 || len(p.Commands) != 0 || len(p.Servers) != 4 {
		t.Fatalf("%+v", p)
	}
	for _, s := range p.Servers {
		if (s.Problem != "") != (s.Name == "b") {
			t.Errorf("%s: %q", s.Name, s.Problem)
		}
	}
}

// TestNames: a name becomes a folder and a part of URLs.
func TestNames(t *testing.T) {
	for name, ok := range map[string]bool{
		"a": true, "A-b.c_1": true, strings.Repeat("a", 64): true, strings.Repeat("a", 65): false, "": false, "..": false, ".a": false, "a/b": false, `a\b`: false, "a:b": false,
		"a b": false, "-a": false, "a..b": false, "a.": false, "ä": false, "a\x00": false, "a\n": false,
	} {
		if err := CheckName(name); (err == nil) != ok || err != nil && sandbox.KindOf(err) != sandbox.Invalid {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestManifestsThatDoNotLoad(t *testing.T) {
	for name, text := range map[string]string{
		"no JSON": `{`, "a list": `[]`, "null": `null`, "a name that leaves": `{"name":"../x"}`, "a name with a space": `{"name":"a b"}`, "too large": `{"name":"a","x":"` + strings.Repeat("x", maxManifest) + `"}`,
	} {
		p, err := loadDir(t, folderWith(t, map[string]string{claudeManifest: text, "skills/a/SKILL.md": plainSkill}), nil)
		if sandbox.KindOf(err) != sandbox.Invalid {
			t.Errorf("%s: %v", name, err)
		}
		if !slices.Contains(rules(p), "not-loaded") {
			t.Errorf("%s: findings %v", name, rules(p))
		}
	}
	if _, err := loadDir(t, folderWith(t, map[string]string{"x.txt": ""}), nil); sandbox.KindOf(err) != sandbox.Invalid {
		t.Errorf("an empty folder: %v", err)
	}
}

// TestWrongTypes: what is wrong takes its own part away and nothing else.
func TestWrongTypes(t *testing.T) {
	p := load(t, map[string]string{
		claudeManifest: `{"name":"w","version":1,"description":[],"keywords":"x","author":7,"skills":{"a":1},"commands":7,"mcpServers":["./none.json","../x.json","/etc/passwd",{"ok":{"url":"https://x.example"}},7],"userConfig":[],"defaultEnabled":"no"}`,
		".mcp.json":    `[]`, "skills/a/SKILL.md": plainSkill, "skills/b/SKILL.md": "no frontmatter",
	})
	if len(p.Skills) != 2 || p.Skills[0].Broken || !p.Skills[1].Broken {
		t.Errorf("skills %+v", p.Skills)
	}
	if len(p.Servers) != 1 || p.Servers[0].Name != "ok" {
		t.Errorf("servers %+v", p.Servers)
	}
	if got := len(p.Findings); got < 10 {
		t.Errorf("%d findings: %v", got, rules(p))
	}
}

// TestHostileFolder: links that leave, pipes, and more than there may be.
func TestHostileFolder(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte(plainSkill), 0o600); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{
		claudeManifest: `{"name":"h","commands":["./c","../..","./out"],"skills":["./linked"]}`, "skills/out/SKILL.md": "-> " + secret, "skills/in/SKILL.md": "-> ../../real.md", "real.md": plainSkill,
		"linked": "-> /etc", "out": "-> " + filepath.Dir(secret), ".mcp.json": "-> " + secret,
	}
	for i := range maxCommands + 5 {
		files[fmt.Sprintf("c/c%04d.md", i)] = "x"
	}
	dir := folderWith(t, files)
	if err := os.MkdirAll(filepath.Join(dir, "skills/pipe"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "skills/pipe/SKILL.md"), 0o644); err != nil {
		t.Fatal(err)
	}
	p, err := loadDir(t, dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := skillNames(p); !slices.Equal(got, []string{"in"}) {
		t.Errorf("skills %v", got)
	}
	if len(p.Commands) != maxCommands || len(p.Servers) != 0 {
		t.Errorf("%d commands, %d servers", len(p.Commands), len(p.Servers))
	}
	if len(p.Findings) > maxFindings {
		t.Errorf("%d findings", len(p.Findings))
	}
	for _, f := range p.Findings {
		if strings.Contains(f.Message, dir) || strings.Contains(f.Message, secret) {
			t.Errorf("a host path: %s", f.Message)
		}
	}
}

func TestSingleSkillPlugin(t *testing.T) {
	p := load(t, map[string]string{claudeManifest: `{"name":"one"}`, "SKILL.md": plainSkill})
	if len(p.Skills) != 1 || p.Skills[0].Name != "one" || p.Skills[0].Location != "/mnt/plugins/one/SKILL.md" {
		t.Errorf("%+v", p.Skills)
	}
}

func FuzzLoad(f *testing.F) {
	f.Add([]byte(`{"name":"a","mcpServers":{"x":{"command":"y","args":["z"],"env":{"a":1}}},"commands":{"c":{"content":"$1"}},"userConfig":{"K":{"type":"string"}}}`), []byte(`{"mcpServers":{"a b":{"url":""}}}`))
	f.Add([]byte(`{"name":"a","skills":["./s","..","/x"],"commands":["./c"],"mcpServers":["./m.json"]}`), []byte(`{"a":{"type":"sse","url":"http://h:1/${X:-y}","headers":{"h":"v"},"timeout":5}}`))
	f.Add([]byte(`[`), []byte(`{"mcpServers":null}`))
	f.Fuzz(func(t *testing.T, manifest, servers []byte) {
		dir := t.TempDir()
		if err := os.MkdirAll(filepath.Join(dir, ".claude-plugin"), 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string][]byte{claudeManifest: manifest, ".mcp.json": servers} {
			if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		p, err := loadDir(t, dir, nil)
		if err == nil && CheckName(p.Name) != nil {
			t.Errorf("loaded as %q", p.Name)
		}
		if len(p.Findings) > maxFindings || len(p.Servers) > maxServers || len(p.Commands) > maxCommands {
			t.Error("more than there may be")
		}
		for _, s := range p.Servers {
			if s.Problem == "" && checkServerName(s.Name) != "" {
				t.Errorf("a server %q", s.Name)
			}
		}
	})
}
