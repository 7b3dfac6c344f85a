package quota

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/platform/rename/refused"
)

const (
	imageBytes = 320 << 20
	uid        = 1_234_567
)

// folder is a folder that uids of threads can pass through. It is in memory where it can be: at a limit, btrfs writes
// a transaction for nearly every file, which a busy disk makes minutes of.
func folder(t testing.TB) string {
	t.Helper()
	base := "/dev/shm"
	if unix.Access(base, unix.W_OK) != nil {
		base = ""
	}
	dir, err := os.MkdirTemp(base, "skerry-disk-")
	if err == nil {
		err = os.Chmod(dir, 0o711) //nolint:gosec // see above
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// open makes a data folder with an image, which is unmounted when the test ends.
func open(t *testing.T, data string, o Options) *Volume {
	t.Helper()
	o.Data, o.Log = data, slog.New(slog.NewTextHandler(t.Output(), nil))
	if o.Mode == "" {
		o.Mode, o.ImageBytes = Image, max(o.ImageBytes, imageBytes)
	}
	t.Cleanup(func() { _ = unix.Unmount(filepath.Join(data, "tenants"), 0) })
	v, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// ways calls test for an image and for each file system whose quotas this kernel has, mounted where the threads
// are. There is always one: without an image this host cannot hold a limit at all.
func ways(t *testing.T, test func(t *testing.T, o Options, data string)) {
	t.Run("image", func(t *testing.T) { test(t, Options{}, folder(t)) })
	for _, k := range append(kinds, kind{
		fs: "xfs", make: []string{"mkfs.xfs", "-q", "-f", "-K"}, options: "usrquota,prjquota", ready: func(string) error { return nil },
	}) {
		data := folder(t)
		if err := native(t, data, k); err != nil {
			t.Logf("not tried on %s: %v", k.fs, err)
		} else {
			t.Run(k.fs, func(t *testing.T) { test(t, Options{Mode: Kernel}, data) }) // unmounts it
		}
		must(t, os.Remove(filepath.Join(data, "by-hand.img")))
	}
}

// native mounts a file system with quotas, as an administrator would.
func native(t *testing.T, data string, k kind) error {
	t.Helper()
	file, root := filepath.Join(data, "by-hand.img"), filepath.Join(data, "tenants")
	if err := errors.Join(reserve(file, imageBytes, false), os.Mkdir(root, 0o711), run(t.Context(), append(k.make, file)...)); err != nil {
		return err
	}
	if err := mount(file, root, k); err != nil {
		return err
	}
	t.Cleanup(func() { _ = unix.Unmount(root, 0) })
	must(t, os.Chmod(root, 0o711)) //nolint:gosec // see folder
	return k.ready(root)
}

// thread makes a thread of a user with a folder that belongs to uid, as the server does.
func thread(t *testing.T, v *Volume, user, name string, uid int, bytes int64) string {
	t.Helper()
	threads := filepath.Join(v.root, "acme", "users", user, "threads")
	dir := filepath.Join(threads, name)
	stage := filepath.Join(threads, ".new-"+name)
	must(t, v.MakeUser(threads))
	must(t, os.Mkdir(stage, 0o755))
	must(t, v.MakeThread(filepath.Join(stage, "files")))
	must(t, os.Mkdir(filepath.Join(stage, "files", "workspace"), 0o700))
	must(t, os.Chown(filepath.Join(stage, "files", "workspace"), uid, uid))
	must(t, os.Rename(filepath.Join(stage, "files"), dir))
	must(t, os.Remove(stage))
	must(t, v.Limit(dir, uid, bytes))
	return dir
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// asCode runs a shell command in a thread's workspace like code in a sandbox: with its uid and without
// capabilities.
func asCode(t *testing.T, dir string, uid int, script string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", script)
	cmd.Dir = filepath.Join(dir, "workspace")
	id := uint32(uid) //nolint:gosec // small
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: id, Gid: id}}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func isFull(out string) bool {
	return strings.Contains(out, "No space left") || strings.Contains(out, "uota exceeded")
}

func TestCodeCannotPassTheLimit(t *testing.T) { ways(t, codeCannotPassTheLimit) }

func codeCannotPassTheLimit(t *testing.T, o Options, data string) {
	o.UserBytes = 24 << 20
	v := open(t, data, o)
	if !v.State().Enforced || o.Mode == "" && !strings.Contains(v.State().String(), "image of 320 MiB") {
		t.Fatalf("state %q", v.State())
	}
	a := thread(t, v, "ada", "a", uid, 16<<20)
	b := thread(t, v, "ada", "b", uid+1, 16<<20)
	c := thread(t, v, "bob", "c", uid+2, 16<<20)

	out, err := asCode(t, a, uid, "dd if=/dev/urandom of=big bs=1M count=64")
	if err == nil || !isFull(out) {
		t.Fatalf("64 MiB fitted into 16: %v %s", err, out)
	}
	if n := size(t, a); n < 12<<20 || n > 16<<20 {
		t.Errorf("%d bytes are there, of 16 MiB", n)
	}
	if out, err := asCode(t, b, uid+1, "dd if=/dev/urandom of=big bs=1M count=12"); err == nil || !isFull(out) {
		t.Errorf("28 MiB fitted into the 24 of the user: %v %s", err, out)
	}
	if out, err := asCode(t, c, uid+2, "dd if=/dev/urandom of=big bs=1M count=12 && sync big"); err != nil {
		t.Errorf("another user cannot write: %v %s", err, out)
	}
	if out, err := asCode(t, a, uid, "rm big && dd if=/dev/urandom of=small bs=1M count=8 && sync small"); err != nil {
		t.Errorf("no room after the file is gone: %v %s", err, out)
	}
	// Holes cost nothing and promise nothing.
	if out, err := asCode(t, a, uid, "truncate -s 1G holes && dd if=/dev/urandom of=holes bs=1M count=64 seek=100 conv=notrunc"); err == nil || !isFull(out) {
		t.Errorf("holes were filled past the limit: %v %s", err, out)
	}
}

func TestTinyFilesAreBounded(t *testing.T) { ways(t, tinyFilesAreBounded) }

func tinyFilesAreBounded(t *testing.T, o Options, data string) {
	v := open(t, data, o)
	a := thread(t, v, "ada", "a", uid, 8<<20)
	out, err := asCode(t, a, uid, `dd if=/dev/urandom of=most bs=64k count=112 2>/dev/null; for d in $(seq 1 1000); do mkdir d$d && (cd d$d && touch $(seq 1 50)) || exit 1; done 2>&1 | tail -1; ls | wc -l`)
	if err != nil || !isFull(out) {
		t.Fatalf("50,000 files fitted into 1 MiB of 8: %v %s", err, out)
	}
	if out, err := asCode(t, a, uid, "rm -rf d1 d2 && touch again"); err != nil {
		t.Errorf("no file after others are gone: %v %s", err, out)
	}
}

func TestTheServerIsHeld(t *testing.T) { ways(t, theServerIsHeld) }

func theServerIsHeld(t *testing.T, o Options, data string) {
	v := open(t, data, o)
	a := thread(t, v, "ada", "a", uid, 8<<20)
	if err := tooMuch(filepath.Join(a, "workspace", "f"), uid); err == nil {
		t.Fatal("4 MiB did not fit into 8")
	}
	must(t, v.Limit(a, uid, 2<<20))
	if err := tooMuch(filepath.Join(a, "workspace", "f"), uid); err != nil {
		t.Fatal(err)
	}
	must(t, v.Limit(a, uid, 8<<20)) // the template was changed
	if err := tooMuch(filepath.Join(a, "workspace", "f"), uid); err == nil {
		t.Fatal("4 MiB did not fit into 8")
	}
}

func TestLimitsOutliveTheServer(t *testing.T) {
	data := folder(t)
	v := open(t, data, Options{})
	a := thread(t, v, "ada", "a", uid, 8<<20)
	if out, err := asCode(t, a, uid, "echo kept > f"); err != nil {
		t.Fatal(err, out)
	}
	open(t, data, Options{})                                   // a server that was killed leaves it mounted
	must(t, unix.Unmount(filepath.Join(data, "tenants"), 0))   // a restart of the machine does not
	if _, err := os.Stat(a); !errors.Is(err, os.ErrNotExist) { // so that the next lines mean something
		t.Fatal("the thread is not in the image")
	}
	v = open(t, data, Options{ImageBytes: imageBytes + 64<<20})
	if got, err := os.ReadFile(filepath.Join(a, "workspace", "f")); err != nil || string(got) != "kept\n" {
		t.Fatal(string(got), err)
	}
	if out, err := asCode(t, a, uid, "dd if=/dev/urandom of=big bs=1M count=64"); err == nil || !isFull(out) {
		t.Errorf("the limit is lost: %v %s", err, out)
	}
	if !strings.Contains(v.State().String(), "image of 384 MiB") {
		t.Errorf("state %q", v.State())
	}
	var s unix.Statfs_t
	must(t, unix.Statfs(v.root, &s))
	if all := int64(s.Blocks) * s.Bsize; all < 350<<20 { //nolint:gosec // small
		t.Errorf("the file system has %d bytes after the image has grown", all)
	}
}

// TestImageHeldElsewhere: a sandbox, or the namespace of an earlier server, can have the image mounted when a server
// without a mount of it starts. Both then see one file system: through two loop devices each would destroy what the
// other writes.
func TestImageHeldElsewhere(t *testing.T) {
	data := folder(t)
	v := open(t, data, Options{})
	a := thread(t, v, "ada", "a", uid, 8<<20)
	hold := exec.Command("sh", "-c", "echo here; read go; echo late > f; read end")
	hold.Dir = filepath.Join(a, "workspace")
	hold.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS} // its mounts do not propagate
	in, err := hold.StdinPipe()
	must(t, err)
	out, err := hold.StdoutPipe()
	must(t, err)
	must(t, hold.Start())
	t.Cleanup(func() {
		_ = in.Close()
		_ = hold.Wait()
	})
	_, err = io.ReadFull(out, make([]byte, len("here\n")))
	must(t, err)
	if out, err := asCode(t, a, uid, "echo kept > g"); err != nil {
		t.Fatal(err, out)
	}
	before, err := mountedAt(v.root)
	must(t, err)
	must(t, unix.Unmount(v.root, 0))

	v = open(t, data, Options{})
	now, err := mountedAt(v.root)
	must(t, err)
	if now.device != before.device {
		t.Errorf("mounted from %s, and elsewhere from %s", now.device, before.device)
	}
	if got, err := os.ReadFile(filepath.Join(a, "workspace", "g")); err != nil || string(got) != "kept\n" {
		t.Errorf("%q, %v", got, err)
	}
	_, err = io.WriteString(in, "go\n\n")
	must(t, err)
	must(t, hold.Wait())
	if got, err := os.ReadFile(filepath.Join(a, "workspace", "f")); err != nil || string(got) != "late\n" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestDropFreesTheQuota(t *testing.T) { ways(t, dropFreesTheQuota) }

func dropFreesTheQuota(t *testing.T, o Options, data string) {
	o.UserBytes = 16 << 20
	v := open(t, data, o)
	for i := range 4 { // each takes most of what the user may have
		a := thread(t, v, "ada", fmt.Sprint("t", i), uid+i, 64<<20)
		if out, err := asCode(t, a, uid+i, "dd if=/dev/urandom of=big bs=1M count=10 && sync big"); err != nil {
			t.Fatalf("thread %d: %v %s", i, err, out)
		}
		must(t, os.RemoveAll(filepath.Join(a, "workspace")))
		v.Forget(a)
		must(t, v.Drop(a, uid+i))
		if _, err := os.Lstat(a); !errors.Is(err, os.ErrNotExist) {
			t.Fatal("the folder is still there", err)
		}
	}
}

func TestFoldersOfAServerWithoutQuotasAreTakenOver(t *testing.T) {
	data := folder(t)
	v := open(t, data, Options{Mode: Off})
	a := thread(t, v, "ada", "a", uid, 0)
	if out, err := asCode(t, a, uid, "echo one > f && ln f g && ln -s /etc/passwd l && mkfifo p && truncate -s 50M holes && chmod 640 f"); err != nil {
		t.Fatal(err, out)
	}
	must(t, os.WriteFile(filepath.Join(v.root, "acme", "users", "ada", "skills.json"), []byte("{}"), 0o600))

	live := Options{Data: data, Mode: Image, ImageBytes: imageBytes, Live: func(dir string) bool { return dir == "acme/users/ada/threads" }}
	if _, err := Open(t.Context(), live); err == nil || !strings.Contains(err.Error(), "end them first") {
		t.Fatalf("threads of live sandboxes were moved: %v", err)
	}

	v = open(t, data, Options{})
	must(t, v.Limit(a, uid, 8<<20))
	out, err := asCode(t, a, uid, "cat g; readlink l; test -p p && stat -c '%a %h %u' f; stat -c %s holes")
	if want := fmt.Sprintf("one\n/etc/passwd\n640 2 %d\n%d\n", uid, 50<<20); err != nil || out != want {
		t.Errorf("%v\n%s, want\n%s", err, out, want)
	}
	if _, err := os.Stat(filepath.Join(v.root, "acme", "users", "ada", "skills.json")); err != nil {
		t.Error(err)
	}
	if out, err := asCode(t, a, uid, "dd if=/dev/urandom of=big bs=1M count=64"); err == nil || !isFull(out) {
		t.Errorf("64 MiB fitted into 8: %v %s", err, out)
	}
	kept, err := filepath.Glob(filepath.Join(data, "tenants.before-image-*", "acme", "users", "ada", "threads", "a", "workspace", "f"))
	if err != nil || len(kept) != 1 {
		t.Errorf("what was copied is not kept: %v %v", kept, err)
	}
}

func TestOldThreadsCount(t *testing.T) { ways(t, oldThreadsCount) }

// What a server without quotas left counts for its thread and its user from the start on.
func oldThreadsCount(t *testing.T, o Options, data string) {
	threads := filepath.Join(data, "tenants", "acme", "users", "ada", "threads")
	a, b := filepath.Join(threads, "a"), filepath.Join(threads, "b")
	for i, dir := range []string{a, b} {
		w := filepath.Join(dir, "workspace")
		must(t, os.MkdirAll(w, 0o755))
		must(t, os.Chown(w, uid+i, uid+i))
	}
	out, err := asCode(t, a, uid, "mkdir -p deep/er; mkfifo p; ln -s / l; dd if=/dev/urandom of=deep/er/big bs=1M count=10; ln deep/er/big twice; cksum < twice")
	if err != nil {
		t.Fatal(err, out)
	}
	sum := out[strings.LastIndex(strings.TrimSpace(out), "\n")+1:]
	must(t, os.MkdirAll(filepath.Join(threads, ".deleted-1", "files"), 0o755))

	o.UserBytes = 16 << 20
	v := open(t, data, o)
	must(t, v.Limit(a, uid, 12<<20))
	must(t, v.Limit(b, uid+1, 12<<20))
	if out, err := asCode(t, a, uid, "cksum < deep/er/big; test -p p && readlink l && stat -c %h twice"); err != nil || out != sum+"/\n2\n" {
		t.Errorf("%v %q, want the sum %q", err, out, sum)
	}
	if out, err := asCode(t, a, uid, "dd if=/dev/urandom of=more bs=1M count=4; r=$?; rm more; exit $r"); err == nil || !isFull(out) {
		t.Errorf("14 MiB fitted into the 12 of the thread: %v %s", err, out)
	}
	if out, err := asCode(t, b, uid+1, "dd if=/dev/urandom of=more bs=1M count=10"); err == nil || !isFull(out) {
		t.Errorf("20 MiB fitted into the 16 of the user: %v %s", err, out)
	}
	if _, err := Open(t.Context(), v.o); err != nil { // converts nothing again
		t.Error(err)
	}
}

func TestRefusals(t *testing.T) {
	data := folder(t)
	for name, o := range map[string]Options{
		"image without a size": {Mode: Image},
		"image too small":      {Mode: Image, ImageBytes: 1 << 20},
		"image too large":      {Mode: Image, ImageBytes: 1 << 50},
	} {
		o.Data = data
		if v, err := Open(t.Context(), o); err == nil {
			t.Errorf("%s: %s", name, v.State())
		}
	}
	if left, _ := filepath.Glob(filepath.Join(data, imageName+"*")); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Open(ctx, Options{Data: data, Mode: Image, ImageBytes: imageBytes}); err == nil {
		t.Error("opened although it was given up")
	}
}

func TestInspectSaysWhatOpenFinds(t *testing.T) {
	data := folder(t)
	o := Options{Data: data, Mode: Auto, ImageBytes: imageBytes}
	for _, want := range []string{"makes when it starts", "", "mounts when it starts"} {
		if want == "" { // between the other two the image is made
			open(t, data, o)
			want = "quota" // of the file system in it
		}
		s, err := Inspect(t.Context(), o)
		if err != nil || !s.Enforced || !strings.Contains(s.String(), want) {
			t.Errorf("%q, %v; want %q", s, err, want)
		}
		if want == "quota" {
			must(t, unix.Unmount(filepath.Join(data, "tenants"), 0))
		}
	}
	if left, _ := filepath.Glob(filepath.Join(data, "tenants", ".probe*")); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
	if s, err := Inspect(t.Context(), Options{Data: "/proc/sys", Mode: Auto}); err != nil || s.Enforced {
		t.Errorf("/proc has quotas: %q %v", s, err)
	}
	if _, err := Inspect(t.Context(), Options{Data: "/proc/sys", Mode: Kernel}); err == nil {
		t.Error("/proc has quotas, when they must be there")
	}
}

func size(t *testing.T, dir string) int64 {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "du", "-s", "-B1", dir).Output()
	must(t, err)
	var n int64
	if _, err := fmt.Fscan(bytes.NewReader(out), &n); err != nil {
		t.Fatal(err)
	}
	return n
}

func BenchmarkLimit(b *testing.B) {
	data := folder(b)
	v, err := Open(b.Context(), Options{Data: data, Mode: Image, ImageBytes: imageBytes})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = unix.Unmount(v.root, 0) })
	threads := filepath.Join(v.root, "acme", "users", "ada", "threads")
	dir := filepath.Join(threads, "a")
	if err := errors.Join(v.MakeUser(threads), v.MakeThread(dir)); err != nil {
		b.Fatal(err)
	}
	b.Run("changed", func(b *testing.B) {
		for i := range b.N {
			if err := v.Limit(dir, uid, int64(8+i%2)<<20); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("same", func(b *testing.B) {
		for range b.N {
			if err := v.Limit(dir, uid, 8<<20); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("new thread", func(b *testing.B) {
		for i := range b.N {
			dir := filepath.Join(threads, fmt.Sprint("n", b.N, "-", i))
			if err := errors.Join(v.MakeThread(dir), v.Limit(dir, uid, 8<<20)); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func TestPass(t *testing.T) { ways(t, pass) }

// TestPassOnNetworkFiles: without quotas a folder moves, and replaces none, also where the file system knows no flags of rename.
func TestPassOnNetworkFiles(t *testing.T) {
	refused.Flags(t, func() {
		var v *Volume
		dir := t.TempDir()
		from, to := filepath.Join(dir, "waiting"), filepath.Join(dir, "thread")
		for _, path := range []string{from, to} {
			must(t, os.MkdirAll(filepath.Join(path, "workspace"), 0o700))
		}
		if err := v.Pass(t.Context(), from, to); !errors.Is(err, os.ErrExist) {
			t.Errorf("over a thread that is there: %v", err)
		}
		must(t, os.RemoveAll(to))
		must(t, v.Pass(t.Context(), from, to))
		if _, err := os.Lstat(filepath.Join(to, "workspace")); err != nil {
			t.Error(err)
		}
	})
}

// pass: a folder that becomes another user's is held by its new limits, its own and the user's, through what was opened before.
func pass(t *testing.T, o Options, data string) {
	o.UserBytes = 24 << 20
	v := open(t, data, o)
	from, to := thread(t, v, "pool", "spare", uid, 0), filepath.Join(v.root, "acme", "users", "bob", "threads", "t")
	must(t, v.MakeUser(filepath.Dir(to)))
	before, err := os.Open(filepath.Join(from, "workspace")) // as a mount has it
	must(t, err)
	defer before.Close() //nolint:errcheck // only a handle
	must(t, v.Pass(t.Context(), from, to))
	must(t, v.Limit(to, uid, 16<<20))
	if _, err := os.Lstat(from); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the old place: %v", err)
	}
	through := fmt.Sprintf("/proc/%d/fd/%d/", os.Getpid(), before.Fd())
	must(t, os.WriteFile(through+"seen", nil, 0o600))
	if _, err := os.Lstat(filepath.Join(to, "workspace/seen")); err != nil {
		t.Errorf("what was opened before is another folder: %v", err)
	}
	if out, err := asCode(t, to, uid, "head -c 20M /dev/zero > big; sync"); err == nil && !isFull(out) {
		t.Errorf("the thread's limit is not held: %s", out)
	}
	must(t, os.RemoveAll(filepath.Join(to, "workspace", "big")))
	// The second thread of the user finds what the first one left of the user's.
	other := thread(t, v, "bob", "other", uid+1, 0)
	if out, err := asCode(t, to, uid, "head -c 12M /dev/zero > half && sync"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out, err := asCode(t, other, uid+1, "head -c 16M /dev/zero > rest; sync"); err == nil && !isFull(out) {
		t.Errorf("the user's limit is not held: %s", out)
	}
	taken := thread(t, v, "pool", "second", uid+2, 0)
	if err := v.Pass(t.Context(), taken, to); !errors.Is(err, os.ErrExist) {
		t.Errorf("over a thread that is there: %v", err)
	}
	if _, err := os.Lstat(taken); err != nil {
		t.Errorf("it moved: %v", err)
	}
}
