package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLargeResult: code gets a result that is too large for an answer like any other. A direct caller gets
// its beginning, and a file of the thread.
func TestLargeResult(t *testing.T) {
	whole(t, TestReturnedBytes)
	t.Parallel()
	shared := sharedFolder(t)
	text := strings.Repeat("0123456789ABCDEF", 3<<16) // 3 MiB
	if err := os.WriteFile(filepath.Join(shared, "large.txt"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	s := start(t, options{extensions: mcpServers(t, shared)})
	s.connect("connects")
	for lang, code := range map[string]string{
		"typescript": `import { readTextFile } from './servers/filesystem'; const { content } = await readTextFile({ path: '%[1]s/large.txt' }); console.log(content.length, content.slice(-3))`,
		"python":     "from servers.filesystem import read_text_file\nc = read_text_file(path='%[1]s/large.txt')['content']\nprint(len(c), c[-3:])",
	} {
		r := s.run("large", "execute_code", map[string]any{"code": fmt.Sprintf(code, shared), "language": lang})
		if want := fmt.Sprintf("%d DEF\n", len(text)); r.Stdout != want || len(r.ToolsCalled) != 1 || r.ToolsCalled[0].Status != "ok" {
			t.Errorf("%s: %+v, want %q", lang, r, want)
		}
	}
	var direct struct {
		Result string
		File   struct {
			Path, Format string
			Bytes        int64
		}
	}
	s.do("POST", "/api/threads/large/tools/call", map[string]any{"tool": "filesystem__read_text_file", "input": map[string]any{"path": shared + "/large.txt"}}).into(t, &direct)
	if direct.File.Bytes < int64(len(text)) || len(direct.Result) > 3000 || !strings.Contains(direct.Result, direct.File.Path) {
		t.Fatalf("%d characters, %+v", len(direct.Result), direct.File)
	}
	r := s.ok("large", "wc -c < "+direct.File.Path)
	if got := strings.TrimSpace(r); got != fmt.Sprint(direct.File.Bytes) {
		t.Errorf("the file has %s bytes, want %d", got, direct.File.Bytes)
	}
}
