package plugins

import (
	"bytes"
	"encoding/json"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestKnowledgeWorkPlugins holds what is read of real plugins: nothing of them may get lost.
func TestKnowledgeWorkPlugins(t *testing.T) {
	dir := "../../testdata/knowledge-work-plugins"
	if _, err := os.Stat(dir); err != nil {
		t.Fatal("the test data is not there: ", err)
	}
	r, err := Inspect(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if err := r.Write(&got); err != nil {
		t.Fatal(err)
	}
	for _, p := range r.Plugins {
		for _, f := range p.Plugin.Findings {
			if f.File == "" || f.Message == "" || f.Rule == "" {
				t.Errorf("%s: a finding that says too little: %+v", p.Folder, f)
			}
		}
	}
	countAll(t, dir, r)
	const golden = "testdata/knowledge-work-plugins.golden"
	if *update {
		if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("got:\n%s\nwant:\n%s", got.Bytes(), want)
	}
}

// countAll counts in a way of its own what there is in the folder, and compares.
func countAll(t *testing.T, dir string, r *Report) {
	t.Helper()
	var manifests, skills, commands, servers, empty int
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.Name() == "plugin.json":
			manifests++
		case d.Name() == "SKILL.md":
			skills++
		case filepath.Base(filepath.Dir(p)) == "commands" && strings.HasSuffix(p, ".md"):
			commands++
		case d.Name() == ".mcp.json":
			text, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			var f struct {
				MCPServers map[string]struct{ URL *string }
			}
			if err := json.Unmarshal(text, &f); err != nil {
				return err
			}
			servers += len(f.MCPServers)
			for _, s := range f.MCPServers {
				if s.URL != nil && *s.URL == "" {
					empty++
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var got [5]int
	for _, p := range r.Plugins {
		if p.Broken { // its entry is here, its folder is not
			continue
		}
		got[0]++
		got[1] += len(p.Plugin.Skills)
		got[2] += len(p.Plugin.Commands)
		got[3] += len(p.Plugin.Servers)
		for _, s := range p.Plugin.Servers {
			if s.Problem == emptyURL {
				got[4]++
			}
		}
	}
	if want := [5]int{manifests, skills, commands, servers, empty}; got != want {
		t.Errorf("plugins, skills, commands, servers, servers without a URL: %v, in the folder are %v", got, want)
	}
}
