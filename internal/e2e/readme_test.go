package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestReadme runs the commands that the README shows against a server, as they stand there.
func TestReadme(t *testing.T) {
	need(t, have("curl"), "curl")
	text, err := os.ReadFile("../../README.md")
	must(t, err)
	blocks := strings.Split(string(text), "<!-- tested by internal/e2e TestReadme -->\n```sh\n")[1:]
	wants := [][]string{
		{`\ncode-api\nplugins\nskills\nuser-data\n`, `"stdout":"42\n"`, `"content":"hi"`, `"action":"execute_code"`},
		{"ok       template base: ", "is ready\n", "\nA server can serve here: 0 problems, "},
		{"skill greeter is installed", "hello Bob", "Greets people"},
	}
	if len(blocks) != len(wants) {
		t.Fatalf("the README has %d tested blocks", len(blocks))
	}
	s := start(t, options{})
	here := t.TempDir()
	for i, block := range blocks {
		block, _, _ = strings.Cut(block, "\n```")
		script := strings.NewReplacer("localhost:8080", strings.TrimPrefix(s.url, "http://"), "curl -s", "curl -sf", "sudo bin/skerry", filepath.Join(bin, "skerry"), "bin/skerry", filepath.Join(bin, "skerry")).Replace(block)
		cmd := exec.Command("bash", "-euo", "pipefail", "-c", script)
		cmd.Dir, cmd.Env = here, append(os.Environ(), "SKERRY_SERVER="+s.url,
			// doctor reads what the server reads
			"SKERRY_DATA="+s.data, "SKERRY_DISK_QUOTA=off", "SKERRY_DRIVER=oci", "SKERRY_LISTEN="+strings.TrimPrefix(s.url, "http://"),
			"SKERRY_TEMPLATES="+filepath.Join(s.data, "templates"), "SKERRY_IMAGES="+filepath.Join(cache(), "images"), "SKERRY_SKILLS="+abs(t, "../../skills"))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v:\n%s", err, out)
		}
		for _, want := range wants[i] {
			if !strings.Contains(string(out), want) {
				t.Errorf("%s is not in the output:\n%s", want, out)
			}
		}
	}
}

// TestQuickstart runs the blocks of docs/quickstart.md as they stand there, and looks for what they are said to print.
func TestQuickstart(t *testing.T) {
	need(t, have("curl") && have("node"), "curl and node")
	text, err := os.ReadFile("../../docs/quickstart.md")
	must(t, err)
	page := string(text)
	if !strings.Contains(page, "\nsudo bin/skerry serve --data /tmp/skerry\n") {
		t.Error("the server is started in another way than here: change both")
	}
	modules := filepath.Join(cache(), "mcp/node_modules/@modelcontextprotocol")
	_, err = os.Stat(filepath.Join(modules, "server-filesystem/dist/index.js"))
	need(t, err == nil, "the npm package server-filesystem")
	blocks := strings.Split(page, "<!-- tested by internal/e2e TestQuickstart -->\n```sh\n")[1:]
	if len(blocks) != 5 {
		t.Fatalf("%d tested blocks", len(blocks))
	}
	s := start(t, options{})
	folder := sharedFolder(t)
	for _, block := range blocks {
		block, rest, _ := strings.Cut(block, "\n```\n")
		script := strings.NewReplacer("localhost:8080", strings.TrimPrefix(s.url, "http://"), "curl -s ", "curl -sf ", "bin/skerry", filepath.Join(bin, "skerry"),
			"/var/cache/skerry/mcp/node_modules/@modelcontextprotocol", modules, "/tmp/quickstart", folder).Replace(block)
		cmd := exec.Command("bash", "-euo", "pipefail", "-c", script)
		cmd.Env = append(os.Environ(), "SKERRY_SERVER="+s.url)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v:\n%s\n%s", err, block, out)
		}
		printed, shown := strings.CutPrefix(rest, "\n```\n")
		if !shown {
			continue
		}
		printed, _, _ = strings.Cut(printed, "\n```")
		for line := range strings.Lines(printed) {
			for _, part := range strings.Split(strings.TrimSpace(line), "…") {
				if !strings.Contains(string(out), part) {
					t.Errorf("%q is not in what this prints:\n%s\n%s", part, block, out)
				}
			}
		}
	}
}
