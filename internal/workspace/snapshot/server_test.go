package snapshot

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/platform/s3"
	"github.com/skerry-sandbox/skerry/internal/platform/s3/s3test"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// stores are the two kinds that pass the suite.
func stores(t *testing.T, test func(t *testing.T, o Objects)) {
	t.Run("folder", func(t *testing.T) { test(t, NewFolder(t.TempDir())) })
	t.Run("s3", func(t *testing.T) { test(t, bucket(t)) })
}

func bucket(tb testing.TB) Bucket {
	server := s3test.Start(tb)
	server.Put("workspaces", "other", nil)
	b, err := NewBucket("s3://workspaces/skerry/files", s3.Options{
		Endpoint: server.Endpoint, Region: s3test.Region, AccessKey: s3test.AccessKey, SecretKey: s3test.SecretKey,
		PathStyle: true, Addresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { b.Close() })
	return b
}

// counting counts what a store is asked.
type counting struct {
	Objects
	reads, writes, bytes atomic.Int64
	fail                 atomic.Pointer[error] // what Replace answers; nil: what the store does
}

func (c *counting) Read(ctx context.Context, name string, most int64) ([]byte, string, error) {
	c.reads.Add(1)
	return c.Objects.Read(ctx, name, most)
}

func (c *counting) Replace(ctx context.Context, name string, data []byte, version string) (string, error) {
	c.writes.Add(1)
	c.bytes.Add(int64(len(data)))
	if err := c.fail.Load(); err != nil {
		return "", *err
	}
	return c.Objects.Replace(ctx, name, data, version)
}

func (c *counting) asked() int64 { return c.reads.Load() + c.writes.Load() }

// server is one with a data folder of its own.
type server struct {
	*Snapshots
	t     testing.TB
	store *counting
	data  string
	uid   int
	about string
}

var uids atomic.Int64

func newServer(t testing.TB, o Objects, seal sealer) *server {
	t.Helper()
	sv := &server{t: t, store: &counting{Objects: o}, data: t.TempDir(), about: "{}"}
	sv.uid = os.Getuid()
	if sv.uid == 0 {
		sv.uid = 1_000_000 + int(uids.Add(1))
	}
	var err error
	sv.Snapshots, err = Open(t.Context(), Options{
		Objects: sv.store, Dir: filepath.Join(sv.data, "snapshots"), Holder: fmt.Sprintf("holder-%d", uids.Add(1)), Sealer: seal, Encrypt: seal != nil,
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sv.Close() })
	return sv
}

func (sv *server) dir(t sandbox.Thread) string { return filepath.Join(sv.data, "threads", t.ID) }

// make makes a thread without files.
func (sv *server) make(t sandbox.Thread) string {
	sv.t.Helper()
	dir := sv.dir(t)
	for _, f := range folders {
		if err := errors.Join(os.MkdirAll(filepath.Join(dir, f), 0o700), os.Lchown(filepath.Join(dir, f), sv.uid, sv.uid)); err != nil {
			sv.t.Fatal(err)
		}
	}
	return dir
}

func (sv *server) saveIt(t sandbox.Thread) error {
	return sv.Save(sv.t.Context(), t, Thread{Dir: sv.dir(t), UID: sv.uid, About: func() ([]byte, error) { return []byte(sv.about), nil }})
}

func (sv *server) mustKeep(t sandbox.Thread) {
	sv.t.Helper()
	if err := sv.saveIt(t); err != nil {
		sv.t.Fatal(err)
	}
}

// restore calls Restore and does what the orchestrator does: the new folder appears by one rename.
func (sv *server) restoreIt(t sandbox.Thread, own bool) (about string, err error) {
	about = "-"
	err = sv.Restore(sv.t.Context(), t, sv.dir(t), own, func(r Restored) error {
		about = string(r.About)
		if err := os.RemoveAll(sv.dir(t)); err != nil || r.Fill == nil {
			return err
		}
		stage := filepath.Join(sv.data, "stage")
		if err := errors.Join(os.RemoveAll(stage), os.MkdirAll(stage, 0o755), os.MkdirAll(filepath.Dir(sv.dir(t)), 0o755)); err != nil {
			return err
		}
		if err := r.Fill(sv.t.Context(), stage, sv.uid); err != nil {
			return err
		}
		return os.Rename(stage, sv.dir(t))
	})
	return about, err
}

func (sv *server) mustRestore(t sandbox.Thread, own bool) {
	sv.t.Helper()
	if _, err := sv.restoreIt(t, own); err != nil {
		sv.t.Fatal(err)
	}
}

var thread1 = sandbox.Thread{Owner: sandbox.Owner{Tenant: "acme", User: "ann"}, ID: "t-1"}

func put(t testing.TB, dir, name string, data []byte) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, data, 0o644)); err != nil {
		t.Fatal(err)
	}
}

