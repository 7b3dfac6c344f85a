package skill

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

func TestManifest(t *testing.T) {
	source := t.TempDir()
	dir := filepath.Join(source, "public", "pdf")
	text := "---\nname: pdf\ndescription: reads\nmetadata: {a: 1, b: [x]}\n---\nbody"
	for p, data := range map[string]string{"SKILL.md": text, "scripts/run.py": "print(1)"} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(dir, p)), 0o755), os.WriteFile(filepath.Join(dir, p), []byte(data), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	lib, err := Publish(source, t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	m, err := lib.Manifest("pdf")
	if err != nil || len(m.Files) != 2 || m.Files[0].Path != "SKILL.md" || m.Files[1].Path != "scripts/run.py" {
		t.Fatalf("%+v, %v", m, err)
	}
	var front struct {
		Name     string
		Metadata struct{ B []string }
	}
	if err := json.Unmarshal(m.Frontmatter, &front); err != nil || front.Name != "pdf" || len(front.Metadata.B) != 1 {
		t.Errorf("%s: %v", m.Frontmatter, err)
	}
	for _, f := range m.Files {
		data, err := lib.ReadFile("pdf", f.Path)
		sum := sha256.Sum256(data)
		if err != nil || f.Bytes != int64(len(data)) || f.Digest != "sha256:"+hex.EncodeToString(sum[:]) {
			t.Errorf("%+v: %v", f, err)
		}
	}
	for _, bad := range [][2]string{{"pdf", "../../x"}, {"pdf", "/etc/passwd"}, {"pdf", "scripts"}, {"pdf", ""}, {"none", "SKILL.md"}} {
		if _, err := lib.ReadFile(bad[0], bad[1]); !errors.Is(err, sandbox.NotFound) {
			t.Errorf("%v: %v", bad, err)
		}
	}
	if _, err := lib.Manifest("../public/pdf"); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("%v", err)
	}
}
