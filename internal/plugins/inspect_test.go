package plugins

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestInspectMarketplace: the plugins that a marketplace brings are read wherever in its folder they are, and one that
// is not there is said to be broken.
func TestInspectMarketplace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		".claude-plugin/marketplace.json": `{"name":"ours","owner":{"name":"we"},"plugins":[
			{"name":"deep","source":"./plugins/deep"},{"name":"gone","source":"./plugins/gone"},{"name":"bare","source":"./bare","description":"by its entry alone"},
			{"name":"far","source":{"source":"github","repo":"o/r"}}]}`,
		"plugins/deep/.claude-plugin/plugin.json": `{"name":"deep","version":"1.0.0"}`,
		"bare/README.md":                    "nothing that looks like a plugin",
		"beside/.claude-plugin/plugin.json": `{"name":"beside"}`,
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	r, err := Inspect(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range r.Plugins {
		name := p.Folder + " " + p.Plugin.Name
		if p.Broken {
			name += " broken"
		}
		got = append(got, name)
	}
	if want := []string{"bare bare", "beside beside", "plugins/deep deep", "plugins/gone gone broken"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
