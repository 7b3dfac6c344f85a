package quota

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// plain mounts an ext4 without quotas of so many bytes, most of them a hole, and returns a data folder on it.
func plain(t *testing.T, bytes int64) string {
	t.Helper()
	dir := folder(t)
	file, at := filepath.Join(dir, "host.img"), filepath.Join(dir, "host")
	must(t, errors.Join(os.WriteFile(file, nil, 0o600), os.Truncate(file, bytes), os.Mkdir(at, 0o711)))
	must(t, run(t.Context(), "mkfs.ext4", "-q", "-F", "-E", "nodiscard,lazy_itable_init=1,lazy_journal_init=1", file))
	must(t, mount(file, at, kind{fs: "ext4"}))
	data := filepath.Join(at, "data")
	t.Cleanup(func() {
		_ = unix.Unmount(filepath.Join(data, "tenants"), 0)
		if err := unmount(at); err != nil {
			t.Error(err)
		}
	})
	must(t, os.Mkdir(data, 0o711))
	return data
}

func TestFirstImage(t *testing.T) {
	data := plain(t, 8<<30)
	before, err := Inspect(t.Context(), Options{Data: data, Mode: Auto})
	if err != nil || !before.Enforced || !strings.Contains(before.How, "which the server makes") {
		t.Fatalf("%+v, %v", before, err)
	}
	v := open(t, data, Options{Mode: Auto})
	if s := v.State(); !s.Enforced || !strings.Contains(s.How, "image of 1") { // a quarter of a little less than 8 GiB
		t.Fatalf("%+v", s)
	}
	taken := func() int64 {
		t.Helper()
		unix.Sync()
		var s unix.Stat_t
		must(t, unix.Stat(filepath.Join(data, imageName), &s))
		return s.Blocks * 512
	}
	empty := taken()
	if empty > 256<<20 {
		t.Errorf("the empty image takes %d MiB", empty>>20)
	}
	dir := thread(t, v, "ann", "one", uid, 96<<20)
	if out, err := asCode(t, dir, uid, "dd if=/dev/urandom of=big bs=1M count=64"); err != nil {
		t.Fatal(out, err)
	}
	if full := taken(); full < empty+(48<<20) {
		t.Errorf("it takes %d MiB, and %d with 64 MiB in it", empty>>20, full>>20)
	}
	must(t, os.Remove(filepath.Join(dir, "workspace", "big")))
	for deadline := time.Now().Add(30 * time.Second); taken() > empty+(16<<20); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("what was deleted is not given back: %d MiB, once %d", taken()>>20, empty>>20)
		}
	}
	must(t, v.Limit(dir, uid, 8<<20))
	if out, err := asCode(t, dir, uid, "dd if=/dev/zero of=big bs=1M count=32"); err == nil {
		t.Errorf("code wrote past its limit: %s", out)
	}
	again := open(t, data, Options{Mode: Auto})
	if again.State() != v.State() {
		t.Errorf("%+v, then %+v", v.State(), again.State())
	}
}

func TestNoFirstImage(t *testing.T) {
	t.Run("threads are there", func(t *testing.T) {
		data := plain(t, 8<<30)
		must(t, os.MkdirAll(filepath.Join(data, "tenants/acme/users/ann/threads/one"), 0o711))
		if s := open(t, data, Options{Mode: Auto}).State(); s.Enforced || !strings.Contains(s.How, "disk_image_mib") {
			t.Errorf("%+v", s)
		}
	})
	t.Run("little room", func(t *testing.T) {
		data := plain(t, 2<<30)
		if s := open(t, data, Options{Mode: Auto}).State(); s.Enforced {
			t.Errorf("%+v", s)
		}
	})
	t.Run("memory", func(t *testing.T) {
		if size, err := firstSize("/dev/shm"); size != 0 || err != nil {
			t.Errorf("%d, %v", size, err)
		}
	})
}
