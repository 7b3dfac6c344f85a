package workspace

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/workspace/quota"
)

var ada = sandbox.Owner{Tenant: "acme", User: "ada"}

func openHome(t *testing.T, h *Homes, home Home, bytes int64) (dir string, uid int) {
	t.Helper()
	dir, uid, err := h.Open(t.Context(), home, bytes)
	if err != nil {
		t.Fatal(err)
	}
	return dir, uid
}

// TestHomes: the same name is the same folder and uid, each home counts for its user, and one goes with what
// it belongs to.
func TestHomes(t *testing.T) {
	f, thread := newFolders(t)
	h := f.Homes()
	of := func(o sandbox.Owner, name string) Home { return Home{Owner: o, Name: name, Server: name} }
	dir, uid := openHome(t, h, of(ada, "one"), 1<<20)
	if again, same := openHome(t, h, of(ada, "one"), 1<<20); again != dir || same != uid {
		t.Errorf("%s of %d, then %s of %d", dir, uid, again, same)
	}
	if _, other := openHome(t, h, of(ada, "two"), 1<<20); other == uid {
		t.Error("two homes have one uid")
	}
	if info, err := os.Lstat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "f"), make([]byte, 10<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	if n, err := h.Measure(t.Context(), ada); err != nil || n < 10<<10 {
		t.Errorf("%d bytes, %v", n, err)
	}
	for _, name := range []string{"../x", "", ".", "..", "a/b"} {
		if _, _, err := h.Open(t.Context(), of(ada, name), 1<<20); err == nil {
			t.Errorf("a home may have the name %q", name)
		}
	}

	shared, _ := openHome(t, h, of(sandbox.Owner{}, "shared"), 1<<20)
	own := Home{Owner: thread.Owner, Name: "own", Server: "own", Thread: thread.ID}
	ownDir, _ := openHome(t, h, own, 1<<20)
	var seen []Home
	if err := h.Sweep(t.Context(), func(home Home) bool { seen = append(seen, home); return home.Name == "two" }); err != nil {
		t.Fatal(err)
	}
	if len(seen) != 4 || seen[0].Owner != (sandbox.Owner{}) || seen[1] != own {
		t.Errorf("%+v", seen)
	}
	if err := h.RemoveOf(t.Context(), thread); err != nil {
		t.Fatal(err)
	}
	for path, there := range map[string]bool{dir: true, shared: true, ownDir: false, strings.Replace(dir, "one", "two", 1): false} {
		if _, err := os.Lstat(path); (err == nil) != there || err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if err := errors.Join(h.Remove(t.Context(), ada, "one"), h.Remove(t.Context(), ada, "one")); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(h.threads(ada)); err != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
}

// TestFormerHome: a home of an earlier version keeps its files and its uid, unless it has more than its
// limit.
func TestFormerHome(t *testing.T) {
	f, _ := newFolders(t)
	h := f.Homes()
	for name, size := range map[string]int{"small": 10, "large": 2 << 20} {
		if err := errors.Join(os.MkdirAll(h.former(name), 0o700), os.WriteFile(filepath.Join(h.former(name), "state"), make([]byte, size), 0o600),
			os.Chown(h.former(name), 1_500_000, 1_500_000)); err != nil {
			t.Fatal(err)
		}
	}
	dir, uid := openHome(t, h, Home{Owner: ada, Name: "small"}, 1<<20)
	if text, err := os.ReadFile(filepath.Join(dir, "state")); uid != 1_500_000 || err != nil || len(text) != 10 {
		t.Errorf("uid %d, %d bytes, %v", uid, len(text), err)
	}
	if _, err := os.Lstat(h.former("small")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the former folder: %v", err)
	}
	if _, _, err := h.Open(t.Context(), Home{Owner: ada, Name: "large"}, 1<<20); !errors.Is(err, sandbox.QuotaExceeded) {
		t.Errorf("2 MiB of 1: %v", err)
	}
	if _, err := os.Lstat(filepath.Join(h.former("large"), "state")); err != nil {
		t.Error(err)
	}
	if left, err := filepath.Glob(filepath.Join(h.threads(ada), ".new-*")); err != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
}

// TestHomesAreBounded: a home's program gets no more space than its limit and the user's, which the user's
// threads share, also after a restart, when the home has more than a lowered limit.
func TestHomesAreBounded(t *testing.T) {
	_, noExt4 := exec.LookPath("mkfs.ext4")
	_, noBtrfs := exec.LookPath("mkfs.btrfs")
	if os.Getuid() != 0 || noExt4 != nil && noBtrfs != nil {
		t.Skip("an image needs root and mkfs")
	}
	data := t.TempDir()
	for dir := data; dir != "/"; dir = filepath.Dir(dir) {
		_ = os.Chmod(dir, 0o711) //nolint:gosec // the uid of the home passes through
	}
	open := func() *Folders {
		v, err := quota.Open(t.Context(), quota.Options{Data: data, Mode: quota.Image, ImageBytes: 320 << 20, UserBytes: 24 << 20})
		if err != nil {
			t.Fatal(err)
		}
		return New(Options{DataDir: data, Disk: v, UIDs: &uids{}, Log: slog.New(slog.DiscardHandler)})
	}
	t.Cleanup(func() { _ = unix.Unmount(filepath.Join(data, "tenants"), 0) })
	f := open()
	h := f.Homes()
	home := Home{Owner: ada, Name: "h", Server: "h"}
	dir, uid := openHome(t, h, home, 16<<20)
	write := func(dir string, uid, mib int, name string) error {
		cmd := exec.CommandContext(t.Context(), "dd", "if=/dev/urandom", "of="+name, "bs=1M", "count="+string(rune('0'+mib/10))+string(rune('0'+mib%10)), "conv=fsync")
		cmd.Dir, cmd.SysProcAttr = dir, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}} //nolint:gosec // small
		out, err := cmd.CombinedOutput()
		if err != nil && !strings.Contains(string(out), "No space left") && !strings.Contains(string(out), "uota exceeded") {
			t.Fatalf("%v: %s", err, out)
		}
		return err
	}
	if write(dir, uid, 32, "big") == nil {
		t.Error("32 MiB fitted into a home of 16")
	}
	thread := sandbox.Thread{Owner: ada, ID: "t"}
	threadUID, err := f.Make(t.Context(), f.Dir(thread), Fill)
	if err == nil {
		err = f.Bound(thread, threadUID, 16<<20)
	}
	if err != nil {
		t.Fatal(err)
	}
	if write(filepath.Join(f.Dir(thread), "workspace"), threadUID, 12, "more") == nil {
		t.Error("a home and a thread have 28 MiB, of 24 that the user may have")
	}

	f = open()
	again, same := openHome(t, f.Homes(), home, 4<<20)
	if info, err := os.Stat(filepath.Join(again, "big")); again != dir || same != uid || err != nil || info.Size() < 8<<20 {
		t.Errorf("%s of %d: %v, %v", again, same, info, err)
	}
	if write(dir, uid, 1, "small") == nil {
		t.Error("a home with more than its limit got more space")
	}
	if err := os.Remove(filepath.Join(dir, "big")); err != nil {
		t.Fatal(err)
	}
	if err := write(dir, uid, 1, "small"); err != nil {
		t.Errorf("no room after files are gone: %v", err)
	}
	if err := f.Homes().Remove(t.Context(), ada, "h"); err != nil {
		t.Error(err)
	}
}
