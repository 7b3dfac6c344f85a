package files

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func newFS(t *testing.T) (f *FS, rw, ro string) {
	t.Helper()
	base := t.TempDir()
	rw, ro = filepath.Join(base, "rw"), filepath.Join(base, "ro")
	for _, d := range []string{rw, ro, filepath.Join(base, "secret")} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(d, "file"), []byte("content of "+filepath.Base(d)), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	return New([]Root{{Path: rw, Writable: true}, {Path: ro}, {Path: filepath.Join(base, "absent")}}), rw, ro
}

func read(t *testing.T, f *FS, name string) (string, error) {
	t.Helper()
	file, err := f.Open(name)
	if err != nil {
		return "", err
	}
	defer file.Close()
	b, err := io.ReadAll(file)
	return string(b), err
}

func write(f *FS, name, content string, appendTo bool) error {
	w, err := f.Create(name, appendTo)
	if err != nil {
		return err
	}
	if _, err := w.Write([]byte(content)); err != nil {
		w.Abort()
		return err
	}
	_, err = w.Commit()
	return err
}

func TestWriteAndRead(t *testing.T) {
	f, rw, _ := newFS(t)
	name := filepath.Join(rw, "a", "b", "new.txt")
	if err := write(f, name, "one", false); err != nil {
		t.Fatal(err)
	}
	if err := write(f, name, "two", true); err != nil {
		t.Fatal(err)
	}
	if got, err := read(t, f, name); err != nil || got != "onetwo" {
		t.Errorf("%q, %v", got, err)
	}
	if err := write(f, filepath.Join(rw, "file"), "replaced", false); err != nil {
		t.Fatal(err)
	}
	info, err := f.Stat(filepath.Join(rw, "file"))
	if err != nil || info.Bytes != 8 || info.Mode != 0o640 || info.IsDir || time.Since(info.Modified) > time.Minute {
		t.Errorf("%+v, %v", info, err)
	}
}

func TestWriteIsAtomic(t *testing.T) {
	f, rw, _ := newFS(t)
	name := filepath.Join(rw, "file")
	w, err := f.Create(name, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("half")); err != nil {
		t.Fatal(err)
	}
	if got, _ := read(t, f, name); got != "content of rw" {
		t.Errorf("before the end: %q", got)
	}
	w.Abort()
	items, _, err := f.List(rw, 1, 10)
	if err != nil || len(items) != 1 || items[0].Bytes != 13 {
		t.Errorf("after Abort: %+v, %v", items, err)
	}
}

