package paths

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

func TestCleanRefuses(t *testing.T) {
	for name, want := range map[string]sandbox.Kind{
		"":                                       sandbox.Invalid,
		"workspace/a":                            sandbox.Invalid,
		"/mnt/user-data/../x":                    sandbox.Invalid,
		"/mnt/user-data/workspace/..":            sandbox.Invalid,
		"/mnt/user-data/a\x00b":                  sandbox.Invalid,
		"/mnt/user-data/\xff":                    sandbox.Invalid,
		"/mnt/user-data/workspace/.skerry-tmp-1": "",
		"/mnt/user-data/" + strings.Repeat("a", 256):                         sandbox.Invalid,
		"/mnt/user-data/" + strings.Repeat("a/", 130):                        sandbox.Invalid,
		"/mnt/user-data/" + strings.Repeat(strings.Repeat("a", 200)+"/", 21): sandbox.Invalid,
		"/":                            sandbox.Forbidden,
		"/mnt":                         sandbox.Forbidden,
		"/etc/passwd":                  sandbox.Forbidden,
		"/mnt/user-data2":              sandbox.Forbidden,
		"/mnt/user-data":               "",
		"/mnt//user-data/./workspace/": "",
	} {
		got, err := Clean(name)
		if sandbox.KindOf(err) != want {
			t.Errorf("Clean(%.60q) = %q, %v; want %q", name, got, err, want)
		}
	}
}

func FuzzClean(f *testing.F) {
	for _, s := range []string{"/mnt/user-data/workspace/a.txt", "/mnt/skills/../..", "/mnt/user-data//./x", "\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		got, err := Clean(name)
		if err != nil {
			if k := sandbox.KindOf(err); k != sandbox.Invalid && k != sandbox.Forbidden {
				t.Fatalf("Clean(%q): kind %q", name, k)
			}
			return
		}
		if !inRoots(got) || strings.ContainsRune(got, 0) || filepath.Clean(got) != got {
			t.Fatalf("Clean(%q) = %q", name, got)
		}
		for _, e := range elements(got) {
			if e == ".." || e == "." {
				t.Fatalf("Clean(%q) = %q", name, got)
			}
		}
		if again, err := Clean(got); err != nil || again != got {
			t.Fatalf("Clean(Clean(%q)) = %q, %v", name, again, err)
		}
	})
}

// FuzzLink walks through a symbolic link with any target: nothing outside may ever be read.
func FuzzLink(f *testing.F) {
	for _, s := range []string{"../../secret", "/etc/passwd", "/mnt/user-data/../../etc", "a/../../../../secret", "//mnt//user-data", "..", ".", "/", "self"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, target string) {
		v, host := thread(t)
		put(t, filepath.Join(filepath.Dir(host), "secret"), "SECRET")
		if os.Symlink(target, filepath.Join(host, "workspace/self")) != nil {
			t.Skip("no valid target")
		}
		for _, name := range []string{ws + "/self", ws + "/self/secret", ws + "/self/etc/passwd"} {
			text, err := v.Read(name, 0, 0)
			if err == nil && !strings.HasPrefix(text.Path, "/mnt/") {
				t.Fatalf("Read through %q: %q", target, text.Path)
			}
			if strings.Contains(text.Content, "SECRET") || strings.Contains(text.Content, "root:") {
				t.Fatalf("Read through %q left the thread", target)
			}
			if k := sandbox.KindOf(err); k == sandbox.Internal {
				t.Fatalf("Read through %q: %v", target, err)
			}
		}
	})
}

