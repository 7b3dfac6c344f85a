package skills

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestTenantsShareNoInode: what tells of a file's use is the inode, which two tenants must not have in common. Two
// sandboxes of one tenant may.
func TestTenantsShareNoInode(t *testing.T) {
	h := many(t, 3)
	dir := t.TempDir()
	views, err := NewViews(filepath.Join(dir, "skills"))
	if err != nil {
		t.Fatal(err)
	}
	view := h.set(t, anna).View(nil, nil)
	folder := func(name, tenant string) *Folder {
		t.Helper()
		f, err := views.Folder(filepath.Join(dir, name))
		if err == nil {
			err = f.Show(tenant, view)
		}
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	inode := func(f *Folder) os.FileInfo {
		t.Helper()
		info, err := os.Stat(filepath.Join(f.Skills(), "public/skill-0001/SKILL.md"))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != 0o644 {
			t.Errorf("mode %v", info.Mode())
		}
		return info
	}
	waiting, first := folder("waiting", ""), folder("first", storeTenant)
	red, again, blue := folder("red", "red"), folder("again", "red"), folder("blue", "blue")
	if !os.SameFile(inode(waiting), inode(first)) || !os.SameFile(inode(red), inode(again)) {
		t.Error("files of one tenant are copied for each sandbox")
	}
	for _, pair := range [][2]*Folder{{first, red}, {first, blue}, {red, blue}} {
		if os.SameFile(inode(pair[0]), inode(pair[1])) {
			t.Errorf("%s and %s have a file in common", pair[0].dir, pair[1].dir)
		}
	}
	for _, f := range []*Folder{first, red, blue} {
		if got := shown(t, f.Skills()); len(got) != 3 {
			t.Errorf("%s shows %q", f.dir, got)
		}
	}
	// A sandbox of the pool is claimed, and a folder is adopted by a later server.
	if err := waiting.Show("red", view); err != nil || !os.SameFile(inode(waiting), inode(red)) {
		t.Errorf("a claimed sandbox has files that are not its tenant's: %v", err)
	}
	if views, err = NewViews(filepath.Join(dir, "skills")); err != nil {
		t.Fatal(err)
	}
	before := inode(red)
	adopted, err := views.Open(red.dir)
	if err == nil {
		err = adopted.Show("red", view)
	}
	if err != nil || !os.SameFile(inode(adopted), before) {
		t.Errorf("adopted: %v", err)
	}
	if adopted, err = views.Open(red.dir); err == nil {
		err = adopted.Show("blue", view)
	}
	if err != nil || !os.SameFile(inode(adopted), inode(blue)) {
		t.Errorf("adopted for another tenant: %v", err)
	}
}

// TestTenantCopiesGo when they are not used, and with a boot of the machine. Those in use are made again.
func TestTenantCopiesGo(t *testing.T) {
	h := many(t, 1)
	dir := t.TempDir()
	views, err := NewViews(filepath.Join(dir, "skills"))
	if err != nil {
		t.Fatal(err)
	}
	old := filepath.Join(filepath.Dir(views.copies.dir), "another-boot")
	write(t, filepath.Join(old, "x/y"), "x", 0o444)
	show := func(name string) {
		t.Helper()
		f, err := views.Folder(filepath.Join(dir, name))
		if err == nil {
			err = f.Show("red", h.set(t, anna).View(nil, nil))
		}
		if err != nil || len(shown(t, f.Skills())) != 1 {
			t.Fatal(err)
		}
	}
	count := func() int {
		t.Helper()
		all, err := filepath.Glob(filepath.Join(views.copies.dir, "*", "*"))
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	show("a")
	if err := views.copies.sweep(time.Now()); err != nil || count() != 1 {
		t.Errorf("%d copies, %v", count(), err)
	}
	if _, err := os.Stat(old); !os.IsNotExist(err) {
		t.Errorf("copies of another boot are left: %v", err)
	}
	if err := views.copies.sweep(time.Now().Add(2 * copyAge)); err != nil || count() != 0 {
		t.Errorf("%d copies, %v", count(), err)
	}
	show("b")
	if count() != 1 {
		t.Errorf("%d copies", count())
	}
}
