package paths

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// TestRewrite: only a regular file of the size that it may have is rewritten, and by no link.
func TestRewrite(t *testing.T) {
	f, host := thread(t, func(o *Options) { o.DiskBytes = 1 << 20 })
	w := filepath.Join(host, "workspace")
	upper := func(r io.Reader) io.Reader {
		text, err := io.ReadAll(r)
		if err != nil {
			return readFunc(func([]byte) (int, error) { return 0, err })
		}
		return bytes.NewReader(bytes.ToUpper(text))
	}
	mkdirs(t, filepath.Join(w, "dir"))
	put(t, filepath.Join(w, "dir/a"), "text")
	if err := f.Rewrite(t.Context(), ws+"/dir/a", 4, upper); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(w, "dir/a")); err != nil || string(text) != "TEXT" {
		t.Errorf("%q, %v", text, err)
	}
	wantKind(t, f.Rewrite(t.Context(), ws+"/dir/a", 3, upper), sandbox.Invalid)
	link(t, "dir/a", filepath.Join(w, "link"))
	link(t, "dir", filepath.Join(w, "way"))
	wantKind(t, f.Rewrite(t.Context(), ws+"/link", 4, upper), sandbox.Conflict)
	wantKind(t, f.Rewrite(t.Context(), ws+"/way/a", 4, upper), sandbox.Conflict)
	wantKind(t, f.Rewrite(t.Context(), ws+"/dir", 4, upper), sandbox.Invalid)
	put(t, filepath.Join(w, "holes"), "")
	if err := os.Truncate(filepath.Join(w, "holes"), 1<<40); err != nil {
		t.Fatal(err)
	}
	wantKind(t, f.Rewrite(t.Context(), ws+"/holes", 1<<20, upper), sandbox.Invalid)
}
