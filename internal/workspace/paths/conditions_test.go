package paths

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
