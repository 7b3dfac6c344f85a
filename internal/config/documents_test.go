package config

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/e2e/docblock"
)

// TestDocuments: the configurations that documents show are right, each by itself. Variables are tried line by line.
func TestDocuments(t *testing.T) {
	for _, b := range docblock.Marked(t) {
		var texts []string
		var env []map[string]string
		if b.Lang == "yaml" {
			texts, env = []string{b.Text}, []map[string]string{{}}
		}
		for line := range strings.Lines(b.Text) {
			if name, value, ok := strings.Cut(line, "="); ok && b.Lang == "sh" {
				value, _, _ = strings.Cut(value, " #")
				texts, env = append(texts, ""), append(env, map[string]string{name: strings.TrimSpace(value)})
			}
		}
		if len(texts) == 0 {
			t.Errorf("%s configures nothing", b)
		}
		for i, text := range texts {
			file := filepath.Join(t.TempDir(), "skerry.yaml")
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			read := map[string]bool{}
			c, err := Load(file, func(name string) (string, bool) { v, ok := env[i][name]; read[name] = ok; return v, ok })
			if err == nil {
				err = c.Check()
			}
			if err != nil {
				t.Errorf("%s: %v", b, err)
			}
			for name := range maps.Keys(env[i]) {
				if !read[name] {
					t.Errorf("%s: %s is no variable of the configuration", b, name)
				}
			}
		}
	}
}
