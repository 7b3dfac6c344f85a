package archive

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/platform/s3"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// TestFolder: an object is there as a whole or not at all. A folder that is not mounted is neither made nor
// taken for an empty one.
func TestFolder(t *testing.T) {
	dir := t.TempDir()
	f := NewFolder(dir)
	if _, err := f.Get(t.Context(), "w1/a.zst"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what is not there: %v", err)
	}
	for _, text := range []string{"first", "second one"} {
		if err := f.Put(t.Context(), "w1/a.zst", strings.NewReader(text), int64(len(text))); err != nil {
			t.Fatal(err)
		}
		// Too short: what is there stays.
		if err := f.Put(t.Context(), "w1/a.zst", strings.NewReader("half"), 8); sandbox.KindOf(err) != sandbox.Unavailable {
			t.Errorf("half an object: %v", err)
		}
		r, err := f.Get(t.Context(), "w1/a.zst")
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(r); string(got) != text || err != nil || r.Close() != nil {
			t.Errorf("%q, %v", got, err)
		}
	}
	if names, err := os.ReadDir(filepath.Join(dir, "w1")); err != nil || len(names) != 1 {
		t.Errorf("%v, %v", names, err)
	}
	gone := NewFolder(filepath.Join(dir, "gone"))
	if _, err := gone.Get(t.Context(), "w1/a.zst"); err == nil || errors.Is(err, fs.ErrNotExist) || sandbox.KindOf(err) != sandbox.Unavailable {
		t.Errorf("a folder that is not there: %v", err)
	}
	if err := gone.Put(t.Context(), "w1/a.zst", strings.NewReader("x"), 1); sandbox.KindOf(err) != sandbox.Unavailable {
		t.Errorf("a folder that is not there: %v", err)
	}
	if _, err := os.Stat(gone.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it was made: %v", err)
	}
}

// TestBucketAddress: an address that is none is refused before anything is archived.
func TestBucketAddress(t *testing.T) {
	for _, address := range []string{"s3://", "s3://x", "bucket/x", "s3://bucket/../x", "s3://bucket//x"} {
		if _, err := NewBucket(address, s3.Options{}); sandbox.KindOf(err) != sandbox.Invalid {
			t.Errorf("%s: %v", address, err)
		}
	}
}
