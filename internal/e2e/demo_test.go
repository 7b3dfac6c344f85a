package e2e

import (
	"bufio"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// demoTools serves the demo's tools until the test ends, and returns their URL.
func demoTools(t *testing.T) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "skerry"), "demo", "tools", "--listen", "127.0.0.1:0")
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	must(t, err)
	return strings.Fields(line)[3]
}

// TestDemoAtServer: the demo shows a server that is there, with tools and without, and leaves nothing in it.
func TestDemoAtServer(t *testing.T) {
	whole(t, TestWorkedExample)
	t.Parallel()
	for name, c := range map[string]struct{ extensions, want, not string }{
		"with tools": {
			extensions: fmt.Sprintf(`{"mcpServers":{"demo":{"url":%q}}}`, demoTools(t)),
			want:       "called demo__read_text_file: ok", not: "code will call none",
		},
		"without": {want: "code will call none", not: "called "},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, options{driver: "docker", extensions: c.extensions})
			out, err := exec.CommandContext(t.Context(), filepath.Join(bin, "skerry"), "demo", "--server", s.url).CombinedOutput()
			text := string(out)
			if err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			for _, want := range []string{c.want, "Skill csv-profile", "Command /data-analysis:explore", "| area_km2, inhabitants | +0.99 | +0.89 | 7 |", "islands together: 143.61 km2", "islands.txt has 4 rows", "the shortest name: Unst", "Done in "} {
				if !strings.Contains(text, want) {
					t.Errorf("it does not say %q:\n%s", want, text)
				}
			}
			if strings.Contains(text, c.not) {
				t.Errorf("it says %q:\n%s", c.not, text)
			}
			// Another one shows what itself did.
			again, err := exec.CommandContext(t.Context(), filepath.Join(bin, "skerry"), "demo", "--server", s.url).CombinedOutput()
			if n := strings.Count(string(again), " skill_run "); err != nil || n != 2 {
				t.Errorf("again: %v, %d records of the skill:\n%s", err, n, again)
			}
			if left := s.threads(); len(left) != 0 {
				t.Errorf("it leaves the threads %v", left)
			}
		})
	}
	out, err := exec.CommandContext(t.Context(), filepath.Join(bin, "skerry"), "demo", "--server", "http://127.0.0.1:1").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "Is a server running there?") {
		t.Errorf("without a server: %v, %s", err, out)
	}
}
