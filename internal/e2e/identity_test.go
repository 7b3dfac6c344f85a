package e2e

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/e2e/docblock"
)

// TestIdentityDocument runs the commands of docs/identity.md against a server, as they stand there.
func TestIdentityDocument(t *testing.T) {
	t.Parallel()
	need(t, have("curl"), "curl")
	b := docblock.Marked(t)[0]
	s := start(t, options{})
	b.Text += "echo \"ci:$(cat ci.key) key:$SKERRY_API_KEY\"\n"
	out := s.shell().run(b, "hello\n", `"stdout":"agent\n"`, `"user":"ann"`, `"actor":"root"`, `"role":"developer"`, "mail.send", "ci-*")
	_, keys, _ := strings.Cut(out, "ci:")
	ci, key, _ := strings.Cut(strings.TrimSpace(keys), " key:")
	s.key, s.user = key, "ann" // so that what was made can be deleted
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "skerry"), "exec", "ci-1", "--server", s.url, "--api-key", ci, "--", "true")
	if said, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(said), "not known, or was revoked") {
		t.Errorf("the revoked key: %v, %s", err, said)
	}
}
