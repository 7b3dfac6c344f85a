package paths

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// changing runs a change when its text is read to the end.
type changing struct {
	text   io.Reader
	change func()
}

func (c *changing) Read(p []byte) (int, error) {
	n, err := c.text.Read(p)
	if err != nil && c.change != nil {
		c.change()
		c.change = nil
	}
	return n, err
}

func TestWriteConditions(t *testing.T) {
	f, host := thread(t)
	ctx := context.Background()
	on := filepath.Join(host, "workspace/a")
	put(t, on, "first")
	tag := func() string {
		file, err := f.Open(ws + "/a")
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close() //nolint:errcheck // test
		return file.ETag()
	}
	wants := func(want string) {
		t.Helper()
		if got, err := os.ReadFile(on); err != nil || string(got) != want {
			t.Fatalf("%q, %v, not %q", got, err, want)
		}
	}
	refused := func(err error) {
		t.Helper()
		wantKind(t, err, sandbox.Conflict)
		if !errors.Is(err, ErrChanged) {
			t.Errorf("%v does not say that it changed", err)
		}
	}
	old := tag()
	if _, err := f.WriteWith(ctx, ws+"/a", strings.NewReader("second"), Writing{Match: []string{`"other"`, old}}); err != nil {
		t.Fatal(err)
	}
	wants("second")
	refused(errOf(f.WriteWith(ctx, ws+"/a", strings.NewReader("third"), Writing{Match: []string{old}})))
	refused(errOf(f.WriteWith(ctx, ws+"/a", strings.NewReader("third"), Writing{Absent: true})))
	refused(errOf(f.WriteWith(ctx, ws+"/none", strings.NewReader("third"), Writing{Match: []string{"*"}})))
	wants("second")
	// What changes while the bytes come is not replaced.
	body := &changing{strings.NewReader("third"), func() { put(t, on, "by a program in the sandbox") }}
	refused(errOf(f.WriteWith(ctx, ws+"/a", body, Writing{Match: []string{tag()}})))
	wants("by a program in the sandbox")
	body = &changing{strings.NewReader("mine"), func() { put(t, filepath.Join(host, "workspace/new"), "theirs") }}
	refused(errOf(f.WriteWith(ctx, ws+"/new", body, Writing{Absent: true})))
	if got, err := os.ReadFile(filepath.Join(host, "workspace/new")); err != nil || string(got) != "theirs" {
		t.Errorf("%q, %v", got, err)
	}
	if w, err := f.WriteWith(ctx, ws+"/fresh/b", strings.NewReader("b"), Writing{Absent: true}); err != nil || !w.Created {
		t.Errorf("%+v, %v", w, err)
	}
	if _, err := f.WriteWith(ctx, ws+"/a", strings.NewReader("any"), Writing{Match: []string{"*"}}); err != nil {
		t.Error(err)
	}
	wants("any")
}

// TestWrittenTag: the tag of a write is that of the file, until the file is another one.
func TestWrittenTag(t *testing.T) {
	f, host := thread(t)
	ctx := context.Background()
	write := func(text string, add bool) string {
		t.Helper()
		w, err := f.Write(ctx, ws+"/a", strings.NewReader(text), add)
		if err != nil {
			t.Fatal(err)
		}
		file, err := f.Open(ws + "/a")
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close() //nolint:errcheck // test
		if w.ETag == "" || w.ETag != file.ETag() {
			t.Errorf("written as %s, read as %s", w.ETag, file.ETag())
		}
		return w.ETag
	}
	seen := map[string]bool{}
	for _, tag := range []string{write("first", false), write("first", false), write(" and more", true)} {
		if seen[tag] {
			t.Errorf("two versions are %s", tag)
		}
		seen[tag] = true
	}
	// A program that changes the file right behind the rename has a version that no caller knows.
	on := filepath.Join(host, "workspace/a")
	made, err := os.Lstat(on)
	if err != nil {
		t.Fatal(err)
	}
	p, err := f.space.resolve(ws+"/a", how{follow: true})
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	for name, change := range map[string]func(){
		"in place": func() { put(t, on, "by a program") },
		"replaced": func() {
			put(t, on+"2", "first and more")
			if err := errors.Join(os.Chtimes(on+"2", time.Time{}, made.ModTime()), os.Rename(on+"2", on)); err != nil {
				t.Fatal(err)
			}
		},
		"removed": func() { _ = os.Remove(on) },
	} {
		put(t, on, "first and more")
		if made, err = os.Lstat(on); err != nil {
			t.Fatal(err)
		}
		change()
		tag := p.tagOf(made)
		if _, err := f.WriteWith(ctx, ws+"/a", strings.NewReader("x"), Writing{Match: []string{tag}}); !errors.Is(err, ErrChanged) {
			t.Errorf("%s: a write over it got %v", name, err)
		}
	}
}