func TestLinksInside(t *testing.T) {
	f, host := thread(t)
	put(t, filepath.Join(host, "workspace/real.txt"), "real")
	put(t, filepath.Join(host, "uploads/up.txt"), "up")
	mkdirs(t, filepath.Join(host, "workspace/lib/python3"))
	put(t, filepath.Join(host, "workspace/lib/python3/x.py"), "x")
	for name, target := range map[string]string{
		"rel":    "real.txt",
		"abs":    ws + "/real.txt",
		"cross":  "../uploads/up.txt",
		"lib64":  ws + "/lib",
		"skill":  "/mnt/skills/public/csv/SKILL.md",
		"chain":  "abs",
		"dotdot": "lib/python3/../../real.txt",
		"viadir": "lib64/../real.txt", // ".." is of where the link leads: workspace/lib/..
	} {
		link(t, target, filepath.Join(host, "workspace", name))
	}
	for name, want := range map[string]string{
		"rel": "real", "abs": "real", "cross": "up", "lib64/python3/x.py": "x", "skill": "# csv\n", "chain": "real", "dotdot": "real", "viadir": "real",
	} {
		got, err := f.Read(ws+"/"+name, 0, 0)
		if err != nil || got.Content != want {
			t.Errorf("Read %s = %q, %v; want %q", name, got.Content, err, want)
		}
	}
	e, err := f.Stat(ws + "/abs")
	if err != nil || e.Symlink != ws+"/real.txt" || e.Bytes != 4 || e.IsDir {
		t.Errorf("Stat abs = %+v, %v", e, err)
	}
	// A write goes to the target; the link stays.
	if w := write(t, f, ws+"/abs", "new"); w.Path != ws+"/real.txt" || w.Created {
		t.Errorf("Write abs = %+v", w)
	}
	if fi, err := os.Lstat(filepath.Join(host, "workspace/abs")); err != nil || fi.Mode()&os.ModeSymlink == 0 {
		t.Error("the link was replaced")
	}
	link(t, "fresh.txt", filepath.Join(host, "workspace/dangling"))
	if w := write(t, f, ws+"/dangling", "n"); w.Path != ws+"/fresh.txt" || !w.Created {
		t.Errorf("Write dangling = %+v", w)
	}
}

func TestLinksOut(t *testing.T) {
	f, host := thread(t)
	outside := filepath.Join(filepath.Dir(host), "outside")
	mkdirs(t, outside)
	put(t, filepath.Join(outside, "secret"), "secret")
	for name, target := range map[string]string{
		"etc": "/etc", "host": outside, "up": "../../outside", "proc": "/proc/self/root", "mnt": "/mnt", "root": "/", "top": "..", "far": "../../../../../../../../../etc",
	} {
		link(t, target, filepath.Join(host, "workspace", name))
	}
	ctx := context.Background()
	for _, name := range []string{"etc/passwd", "etc", "host/secret", "up/secret", "proc/etc/passwd", "mnt", "root", "far/passwd"} {
		v := ws + "/" + name
		if _, err := f.Read(v, 0, 0); !errors.Is(err, ErrLeaves) || strings.Contains(err.Error(), host) {
			t.Errorf("Read %s: %v", name, err)
		}
		if _, err := f.Write(ctx, v, strings.NewReader("x"), false); !errors.Is(err, ErrLeaves) {
			t.Errorf("Write %s: %v", name, err)
		}
		if _, err := f.List(ctx, v, 1, 0); !errors.Is(err, ErrLeaves) {
			t.Errorf("List %s: %v", name, err)
		}
		wantKind(t, errOf(f.Mkdir(v+"/new")), sandbox.Forbidden)
	}
	// The top of user-data does not change, by any way to it.
	for _, name := range []string{"/mnt/user-data/x", ws + "/top/x"} {
		wantKind(t, errOf(f.Write(ctx, name, strings.NewReader("x"), false)), sandbox.Forbidden)
		wantKind(t, errOf(f.Mkdir(name)), sandbox.Forbidden)
	}
	for _, name := range []string{ws, "/mnt/user-data", ws + "/top/outputs"} {
		wantKind(t, f.Remove(ctx, name, true), sandbox.Forbidden)
		wantKind(t, errOf(f.Move(name, ws+"/y")), sandbox.Forbidden)
	}
	wantKind(t, errOf(f.Write(ctx, "/mnt/skills/public/csv/SKILL.md", strings.NewReader("x"), false)), sandbox.Forbidden)
	wantKind(t, errOf(f.Write(ctx, "/mnt/plugins/a", strings.NewReader("x"), false)), sandbox.Forbidden)
	wantKind(t, f.Remove(ctx, "/mnt/skills/public", true), sandbox.Forbidden)
	// A link is removed and moved itself.
	if err := f.Remove(ctx, ws+"/host", true); err != nil {
		t.Error(err)
	}
	if e, err := f.Move(ws+"/etc", ws+"/etc2"); err != nil || e.Symlink != "/etc" {
		t.Errorf("Move = %+v, %v", e, err)
	}
	if b, err := os.ReadFile(filepath.Join(outside, "secret")); err != nil || string(b) != "secret" {
		t.Error("the outside changed")
	}
	// Listing names the links and follows none.
	l, err := f.List(ctx, ws, 5, 0)
	if err != nil || len(l.Items) != 7 {
		t.Errorf("List = %+v, %v", l, err)
	}
}

