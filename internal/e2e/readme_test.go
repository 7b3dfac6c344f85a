package e2e

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestReadme runs the commands that the README shows against a server, as they stand there.
func TestReadme(t *testing.T) {
	need(t, have("curl"), "curl")
	text, err := os.ReadFile("../../README.md")
	must(t, err)
	_, rest, ok := strings.Cut(string(text), "<!-- tested by internal/e2e TestReadme -->\n```sh\n")
	block, _, closed := strings.Cut(rest, "\n```")
	if !ok || !closed {
		t.Fatal("the README has no tested block")
	}
	s := start(t, options{})
	script := strings.ReplaceAll(block, "localhost:8080", strings.TrimPrefix(s.url, "http://"))
	out, err := exec.Command("bash", "-euo", "pipefail", "-c", strings.ReplaceAll(script, "curl -s", "curl -sf")).CombinedOutput()
	if err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	for _, want := range []string{`\ncode-api\nplugins\nskills\nuser-data\n`, `"stdout":"42\n"`, `"content":"hi"`, `"action":"execute_code"`} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%s is not in the output:\n%s", want, out)
		}
	}
}
