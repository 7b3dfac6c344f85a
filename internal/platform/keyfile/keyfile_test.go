package keyfile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func want(t *testing.T, err error, text string) {
	t.Helper()
	if text == "" && err != nil || text != "" && (err == nil || !strings.Contains(err.Error(), text)) {
		t.Errorf("%v, want %q", err, text)
	}
}

// TestOutside: no spelling of the data folder holds a key.
func TestOutside(t *testing.T) {
	root := t.TempDir()
	data, keys, link := filepath.Join(root, "data"), filepath.Join(root, "keys"), filepath.Join(root, "link")
	for _, dir := range []string{data, keys, filepath.Join(root, "data-2")} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(data, "real"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{link: data, filepath.Join(keys, "in"): filepath.Join(data, "real")} {
		if err := os.Symlink(to, from); err != nil {
			t.Fatal(err)
		}
	}
	in := "lies in the data folder"
	want(t, Outside(filepath.Join(keys, "k"), data), "")
	want(t, Outside(filepath.Join(root, "data-2", "k"), data), "")
	want(t, Outside(filepath.Join(keys, "not", "yet", "k"), data), "")
	want(t, Outside(filepath.Join(keys, "k"), filepath.Join(root, "none")), "")
	want(t, Outside(filepath.Join(data, "k"), data), in)
	want(t, Outside(filepath.Join(keys, "..", "data", "k"), data), in)
	want(t, Outside(filepath.Join(link, "k"), data), in)
	want(t, Outside(filepath.Join(data, "k"), link), in)
	want(t, Outside(filepath.Join(keys, "in"), data), in)
}

// TestPrivate: a file that others can read or replace holds no key; a link may lead to a good one.
func TestPrivate(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "k"), filepath.Join(t.TempDir(), "link")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	mode := func(name string, m os.FileMode) {
		t.Helper()
		if err := os.Chmod(name, m); err != nil {
			t.Fatal(err)
		}
	}
	want(t, Private(file), "")
	want(t, Private(link), "")
	mode(file, 0o640)
	want(t, Private(file), "chmod 600")
	mode(file, 0o600)
	mode(dir, 0o777)
	want(t, Private(link), "chmod 755")
	mode(dir, 0o777|os.ModeSticky)
	want(t, Private(file), "")
	mode(dir, 0o755)
	want(t, Private(file+"x"), "no such file")
	if os.Geteuid() == 0 {
		if err := os.Chown(file, 4242, 4242); err != nil {
			t.Fatal(err)
		}
		want(t, Private(file), "belongs to uid 4242")
	}
}