func errOf[T any](_ T, err error) error { return err }

func TestLinkLoop(t *testing.T) {
	f, host := thread(t)
	link(t, "b", filepath.Join(host, "workspace/a"))
	link(t, "a", filepath.Join(host, "workspace/b"))
	wantKind(t, errOf(f.Read(ws+"/a", 0, 0)), sandbox.Invalid)
	// Links that double the path at each hop end too.
	link(t, "x/x/x/x/x/x/x/x", filepath.Join(host, "workspace/x"))
	wantKind(t, errOf(f.Read(ws+"/x", 0, 0)), sandbox.Invalid)
}

// within fails the test when do takes longer than a second: something waited for a FIFO.
func within(t *testing.T, what string, do func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); do() }()
	select {
	case <-done:
	case <-time.After(5 * time.Second):
		t.Fatalf("%s blocks", what)
	}
}

func TestSpecialFiles(t *testing.T) {
	f, host := thread(t)
	if err := syscall.Mkfifo(filepath.Join(host, "workspace/fifo"), 0o666); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(host, "workspace/sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // test
	ctx := context.Background()
	for _, name := range []string{"fifo", "sock"} {
		v := ws + "/" + name
		within(t, name, func() {
			wantKind(t, errOf(f.Read(v, 0, 0)), sandbox.Invalid)
			wantKind(t, errOf(f.Open(v)), sandbox.Invalid)
			wantKind(t, errOf(f.Write(ctx, v, strings.NewReader("x"), false)), sandbox.Invalid)
			wantKind(t, errOf(f.Write(ctx, v, strings.NewReader("x"), true)), sandbox.Invalid)
			wantKind(t, errOf(f.Edit(ctx, v, "a", "b", false)), sandbox.Invalid)
			wantKind(t, errOf(f.List(ctx, v, 1, 0)), sandbox.Invalid)
			wantKind(t, errOf(f.Read(v+"/x", 0, 0)), sandbox.Invalid)
			if _, err := f.Grep(ctx, v, GrepOptions{Pattern: "x"}); err != nil {
				t.Error(err)
			}
		})
	}
	within(t, "walks", func() {
		if _, err := f.Grep(ctx, ws, GrepOptions{Pattern: "x"}); err != nil {
			t.Error(err)
		}
		s, err := f.Snapshot(ctx)
		if err != nil || !s.OK() || len(s.files) != 0 {
			t.Errorf("Snapshot = %+v, %v", s, err)
		}
	})
	if err := f.Remove(ctx, ws+"/fifo", false); err != nil {
		t.Error(err)
	}
}

// TestSwap lets a goroutine, in the place of hostile code, swap a folder for links and FIFOs while
// the server works in it. Nothing outside may change content, owner or entries, and nothing may hang.
func TestSwap(t *testing.T) {
	const uid = 1_234_567
	f, host := thread(t, func(o *Options) {
		if os.Geteuid() == 0 {
			o.UID = uid
		}
	})
	outside := filepath.Join(filepath.Dir(host), "outside")
	mkdirs(t, filepath.Join(outside, "d"))
	put(t, filepath.Join(outside, "d/victim"), "victim")
	work := filepath.Join(host, "workspace")
	mkdirs(t, filepath.Join(work, "good/d"))
	put(t, filepath.Join(work, "good/d/victim"), "mine")

	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { swap(work, outside, stop) })
	deadline := time.Now().Add(1500 * time.Millisecond)
	within(t, "an operation", func() {
		ctx := context.Background()
		for i := 0; time.Now().Before(deadline) && i < 2000; i++ {
			v := ws + "/x/d/victim"
			_, _ = f.Write(ctx, v, strings.NewReader("server"), i%2 == 0)
			_, _ = f.Write(ctx, fmt.Sprintf("%s/x/d/new%d/file", ws, i%7), strings.NewReader("server"), false)
			_, _ = f.Edit(ctx, v, "server", "edited", true)
			_, _ = f.Mkdir(fmt.Sprintf("%s/x/d/e%d/g", ws, i%5))
			_, _ = f.Move(ws+"/x/d/e1", ws+"/x/e2")
			if text, err := f.Read(v, 0, 0); err == nil && strings.Contains(text.Content, "victim") {
				t.Error("read the outside")
			}
			_, _ = f.List(ctx, ws, 3, 0)
			_ = f.Remove(ctx, fmt.Sprintf("%s/x/d/e%d", ws, i%3), true)
			_ = f.Remove(ctx, ws+"/x/d", i%50 == 0)
		}
	})
	close(stop)
	wg.Wait()
	if err := os.Remove(filepath.Join(host, StageDir)); err != nil {
		t.Errorf("what was staged is left: %v", err)
	}
	checkOutside(t, outside, host)
}

