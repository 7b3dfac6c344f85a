package gitfetch

import (
	"bytes"
	"compress/zlib"
	"context"
	"crypto/sha1"
	"encoding/binary"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func gitRun(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@x.example", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@x.example")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// repository makes a repository with two commits; it returns its folder and their hashes.
func repository(t *testing.T) (dir, first, second string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "repo.git")
	if err := os.MkdirAll(filepath.Join(dir, "p/bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	gitRun(t, dir, "init", "-q", "-b", "main", ".")
	for name, text := range map[string]string{"README.md": "one", "p/plugin.json": "{}", "p/bin/run": "#!/bin/sh\n", "shared.md": "shared"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(dir, "p/bin/run"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{"p/in.md": "../shared.md", "p/out": "/etc/passwd", "p/up": "../../../etc/passwd", "p/loop": "loop", "p/dir": "bin"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	hook := filepath.Join(dir, ".git/hooks/post-checkout")
	if err := os.WriteFile(hook, []byte("#!/bin/sh\ntouch "+dir+"/hooked\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	gitRun(t, dir, "add", "-A")
	gitRun(t, dir, "commit", "-qm", "one")
	first = gitRun(t, dir, "rev-parse", "HEAD")
	gitRun(t, dir, "tag", "-a", "-m", "x", "v1")
	gitRun(t, dir, "update-index", "--add", "--cacheinfo", "160000,"+first+",sub")
	if err := os.WriteFile(filepath.Join(dir, "README.md"), []byte("two"), 0o644); err != nil {
		t.Fatal(err)
	}
	gitRun(t, dir, "add", "README.md")
	gitRun(t, dir, "commit", "-qm", "two")
	gitRun(t, dir, "config", "uploadpack.allowReachableSHA1InWant", "true")
	return dir, first, gitRun(t, dir, "rev-parse", "HEAD")
}

func serve(t *testing.T, dir string) string {
	t.Helper()
	path, err := exec.LookPath("git")
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(&cgi.Handler{Path: path, Args: []string{"http-backend"}, Env: []string{"GIT_PROJECT_ROOT=" + filepath.Dir(dir), "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"}, Stderr: io.Discard})
	t.Cleanup(srv.Close)
	return srv.URL + "/repo.git"
}

func options(t *testing.T) Options {
	t.Helper()
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	return Options{Client: &http.Client{Transport: tr}, AllowURL: func(*url.URL) error { return nil }, Limits: DefaultLimits(), Dir: t.TempDir()}
}

func fetch(t *testing.T, q Request, o Options) (*Repo, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return Fetch(ctx, q, o)
}

func TestFetch(t *testing.T) {
	dir, first, second := repository(t)
	o := options(t)
	o.Folders = []string{filepath.Dir(dir)}
	for _, base := range []string{serve(t, dir), "file://" + dir} {
		for q, want := range map[Request]string{{}: second, {Ref: "main"}: second, {Ref: "v1"}: first, {SHA: first}: first, {Ref: "main", SHA: first}: first} {
			q.URL = base
			r, err := fetch(t, q, o)
			if err != nil {
				t.Errorf("%+v: %v", q, err)
				continue
			}
			if r.Commit() != want {
				t.Errorf("%+v: %s, want %s", q, r.Commit(), want)
			}
			text, err := r.File("README.md", 10)
			if err != nil || (string(text) == "two") != (want == second) {
				t.Errorf("%+v: README %q, %v", q, text, err)
			}
			got := map[string]string{}
			skipped, err := r.Walk("p", func(name string, exec bool, in io.Reader) error {
				text, err := io.ReadAll(in)
				if exec {
					name += "*"
				}
				got[name] = string(text)
				return err
			})
			if want := map[string]string{"plugin.json": "{}", "bin/run*": "#!/bin/sh\n", "in.md": "shared"}; err != nil || !maps.Equal(got, want) {
				t.Errorf("%+v: %v, %v", q, got, err)
			}
			if want := []string{"dir", "loop", "out", "up"}; !slices.Equal(skipped, want) {
				t.Errorf("skipped %v", skipped)
			}
		}
		for _, q := range []Request{{URL: base, Ref: "none"}, {URL: base, SHA: strings.Repeat("1", 40)}, {URL: base + "x"}} {
			if _, err := fetch(t, q, o); sandbox.KindOf(err) != sandbox.NotFound && sandbox.KindOf(err) != sandbox.Forbidden {
				t.Errorf("%+v: %v", q, err)
			}
		}
	}
	if _, err := os.Stat(dir + "/hooked"); err == nil {
		t.Error("a hook was run")
	}
	if left, err := os.ReadDir(o.Dir); err != nil || len(left) > 0 {
		t.Errorf("%v stays behind", left)
	}
}

func TestWhatMayNotBeReached(t *testing.T) {
	dir, _, _ := repository(t)
	o := options(t)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(filepath.Dir(dir), link); err != nil {
		t.Fatal(err)
	}
	for folders, want := range map[string]sandbox.Kind{"": sandbox.Forbidden, t.TempDir(): sandbox.Forbidden, filepath.Dir(dir): "", link: "", filepath.Dir(dir) + "x": sandbox.Forbidden} {
		o.Folders = []string{folders}
		if _, err := fetch(t, Request{URL: "file://" + dir}, o); sandbox.KindOf(err) != want {
			t.Errorf("%s: %v", folders, err)
		}
	}
	o.AllowURL = func(u *url.URL) error { return sandbox.Errorf(sandbox.Forbidden, "not %s", u.Host) }
	for address, want := range map[string]sandbox.Kind{"https://x.example/a": sandbox.Forbidden, "ssh://git@x.example/a": sandbox.NotSupported, "git@x.example:a": sandbox.Invalid, "ext::sh -c id": sandbox.NotSupported, "/etc": sandbox.NotSupported} {
		if _, err := fetch(t, Request{URL: address}, o); sandbox.KindOf(err) != want {
			t.Errorf("%s: %v, want %s", address, err, want)
		}
	}
}

func TestTooMuch(t *testing.T) {
	dir, _, _ := repository(t)
	base := serve(t, dir)
	for name, change := range map[string]func(*Limits){
		"refs": func(l *Limits) { l.RefBytes = 100 }, "pack": func(l *Limits) { l.PackBytes = 100 }, "bytes": func(l *Limits) { l.Bytes = 100 }, "objects": func(l *Limits) { l.Objects = 2 },
	} {
		o := options(t)
		change(&o.Limits)
		if _, err := fetch(t, Request{URL: base}, o); sandbox.KindOf(err) != sandbox.Invalid && name != "refs" || err == nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	o := options(t)
	o.Limits.Entries = 3
	r, err := fetch(t, Request{URL: base}, o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Walk(".", func(string, bool, io.Reader) error { return nil }); sandbox.KindOf(err) != sandbox.Invalid {
		t.Errorf("entries: %v", err)
	}
}

// TestSilentServer: a server that says nothing ends with the deadline.
func TestSilentServer(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	if _, err := Fetch(ctx, Request{URL: "http://" + ln.Addr().String() + "/x.git"}, options(t)); sandbox.KindOf(err) != sandbox.Timeout {
		t.Error(err)
	}
}

// pack makes a pack of objects: their type and what they hold.
func pack(t testing.TB, objects ...[]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	b.WriteString("PACK")
	for _, n := range []uint32{2, uint32(len(objects))} {
		if err := binary.Write(&b, binary.BigEndian, n); err != nil {
			t.Fatal(err)
		}
	}
	for _, o := range objects {
		b.Write(o)
	}
	sum := sha1.Sum(b.Bytes())
	return append(b.Bytes(), sum[:]...)
}

func packed(t testing.TB, kind byte, size int, reference, content []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	c := kind<<4 | byte(size&15)
	for size >>= 4; size > 0; size >>= 7 {
		b.WriteByte(c | 0x80)
		c = byte(size & 0x7f)
	}
	b.WriteByte(c)
	b.Write(reference)
	z := zlib.NewWriter(&b)
	if _, err := z.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func measured(t testing.TB, data []byte) error {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(data); err != nil {
		t.Fatal(err)
	}
	l := DefaultLimits()
	l.Bytes = 10 << 20
	return measure(context.Background(), f, l)
}

// TestBombs: a few bytes that stand for very many are refused before they are unpacked.
func TestBombs(t *testing.T) {
	zeros := bytes.Repeat([]byte{0}, 11<<20)
	delta := append([]byte{0x05, 0x80, 0x80, 0x80, 0x80, 0x40}, bytes.Repeat([]byte{0xff, 0, 0, 0, 0, 0xff, 0xff, 0xff}, 100)...)
	blob := packed(t, 3, 5, nil, []byte("hello"))
	for name, data := range map[string][]byte{
		"zeros":            pack(t, packed(t, 3, len(zeros), nil, zeros)),
		"a size that lies": pack(t, packed(t, 3, 100, nil, zeros)),
		"delta":            pack(t, blob, packed(t, 6, len(delta), []byte{byte(len(blob))}, delta)),
		"a delta of none":  pack(t, blob, packed(t, 6, 0, []byte{byte(len(blob))}, nil)),
		"cut":              pack(t, blob)[:20],
		"no pack":          []byte("hello"),
	} {
		if err := measured(t, data); sandbox.KindOf(err) != sandbox.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := measured(t, pack(t, blob)); err != nil {
		t.Error(err)
	}
}
