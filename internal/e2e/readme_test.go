package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/e2e/docblock"
)

// TestReadme runs the commands that the README shows against a server, as they stand there.
func TestReadme(t *testing.T) {
	t.Parallel()
	need(t, have("curl"), "curl")
	blocks := docblock.Marked(t)
	wants := [][]string{
		{`\ncode-api\ndata\nmemory\nplugins\nskills\nuser-data\n`, `"stdout":"42\n"`, `"content":"hi"`, `"action":"execute_code"`},
		{"ok       template base: ", "is ready\n", "\nA server can serve here: 0 problems, "},
		{"sk_"},
	}
	if len(blocks) != len(wants) {
		t.Fatalf("the README has %d tested blocks", len(blocks))
	}
	s := start(t, options{})
	sh := s.shell()
	for i, b := range blocks {
		out := sh.run(b, wants[i]...)
		if _, key, found := strings.Cut(out, "sk_"); found {
			s.key, _, _ = strings.Cut("sk_"+key, "\n") // from here on there is one
		}
	}
}

// TestQuickstart runs the blocks of docs/quickstart.md as they stand there, and looks for what they are said to print.
func TestQuickstart(t *testing.T) {
	whole(t, TestReadme)
	t.Parallel()
	need(t, have("curl") && have("node") && have("make"), "curl, node and make")
	blocks := docblock.Marked(t)
	if len(blocks) != 7 || blocks[0].Text != "make demo\n" || blocks[1].Text != "sudo bin/skerry serve --data /tmp/skerry\n" {
		t.Fatalf("%d tested blocks; the first builds, the second starts a server: %q", len(blocks), blocks[:2])
	}
	modules := filepath.Join(cache(), "mcp/node_modules/@modelcontextprotocol")
	_, err := os.Stat(filepath.Join(modules, "server-filesystem/dist/index.js"))
	need(t, err == nil, "the npm package server-filesystem")
	s := start(t, options{}) // as the second block, on another port
	sh := s.shell()
	sh.replace = []string{"make demo", "make -C " + abs(t, "../..") + " demo", "/var/cache/skerry/mcp/node_modules/@modelcontextprotocol", modules, "/tmp/quickstart", sharedFolder(t)}
	sh.run(blocks[0], "== Done in ")
	for _, b := range blocks[2:] {
		sh.run(b)
	}
}
