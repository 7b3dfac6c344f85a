package ociconfig

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/driver/engine/hardening"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// TestMountPoints: an empty root file system gets all places and the links, twice as well as once; what an image has at
// a link's place stays, but for an empty /var/tmp.
func TestMountPoints(t *testing.T) {
	for name, own := range map[string]string{"empty": "", "a folder": "workspace", "a home": "home/user", "an empty folder": "var/tmp", "a used folder": "var/tmp/a"} {
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
		for _, link := range sandbox.Links() {
			to, err := root.Readlink(link.Name[1:])
			if "/"+own == link.Name && link.Target == sandbox.WorkspaceDir || own == "var/tmp/a" && link.Name == "/var/tmp" {
				if info, err := root.Lstat(own); err != nil || !info.IsDir() {
					t.Errorf("%s: %s is no longer the image's: %v", name, link, err)
				}
			} else if err != nil || to != link.Target {
				t.Errorf("%s: %s leads to %q, %v", name, link, to, err)
			}
		}
	}
}

// TestVolumeInPlaceOfALink: a volume of an image gets a folder where a link of ours would be.
func TestVolumeInPlaceOfALink(t *testing.T) {
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close() //nolint:errcheck // read
	if err := MakeMountPoints(root); err != nil {
		t.Fatal(err)
	}
	for _, place := range []string{"/workspace", "/var/tmp"} {
		if err := MakeMountPointsOf(root, sandbox.Spec{}, []hardening.Tmpfs{{Target: place}}); err != nil {
			t.Fatal(err)
		}
		if info, err := root.Lstat(place[1:]); err != nil || !info.IsDir() {
			t.Errorf("%s is no folder: %v", place, err)
		}
	}
}
