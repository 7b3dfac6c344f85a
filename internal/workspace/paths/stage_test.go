package paths

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// TestNoNameHides: a name that code in the sandbox can make hides nothing: usage, lists, archives and changes
// have it.
func TestNoNameHides(t *testing.T) {
	f, host := thread(t, func(o *Options) { o.DiskBytes = 1 << 20 })
	ctx := context.Background()
	before, err := f.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	names := []string{".skerry-tmp-1", StageDir, "sub/.skerry/kept"}
	for _, n := range names {
		path := filepath.Join(host, "workspace", n)
		mkdirs(t, filepath.Dir(path))
		put(t, path, strings.Repeat("x", 1<<20))
	}
	if u, err := f.Usage(ctx); err != nil || u.Bytes != 3<<20 || u.Files != 3 {
		t.Errorf("usage %+v, %v", u, err)
	}
	_, err = f.Write(ctx, ws+"/more", strings.NewReader("x"), false)
	wantKind(t, err, sandbox.QuotaExceeded)
	changes, ok, err := f.Changes(ctx, before)
	if err != nil || !ok || len(changes) != 3 {
		t.Errorf("changes %+v, %v, %v", changes, ok, err)
	}
	l, err := f.List(ctx, ws, 3, 0)
	var archive bytes.Buffer
	if err := errors.Join(err, f.Pack(ctx, ws, Tar, &archive)); err != nil {
		t.Fatal(err)
	}
	packed := map[string]bool{}
	for r := tar.NewReader(&archive); ; {
		h, err := r.Next()
		if err == io.EOF { //nolint:errorlint // as it comes
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		packed[h.Name] = true
	}
	for _, n := range names {
		listed := false
		for _, e := range l.Items {
			listed = listed || e.Path == ws+"/"+n
		}
		if !listed || !packed[n] {
			t.Errorf("%s: in the list %v, in the archive %v", n, listed, packed[n])
		}
		if file, err := f.Read(ws+"/"+n, 0, 0); err != nil || file.Bytes != 1<<20 {
			t.Errorf("%s: %v", n, err)
		}
		if err := f.Remove(ctx, ws+"/"+n, false); err != nil {
			t.Error(err)
		}
	}
}

// TestStage: while a file is written, no name of it is where code in the sandbox could have it, it counts,
// and when the writer fails nothing is left. No path and no link leads to it.
func TestStage(t *testing.T) {
	f, host := thread(t)
	ctx := context.Background()
	link(t, "../"+StageDir, filepath.Join(host, "workspace/in"))
	looks := readFunc(func(p []byte) (int, error) {
		if e, err := os.ReadDir(filepath.Join(host, "workspace")); err != nil || len(e) != 1 {
			t.Errorf("in the workspace: %v, %v", e, err)
		}
		staged, err := os.ReadDir(filepath.Join(host, StageDir))
		if err != nil || len(staged) != 1 {
			t.Fatalf("staged: %v, %v", staged, err)
		}
		if u, err := f.Usage(ctx); err != nil || u.Bytes < 1000 {
			t.Errorf("usage %+v, %v", u, err)
		}
		for _, path := range []string{sandbox.UserDataDir + "/" + StageDir, ws + "/in"} {
			wantKind(t, errOf(f.Open(path+"/"+staged[0].Name())), sandbox.Forbidden)
			wantKind(t, errOf(f.List(ctx, path, 1, 0)), sandbox.Forbidden)
		}
		return 0, errors.New("the writer fails")
	})
	if _, err := f.Write(ctx, ws+"/a", io.MultiReader(strings.NewReader(strings.Repeat("x", 1000)), looks), false); err == nil {
		t.Error("no error")
	}
	if info, err := os.Stat(filepath.Join(host, StageDir)); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info, err)
	}
	if left, err := os.ReadDir(filepath.Join(host, StageDir)); err != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
	write(t, f, ws+"/a", "x")
	l, err := f.List(ctx, sandbox.UserDataDir, 1, 0)
	if err != nil || len(l.Items) != len(fixedDirs) {
		t.Errorf("%+v, %v", l, err)
	}
}

type readFunc func(p []byte) (int, error)

func (r readFunc) Read(p []byte) (int, error) { return r(p) }

// TestReplacedSpace: a replaced file makes as much room as it took, whatever its size says, and none when it
// has another name.
func TestReplacedSpace(t *testing.T) {
	f, host := thread(t, func(o *Options) { o.DiskBytes = 1 << 20 })
	holes := filepath.Join(host, "workspace/holes")
	put(t, holes, "")
	if err := os.Truncate(holes, 1<<40); err != nil {
		t.Fatal(err)
	}
	body := strings.NewReader(strings.Repeat("x", 2<<20))
	wantKind(t, errOf(f.Write(t.Context(), ws+"/holes", body, false)), sandbox.QuotaExceeded)
	_, err := f.Unpack(t.Context(), ws, tarOf(file("holes", strings.Repeat("x", 2<<20))))
	wantKind(t, err, sandbox.QuotaExceeded)
	put(t, filepath.Join(host, "workspace/one"), strings.Repeat("x", 900<<10))
	if err := os.Link(filepath.Join(host, "workspace/one"), filepath.Join(host, "workspace/two")); err != nil {
		t.Fatal(err)
	}
	wantKind(t, errOf(f.Write(t.Context(), ws+"/one", strings.NewReader(strings.Repeat("x", 900<<10)), false)), sandbox.QuotaExceeded)
}

// TestUncountable: what lies too deep to be counted is refused by what has to count, and can be removed.
func TestUncountable(t *testing.T) {
	f, host := thread(t, func(o *Options) { o.DiskBytes = 1 << 20 })
	deep(t, filepath.Join(host, "workspace/deep"), maxDepth+10)
	_, err := f.Usage(t.Context())
	wantKind(t, err, sandbox.QuotaExceeded)
	wantKind(t, errOf(f.Write(t.Context(), ws+"/a", strings.NewReader("x"), false)), sandbox.QuotaExceeded)
	if err := f.Remove(t.Context(), ws+"/deep", true); err != nil {
		t.Fatal(err)
	}
	write(t, f, ws+"/a", "x")
}

// TestRemovalThatEnds: what is left of a deep folder when its removal ends early is in that folder, and
// nowhere else.
func TestRemovalThatEnds(t *testing.T) {
	f, host := thread(t)
	deep(t, filepath.Join(host, "workspace/deep"), 200)
	put(t, filepath.Join(host, "workspace/other"), "x")
	ctx := &endingContext{Context: t.Context(), after: 100}
	if err := f.Remove(ctx, ws+"/deep", true); err == nil {
		t.Fatal("it was removed")
	}
	if e, err := os.ReadDir(filepath.Join(host, "workspace")); err != nil || len(e) != 2 {
		t.Errorf("%v, %v", e, err)
	}
	if err := f.Remove(t.Context(), ws+"/deep", true); err != nil {
		t.Error(err)
	}
}

// endingContext ends when it was asked so many times.
type endingContext struct {
	context.Context
	after int
}

func (c *endingContext) Err() error {
	if c.after--; c.after < 0 {
		return context.Canceled
	}
	return nil
}
