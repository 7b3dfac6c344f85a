package ociconfig

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// TestMountPoints: an empty root file system gets all places and the links to the workspace, twice as well as once; what an
// image has at a link's place stays.
func TestMountPoints(t *testing.T) {
	for name, own := range map[string]string{"empty": "", "a folder": "workspace", "a home": "home/user"} {
		dir := t.TempDir()
		if own != "" {
			if err := os.MkdirAll(filepath.Join(dir, own), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		root, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close() //nolint:errcheck // read
		for range 2 {
			if err := MakeMountPoints(root); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		for _, place := range []string{sandbox.UserDataDir, sandbox.SkillsDir, sandbox.RunDir, sandbox.DaemonPath} {
			if _, err := os.Stat(filepath.Join(dir, place)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, link := range sandbox.WorkspaceLinks {
			to, err := root.Readlink(link[1:])
			if "/"+own == link {
				if info, err := root.Lstat(own); err != nil || !info.IsDir() {
					t.Errorf("%s: %s is no longer the image's: %v", name, link, err)
				}
			} else if err != nil || to != sandbox.WorkspaceDir {
				t.Errorf("%s: %s leads to %q, %v", name, link, to, err)
			}
		}
	}
}