func random(n int, seed uint64) []byte {
	data := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	r.Read(data)
	return data
}

// tree says all that is to come back, by path.
func tree(t testing.TB, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	inodes := map[uint64]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		info, err := d.Info()
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		what := fmt.Sprintf("%v %d", info.Mode(), info.ModTime().UnixNano())
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			to, err := os.Readlink(path)
			what += " -> " + to
			if err != nil {
				return err
			}
		case info.Mode().IsRegular():
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			what += fmt.Sprintf(" %d %x", len(data), sha256.Sum256(data))
			if first := inodes[st.Ino]; first != "" {
				what += " is " + first
			}
			inodes[st.Ino] = rel
		case !info.IsDir():
			return nil
		}
		all[rel] = what
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func sameTree(t testing.TB, want, got map[string]string) {
	t.Helper()
	for p, w := range want {
		if got[p] != w {
			t.Errorf("%q is %q, not %q", p, got[p], w)
		}
	}
	for p := range got {
		if _, ok := want[p]; !ok {
			t.Errorf("%q was not there", p)
		}
	}
}

// hostile fills a folder with what code may leave there.
func hostile(t testing.TB, dir string) {
	t.Helper()
	w := filepath.Join(dir, "workspace")
	put(t, w, "a.txt", []byte("hello"))
	put(t, w, "empty", nil)
	put(t, w, "a/b/c/deep.bin", random(100_000, 1))
	put(t, w, "name with\nnewline \x80\xff and \"quotes\"", []byte("x"))
	put(t, w, ".skerry/execs/1/stdout", []byte("spilled"))
	put(t, w, "big.bin", random(partBytes*2+123, 2))
	put(t, w, "same.bin", random(partBytes*2+123, 2))
	put(t, dir, "outputs/o.txt", []byte("out"))
	for _, err := range []error{
		os.Mkdir(filepath.Join(w, "nothing in it"), 0o700),
		os.Symlink("/etc/passwd", filepath.Join(w, "absolute")),
		os.Symlink("../../../../../etc", filepath.Join(w, "out")),
		os.Symlink("loop", filepath.Join(w, "loop")),
		os.Symlink("a", filepath.Join(w, "z-folder")),
		os.Symlink("\xff\xfe", filepath.Join(w, "odd")),
		os.Link(filepath.Join(w, "a.txt"), filepath.Join(w, "second name")),
		os.Link(filepath.Join(w, "a.txt"), filepath.Join(dir, "uploads", "third name")),
		unix.Mkfifo(filepath.Join(w, "fifo"), 0o666),
		os.Chmod(filepath.Join(w, "empty"), 0),
		os.Chmod(filepath.Join(w, "a.txt"), 0o755|fs.ModeSticky),
		os.Chmod(filepath.Join(w, "a", "b"), 0o500),
		os.Chtimes(filepath.Join(w, "a.txt"), time.Time{}, time.Unix(1, 234567891)),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	sparse, err := os.Create(filepath.Join(w, "sparse"))
	if err != nil {
		t.Fatal(err)
	}
	_, e := sparse.WriteAt([]byte("middle"), 20<<20)
	if err := errors.Join(e, sparse.Truncate(40<<20), sparse.Close()); err != nil {
		t.Fatal(err)
	}
}
