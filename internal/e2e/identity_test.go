package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestIdentityDocument runs the commands of docs/identity.md against a server, as they stand there.
func TestIdentityDocument(t *testing.T) {
	need(t, have("curl"), "curl")
	text, err := os.ReadFile("../../docs/identity.md")
	must(t, err)
	_, block, found := strings.Cut(string(text), "<!-- tested by internal/e2e TestIdentityDocument -->\n```sh\n")
	block, _, whole := strings.Cut(block, "\n```")
	if !found || !whole {
		t.Fatal("the document has no tested block")
	}
	s := start(t, options{})
	script := strings.NewReplacer("localhost:8080", strings.TrimPrefix(s.url, "http://"), "curl -s", "curl -sf", "bin/skerry", filepath.Join(bin, "skerry")).Replace(block)
	script += "\nSKERRY_API_KEY=$(cat ci.key) " + filepath.Join(bin, "skerry") + " exec ci-1 -- true && echo STILL THERE || true\necho \"key:$SKERRY_API_KEY\""
	cmd := exec.Command("bash", "-euo", "pipefail", "-c", script)
	cmd.Dir, cmd.Env = t.TempDir(), append(os.Environ(), "SKERRY_SERVER="+s.url)
	raw, err := cmd.CombinedOutput()
	out := string(raw)
	if i := strings.Index(out, "key:sk_"); i >= 0 {
		s.key, s.user = strings.TrimSpace(out[i+4:]), "ann" // so that what was made can be deleted
	}
	if err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	for _, want := range []string{"hello\n", `"stdout":"agent\n"`, `"user":"ann"`, `"actor":"root"`, `"role":"developer"`, "mail.send", "ci-*", "not known, or was revoked"} {
		if !strings.Contains(out, want) {
			t.Errorf("%s is not in the output:\n%s", want, out)
		}
	}
	if strings.Contains(out, "STILL THERE") {
		t.Error("the revoked key still works")
	}
}