// swap makes work/x by turns the folder good, a link out of the thread, a link to its top, and a FIFO.
func swap(work, outside string, stop <-chan struct{}) {
	x := filepath.Join(work, "x")
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		default:
		}
		switch i % 4 {
		case 0:
			_ = os.MkdirAll(filepath.Join(work, "good/d"), 0o755)
			_ = os.Rename(filepath.Join(work, "good"), x)
			time.Sleep(time.Millisecond)
			_ = os.Rename(x, filepath.Join(work, "good"))
			continue
		case 1:
			_ = os.Symlink(outside, x)
		case 2:
			_ = os.Symlink("../..", x)
		case 3:
			_ = syscall.Mkfifo(x, 0o666)
		}
		time.Sleep(50 * time.Microsecond)
		_ = os.Remove(x)
	}
}

func checkOutside(t *testing.T, outside, host string) {
	t.Helper()
	want := map[string]bool{outside: true, filepath.Join(outside, "d"): true, filepath.Join(outside, "d/victim"): true}
	err := filepath.Walk(outside, func(name string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		if !want[name] {
			t.Errorf("outside gained %s", name)
		}
		delete(want, name)
		if st := info.Sys().(*syscall.Stat_t); int(st.Uid) != os.Geteuid() {
			t.Errorf("%s has owner %d", name, st.Uid)
		}
		return nil
	})
	if err != nil || len(want) > 0 {
		t.Errorf("outside lost %v, %v", want, err)
	}
	if b, err := os.ReadFile(filepath.Join(outside, "d/victim")); err != nil || string(b) != "victim" {
		t.Errorf("outside content %q, %v", b, err)
	}
	entries, err := os.ReadDir(host)
	if err != nil || len(entries) != 3 {
		t.Errorf("top of the thread = %v, %v", entries, err)
	}
	for _, e := range append(entries, nil) {
		name := host
		if e != nil {
			name = filepath.Join(host, e.Name())
		}
		info, err := os.Lstat(name)
		if err != nil {
			t.Fatal(err)
		}
		if st := info.Sys().(*syscall.Stat_t); int(st.Uid) != os.Geteuid() {
			t.Errorf("%s has owner %d", name, st.Uid)
		}
	}
}

func TestOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("changing owners needs root")
	}
	const uid = 1_000_042
	f, host := thread(t, func(o *Options) { o.UID = uid })
	for _, d := range fixedDirs {
		if err := os.Chown(filepath.Join(host, d), uid, uid); err != nil {
			t.Fatal(err)
		}
	}
	write(t, f, ws+"/a/b/c.sh", "x")
	if err := os.Chmod(filepath.Join(host, "workspace/a/b/c.sh"), 0o750); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Edit(context.Background(), ws+"/a/b/c.sh", "x", "y", false); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Mkdir(ws + "/m/n"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "a/b", "a/b/c.sh", "m", "m/n"} {
		info, err := os.Lstat(filepath.Join(host, "workspace", name))
		if err != nil {
			t.Fatal(err)
		}
		if st := info.Sys().(*syscall.Stat_t); st.Uid != uid || st.Gid != uid {
			t.Errorf("%s: owner %d:%d", name, st.Uid, st.Gid)
		}
		if name == "a/b/c.sh" && info.Mode().Perm() != 0o750 {
			t.Errorf("mode %v", info.Mode())
		}
	}
	// A file that is not the thread's (put there by the administrator, say) is not added to.
	put(t, filepath.Join(host, "workspace/foreign"), "x")
	_, err := f.Write(context.Background(), ws+"/foreign", strings.NewReader("y"), true)
	wantKind(t, err, sandbox.Forbidden)
}

func TestRemoveDeep(t *testing.T) {
	f, host := thread(t)
	deep(t, filepath.Join(host, "workspace/deep"), 3000)
	ctx := context.Background()
	wantKind(t, f.Remove(ctx, ws+"/deep", false), sandbox.Conflict)
	l, err := f.Glob(ctx, ws, "**/nothing")
	if err != nil || !l.Truncated {
		t.Errorf("Glob = %+v, %v", l, err)
	}
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	if err := f.Remove(ctx, ws+"/deep", true); err != nil {
		t.Fatal(err)
	}
	if e, err := os.ReadDir(filepath.Join(host, "workspace")); err != nil || len(e) != 0 {
		t.Errorf("left over: %v, %v", e, err)
	}
	deep(t, filepath.Join(host, "workspace/deep"), 200)
	if err := RemoveAll(ctx, host); err != nil {
		t.Fatal(err)
	}
	if err := RemoveAll(ctx, host); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(host); !os.IsNotExist(err) {
		t.Error("RemoveAll left the folder")
	}
}

// deep nests folders, deeper than a path can say, each with a file.
func deep(t *testing.T, top string, n int) {
	t.Helper()
	mkdirs(t, top)
	dir, err := os.OpenRoot(top)
	for range n {
		if err != nil {
			t.Fatal(err)
		}
		if err = dir.WriteFile("f", []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err = dir.Mkdir("d", 0o755); err != nil {
			t.Fatal(err)
		}
		var sub *os.Root
		sub, err = dir.OpenRoot("d")
		_ = dir.Close()
		dir = sub
	}
	_ = dir.Close()
}

// TestLinkThatChanges: a name that is a link when it is looked at and something else when it is read is walked anew;
// that is no failure of the server's.
func TestLinkThatChanges(t *testing.T) {
	f, host := thread(t)
	a, b := filepath.Join(host, "workspace/a"), filepath.Join(host, "workspace/b")
	put(t, a, "own")
	link(t, "real", b)
	put(t, filepath.Join(host, "workspace/real"), "own")
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			if err := unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE); err != nil {
				t.Error(err)
				return
			}
		}
	})
	defer wg.Wait()
	defer cancel()
	for end := time.Now().Add(time.Second); time.Now().Before(end); {
		text, err := f.Read(ws+"/a", 0, 0)
		if k := sandbox.KindOf(err); k == sandbox.Internal || err == nil && text.Content != "own" {
			t.Fatalf("%q, %v", text.Content, err)
		}
	}
}
