package e2e

import (
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	sandboxtemplates "github.com/skerry-sandbox/skerry/sandbox-templates"
)

// foreign is what other people wrote, of fixed versions.
type foreign struct {
	Servers []struct {
		Run   []string
		Env   map[string]string
		Call  string
		Input json.RawMessage
		Says  string
	}
	Packages []struct {
		Name, Version, Integrity string
		Plugin                   string
		Unpinned                 bool // its programs are of no fixed version, so nothing could be said of them
		Skills                   []string
	}
}

// foreignTable collects what ran: a row each.
type foreignTable struct {
	mu   sync.Mutex
	rows []string
}

func (f *foreignTable) add(cells ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rows = append(f.rows, "| "+strings.Join(cells, " | ")+" |")
}

// hosts are the addresses of the registries here: a machine may have mirrors at addresses that are not public.
func hosts(t *testing.T, names ...string) []string {
	t.Helper()
	var all []string
	for _, name := range names {
		found, err := net.LookupHost(name)
		must(t, err)
		all = append(all, found...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// TestForeign: skills, plugins and MCP servers of other people do in sandboxes what their authors say. They come from npm
// and PyPI, so this is a tier of its own: make test-all.
func TestForeign(t *testing.T) {
	if os.Getenv("SKERRY_TEST_FOREIGN") == "" {
		t.Skip("packages of others are fetched for it: SKERRY_TEST_FOREIGN=1")
	}
	needDriver(t, "oci", "runc")
	text, err := os.ReadFile("testdata/foreign.json")
	must(t, err)
	var list foreign
	must(t, json.Unmarshal(text, &list))
	addresses := hosts(t, "registry.npmjs.org", "pypi.org", "files.pythonhosted.org")
	const authorities = "/etc/ssl/certs/ca-certificates.crt"
	servers := map[string]any{}
	name := func(i int) string { return fmt.Sprintf("s%02d", i) }
	for i, sv := range list.Servers {
		env := map[string]string{"NODE_EXTRA_CA_CERTS": "/srv/certs/ca-certificates.crt", "SSL_CERT_FILE": "/srv/certs/ca-certificates.crt", "DENO_TLS_CA_STORE": "system"}
		for k, v := range sv.Env {
			env[k] = v
		}
		servers[name(i)] = map[string]any{"command": sv.Run[0], "args": sv.Run[1:], "env": env,
			"sandbox": map[string]any{"addresses": addresses, "mounts": map[string]string{"/srv/certs": filepath.Dir(authorities)}}}
	}
	config, err := json.Marshal(map[string]any{"mcpServers": servers})
	must(t, err)
	folder := t.TempDir()
	o := options{driver: "oci", runtime: "runc", extensions: string(config), templates: map[string]string{}, env: []string{
		"SKERRY_PLUGINS_FOLDERS=" + folder, "SKERRY_PLUGINS_ADDRESSES=" + strings.Join(addresses, ","),
	}}
	for _, template := range []string{"mcp-server", "office"} {
		yaml, err := sandboxtemplates.FS.ReadFile(template + ".yaml")
		must(t, err)
		o.templates[template+".yaml"] = string(yaml)
	}
	// A plugin says nothing of the certificate of this machine's registry.
	o.templates["mcp-server.yaml"] += "env: {npm_config_strict_ssl: \"false\", NODE_TLS_REJECT_UNAUTHORIZED: \"0\"}\n"
	s := start(t, o)
	table := &foreignTable{}
	for i, sv := range list.Servers {
		t.Run(strings.Join(sv.Run, " "), func(t *testing.T) {
			var done struct{ Tools int }
			installed := s.do("POST", "/api/mcp/servers/"+name(i)+"/install", nil)
			if installed.into(t, &done); installed.status != 200 || done.Tools == 0 {
				t.Fatalf("it has no tools: %d %.2000s", installed.status, installed.body)
			}
			var listed struct{ Items []json.RawMessage }
			eventually(t, "it starts without a network", func() bool {
				a := s.do("GET", "/api/mcp/servers/"+name(i)+"/tools", nil)
				return a.status == 200 && json.Unmarshal(a.body, &listed) == nil && len(listed.Items) == done.Tools
			})
			called := ""
			if sv.Call != "" {
				a := s.do("POST", "/api/threads/f/tools/call", map[string]any{"server": name(i), "tool": sv.Call, "input": sv.Input})
				if a.status != 200 || !strings.Contains(string(a.body), sv.Says) {
					t.Errorf("%s: %d %.400s, want %q", sv.Call, a.status, a.body, sv.Says)
				}
				called = "`" + sv.Call + "`"
			}
			table.add("MCP server", "`"+strings.Join(sv.Run, " ")+"`", fmt.Sprintf("installed, then started without a network: %s", count(done.Tools, "tool")), called)
		})
	}
	for _, p := range list.Packages {
		dir := fetchNPM(t, folder, p.Name, p.Version, p.Integrity)
		from := fmt.Sprintf("`%s` %s", p.Name, p.Version)
		if p.Plugin != "" {
			t.Run(p.Name, func(t *testing.T) { s.foreignPlugin(t, filepath.Join(dir, p.Plugin), from, p.Unpinned, table) })
		}
		for _, sk := range p.Skills {
			t.Run(p.Name+"/"+sk, func(t *testing.T) { s.foreignSkill(t, filepath.Join(dir, sk), from, table) })
		}
	}
	if !t.Failed() {
		compareForeign(t, table)
	}
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// fetchNPM unpacks a package of npm and returns its folder.
func fetchNPM(t *testing.T, folder, name, version, integrity string) string {
	t.Helper()
	dir := filepath.Join(folder, strings.NewReplacer("@", "", "/", "-").Replace(name))
	must(t, os.MkdirAll(dir, 0o755))
	cmd := exec.CommandContext(t.Context(), "npm", "pack", "--silent", name+"@"+version)
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("npm pack %s: %v", name, err)
	}
	file := filepath.Join(dir, strings.TrimSpace(string(out)))
	data, err := os.ReadFile(file)
	must(t, err)
	sum := sha512.Sum512(data)
	if got := "sha512-" + base64.StdEncoding.EncodeToString(sum[:]); got != integrity {
		t.Fatalf("%s %s is %s, want %s", name, version, got, integrity)
	}
	must(t, exec.CommandContext(t.Context(), "tar", "-xzf", file, "-C", dir, "--no-same-owner").Run())
	return filepath.Join(dir, "package")
}

// foreignPlugin installs a plugin, and then those of its MCP servers that are programs and want no value.
func (s *server) foreignPlugin(t *testing.T, dir, from string, unpinned bool, table *foreignTable) {
	var done struct {
		PluginName string `json:"plugin_name"`
		Plugin     struct {
			Skills, Commands []json.RawMessage
		}
	}
	a := s.do("POST", "/api/plugins/install", map[string]any{"source": dir})
	if a.status != 200 {
		t.Fatalf("%d %.800s", a.status, a.body)
	}
	a.into(t, &done)
	var one struct {
		Servers []struct{ Registered, Transport, State, Reason string } `json:"mcp_servers"`
	}
	s.do("GET", "/api/plugins/"+url.PathEscape(done.PluginName), nil).into(t, &one)
	var ran []string
	for _, sv := range one.Servers {
		short := sv.Registered[strings.LastIndexByte(sv.Registered, ':')+1:]
		if sv.Transport != "stdio" || sv.State != "ok" || unpinned {
			ran = append(ran, short+" ("+sv.Transport+", not started)")
			continue
		}
		in := s.do("POST", "/api/mcp/servers/"+url.PathEscape(sv.Registered)+"/install", nil)
		var answer struct{ Tools int }
		if in.status == 200 {
			in.into(t, &answer)
			ran = append(ran, fmt.Sprintf("%s: %s", short, count(answer.Tools, "tool")))
		} else {
			t.Errorf("%s: %d %.600s", sv.Registered, in.status, in.body)
		}
	}
	s.do("DELETE", "/api/plugins/"+url.PathEscape(done.PluginName), nil)
	table.add("plugin", from, fmt.Sprintf("%s, %s", count(len(done.Plugin.Skills), "skill"), count(len(done.Plugin.Commands), "command")), strings.Join(ran, ", "))
}

// foreignSkill installs a skill and runs its scripts, which have to start where the verdict says that they do.
func (s *server) foreignSkill(t *testing.T, dir, from string, table *foreignTable) {
	out, err := exec.Command(filepath.Join(bin, "skerry"), "skills", "install", dir, "--server", s.url).CombinedOutput()
	if err != nil {
		t.Fatalf("%v %s", err, out)
	}
	name := filepath.Base(dir)
	var sk struct {
		Location string
		Runnable struct {
			Template string
			Missing  []string
		}
	}
	path := "/api/skills/" + name + "?template=office"
	eventually(t, "the template is probed", func() bool {
		a := s.do("GET", path, nil)
		a.into(t, &sk)
		// A probe that a busy machine did not let end is made again.
		return sk.Runnable.Template != "unknown" || !strings.Contains(string(a.body), "looked at") && !strings.Contains(string(a.body), "found out")
	})
	if a := s.do("PUT", "/api/threads/skills/sandbox", map[string]any{"template": "office", "wait_s": 120}); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	scripts, started := 0, 0
	err = filepath.WalkDir(filepath.Join(dir, "scripts"), func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.Contains(p, "/tests/") || !slices.Contains([]string{".py", ".mjs", ".js", ".sh"}, filepath.Ext(p)) {
			return nil //nolint:nilerr // a skill without scripts
		}
		rel, err := filepath.Rel(dir, p)
		must(t, err)
		scripts++
		interpreter := map[string]string{".py": "python", ".mjs": "node", ".js": "node", ".sh": "bash"}[filepath.Ext(p)]
		r := s.run("skills", "exec", map[string]any{"argv": []string{interpreter, filepath.Join(filepath.Dir(sk.Location), rel), "--help"}, "timeout_s": 240})
		if r.Status != "exited" {
			t.Errorf("%s: %s: %s", name, rel, r.Status)
		}
		missing := strings.Contains(r.Stderr, "ModuleNotFoundError") || strings.Contains(r.Stderr, "command not found") || strings.Contains(r.Stderr, "Cannot find package")
		if !missing {
			started++
		} else if sk.Runnable.Template == "yes" {
			t.Errorf("%s is said to run, and %s: %s %.300s", name, rel, r.Status, r.Stderr)
		}
		return nil
	})
	must(t, err)
	ran := "instructions alone"
	if scripts > 0 {
		ran = fmt.Sprintf("%d of %s start", started, count(scripts, "script"))
	}
	verdict := sk.Runnable.Template
	if len(sk.Runnable.Missing) > 0 {
		verdict += ": " + strings.Join(sk.Runnable.Missing[:min(3, len(sk.Runnable.Missing))], ", ")
	}
	table.add("skill", fmt.Sprintf("`%s` of %s", name, from), "in `office`: "+verdict, ran)
}

// compareForeign holds docs/compatibility.md to what ran.
func compareForeign(t *testing.T, table *foreignTable) {
	t.Helper()
	const file, begin, end = "../../docs/compatibility.md", "<!-- made by internal/e2e TestForeign -->\n", "<!-- end of what ran -->"
	text, err := os.ReadFile(file)
	must(t, err)
	before, rest, ok := strings.Cut(string(text), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the table", file)
	}
	made := before + begin + "| | what | as documented | |\n|---|---|---|---|\n" + strings.Join(table.rows, "\n") + "\n" + end + after
	if *update {
		must(t, os.WriteFile(file, []byte(made), 0o644))
		return
	}
	if made != string(text) {
		told := strings.Split(string(text), "\n")
		other := slices.DeleteFunc(slices.Clone(table.rows), func(row string) bool { return slices.Contains(told, row) })
		t.Errorf("docs/compatibility.md says something else of what follows; -update writes it:\n%s", strings.Join(other, "\n"))
	}
}