func TestConfined(t *testing.T) {
	f, rw, ro := newFS(t)
	secret := filepath.Join(filepath.Dir(rw), "secret")
	for name, target := range map[string]string{"abs": secret, "rel": "../secret", "file-link": secret + "/file", "inside": "file"} {
		if err := os.Symlink(target, filepath.Join(rw, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{
		secret + "/file", rw + "/../secret/file", rw + "/abs/file", rw + "/rel/file", rw + "/file-link",
		"relative", "", "/", "/etc/passwd", rw + "/a\x00b", rw + "suffix/file", rw + "/" + strings.Repeat("x", maxPath),
	} {
		if got, err := read(t, f, name); err == nil {
			t.Errorf("read %.60q: %q", name, got)
		}
		if err := write(f, name, "x", false); err == nil && !strings.HasPrefix(name, rw) {
			t.Errorf("wrote %.60q", name)
		}
		if err := write(f, name, "x", true); err == nil {
			t.Errorf("appended to %.60q", name)
		}
	}
	if b, err := os.ReadFile(secret + "/file"); err != nil || string(b) != "content of secret" {
		t.Errorf("the secret is %q, %v", b, err)
	}
	if got, err := read(t, f, rw+"/inside"); err != nil || got != "content of rw" {
		t.Errorf("a link that stays inside: %q, %v", got, err)
	}
	info, err := f.Stat(rw + "/rel")
	if err != nil || info.Symlink != "../secret" {
		t.Errorf("%+v, %v", info, err)
	}
	for what, err := range map[string]error{
		"write":  write(f, ro+"/x", "x", false),
		"remove": f.Remove(ro+"/file", false),
		"mkdir":  func() error { _, err := f.MakeDir(ro + "/d"); return err }(),
		"move":   func() error { _, err := f.Move(ro+"/file", rw+"/stolen"); return err }(),
		"root":   f.Remove(rw, true),
	} {
		if !errors.Is(err, ErrReadOnly) {
			t.Errorf("%s in a read-only folder: %v", what, err)
		}
	}
	if _, err := read(t, f, ro+"/file"); err != nil {
		t.Error(err)
	}
	if _, err := f.Stat(filepath.Dir(rw) + "/absent/x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a root that is not there: %v", err)
	}
}

func TestOnlyRegularFiles(t *testing.T) {
	f, rw, _ := newFS(t)
	fifo := filepath.Join(rw, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if _, err := read(t, f, fifo); !errors.Is(err, ErrNotRegular) {
			t.Errorf("read a FIFO: %v", err)
		}
		if err := write(f, fifo, "x", false); !errors.Is(err, ErrNotRegular) {
			t.Errorf("replace a FIFO: %v", err)
		}
		if err := write(f, fifo, "x", true); err == nil {
			t.Error("appended to a FIFO")
		}
		if _, err := read(t, f, rw); !errors.Is(err, ErrNotRegular) {
			t.Errorf("read a folder: %v", err)
		}
		if err := write(f, rw, "x", false); !errors.Is(err, ErrNotRegular) {
			t.Errorf("write a folder: %v", err)
		}
	}()
	select {
	case <-done:
	case <-time.After(5 * time.Second):
		t.Fatal("blocked on a FIFO")
	}
}

func TestListMoveRemove(t *testing.T) {
	f, rw, _ := newFS(t)
	for _, n := range []string{"d/1", "d/2", "d/e/3"} {
		if err := write(f, filepath.Join(rw, n), n, false); err != nil {
			t.Fatal(err)
		}
	}
	paths := func(depth, limit int) string {
		items, truncated, err := f.List(rw, depth, limit)
		if err != nil {
			t.Fatal(err)
		}
		var s []string
		for _, i := range items {
			s = append(s, strings.TrimPrefix(i.Path, rw+"/"))
		}
		if truncated {
			s = append(s, "…")
		}
		return strings.Join(s, " ")
	}
	for want, got := range map[string]string{
		"d file": paths(1, 10), "d d/1 d/2 d/e file": paths(2, 10), "d d/1 d/2 d/e d/e/3 file": paths(9, 10), "d d/1 …": paths(9, 2),
	} {
		if got != want {
			t.Errorf("listed %q, want %q", got, want)
		}
	}
	if _, _, err := f.List(rw+"/file", 1, 10); err == nil {
		t.Error("listed a file")
	}
	if i, err := f.Move(rw+"/d/e", rw+"/new/place"); err != nil || !i.IsDir || i.Path != rw+"/new/place" {
		t.Errorf("%+v, %v", i, err)
	}
	if _, err := f.Move(rw+"/d/1", rw+"/file"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("move onto a file: %v", err)
	}
	if err := f.Remove(rw+"/d", false); err == nil {
		t.Error("removed a folder that is not empty")
	}
	if err := f.Remove(rw+"/d", true); err != nil {
		t.Error(err)
	}
	if err := f.Remove(rw+"/d", true); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("removed again: %v", err)
	}
	if i, err := f.MakeDir(rw + "/x/y"); err != nil || !i.IsDir {
		t.Errorf("%+v, %v", i, err)
	}
	if _, err := f.MakeDir(rw + "/file"); err == nil {
		t.Error("made a folder of a file")
	}
	if got := f.Roots(); len(got) != 3 {
		t.Errorf("%v", got)
	}
}

// TestWhole: with the root "/" links lead where they lead, and folders that are left out cannot be reached, not by a link
// either.
func TestWhole(t *testing.T) {
	base := t.TempDir()
	secret, open := filepath.Join(base, "secret"), filepath.Join(base, "open")
	for _, dir := range []string{secret, filepath.Join(secret, "deep"), open} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "file"), []byte("of "+filepath.Base(dir)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f := New([]Root{{Path: "/", Writable: true, Without: []string{secret}}})
	for link, target := range map[string]string{"absolute": open, "to-file": filepath.Join(open, "file"), "in": secret, "in-file": filepath.Join(secret, "file"), "up": "../secret"} {
		if err := os.Symlink(target, filepath.Join(open, link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"file", "absolute/file", "to-file", "absolute/absolute/to-file"} {
		if got, err := read(t, f, filepath.Join(open, name)); got != "of open" || err != nil {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	for _, name := range []string{secret, secret + "/file", secret + "/deep/file", open + "/in/file", open + "/in/deep/file", open + "/in-file", open + "/up/file", open + "/../secret/file"} {
		if got, err := read(t, f, name); !errors.Is(err, ErrOutside) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		if err := write(f, name+".new", "x", false); name != secret && name != open+"/in-file" && !errors.Is(err, ErrOutside) {
			t.Errorf("written %s: %v", name, err)
		}
	}
	if info, err := f.MakeDir(filepath.Join(open, "absolute", "a", "b", "c")); err != nil || !info.IsDir {
		t.Errorf("made %+v, %v", info, err)
	}
	if _, err := f.Move(filepath.Join(open, "a", "b"), filepath.Join(base, "new", "place", "b")); err != nil {
		t.Error(err)
	}
	if err := write(f, filepath.Join(base, "new", "place", "b", "c", "d", "file"), "deep", false); err != nil {
		t.Error(err)
	}
	if got, err := read(t, f, filepath.Join(base, "new/place/b/c/d/file")); got != "deep" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	for name, target := range map[string]string{"dangling": filepath.Join(base, "nowhere"), "self": "self"} {
		if err := os.Symlink(target, filepath.Join(base, name)); err != nil {
			t.Fatal(err)
		}
		if err := write(f, filepath.Join(base, name, "x", "y"), "x", false); err == nil {
			t.Errorf("written below the link %s", name)
		}
	}
	items, _, err := f.List(filepath.Join(open, "absolute"), 1, 100)
	if err != nil || len(items) == 0 || !strings.HasPrefix(items[0].Path, filepath.Join(open, "absolute")+"/") {
		t.Errorf("listed by a link: %v, %v", items, err)
	}
	if items, _, err = f.List(base, 3, 100); err != nil {
		t.Fatal(err)
	}
	for _, i := range items {
		if strings.HasPrefix(i.Path, secret+"/") {
			t.Errorf("listed: %s", i.Path)
		}
	}
	if err := write(f, open+"/absolute/made/new", "made", false); err != nil {
		t.Error(err)
	}
	if got, err := read(t, f, open+"/made/new"); got != "made" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

// TestSwappedMeanwhile: code swaps a folder for a link while a file in it is opened. What may not be used is not read.
func TestSwappedMeanwhile(t *testing.T) {
	base := t.TempDir()
	secret, folder, link := filepath.Join(base, "secret"), filepath.Join(base, "d"), filepath.Join(base, "l")
	for _, dir := range []string{secret, folder} {
		if err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "file"), []byte("content of "+filepath.Base(dir)), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("secret", link); err != nil {
		t.Fatal(err)
	}
	f := New([]Root{{Path: "/", Writable: true, Without: []string{secret}}})
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, folder, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE)
			}
		}
	}()
	read, refused := 0, 0
	for until := time.Now().Add(2 * time.Second); time.Now().Before(until); {
		file, err := f.Open(filepath.Join(folder, "file"))
		if err != nil {
			refused++
			continue
		}
		text, _ := io.ReadAll(file)
		_ = file.Close()
		if read++; string(text) == "content of secret" {
			t.Errorf("the secret was read, after %d other files and %d refusals", read-1, refused)
			break
		}
		if err := write(f, filepath.Join(folder, "planted"), "x", false); err == nil {
			if _, err := os.Stat(filepath.Join(secret, "planted")); err == nil {
				t.Errorf("a file was written beside the secret, after %d others", read)
				break
			}
		}
	}
	close(stop)
	<-done
	if read == 0 || refused == 0 {
		t.Errorf("%d were read and %d refused: nothing was swapped", read, refused)
	}
}
