package imagelimit

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// part is an entry of an archive.
type part struct {
	name string
	data []byte
}

func packed(t *testing.T, parts ...part) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, p := range parts {
		h := tar.Header{Typeflag: tar.TypeReg, Name: p.name, Mode: 0o644, Size: int64(len(p.data))}
		if strings.HasSuffix(p.name, "/") {
			h = tar.Header{Typeflag: tar.TypeDir, Name: p.name, Mode: 0o755}
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(p.data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func gzipped(t *testing.T, data []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(data); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func zstandard(t *testing.T, data []byte) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return w.EncodeAll(data, nil)
}

// holes is a layer with a file that says a size, and has no content: "GNU.sparse" in PAX. The standard library writes none.
func holes(t *testing.T, size int64) []byte {
	t.Helper()
	var records strings.Builder
	for _, r := range []string{
		"GNU.sparse.major=1", "GNU.sparse.minor=0", "GNU.sparse.name=holes", fmt.Sprintf("GNU.sparse.realsize=%d", size),
	} {
		for n := len(r) + 2; ; n++ {
			if line := fmt.Sprintf("%d %s\n", n, r); len(line) == n {
				records.WriteString(line)
				break
			}
		}
	}
	out := packed(t, part{"x", []byte(records.String())}, part{"holes", append([]byte("0\n"), make([]byte, 510)...)})
	head := out[:512]
	head[156] = tar.TypeXHeader
	copy(head[148:156], "        ")
	sum := 0
	for _, b := range head {
		sum += int(b)
	}
	copy(head[148:156], fmt.Sprintf("%06o\x00 ", sum))
	return out
}

func file(t *testing.T, data []byte) *os.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "image.tar")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// TestCheck: each way in which a small archive says a large image is refused, and the file can be read again.
func TestCheck(t *testing.T) {
	t.Parallel()
	const most = 1 << 20
	zeros := make([]byte, 20*most)
	deep := func(i int) part { return part{fmt.Sprintf("%d/%s", i, strings.Repeat("d/", 100)), nil} }
	var folders, many []part
	for i := range 50 {
		folders = append(folders, deep(i))
	}
	for i := range 1001 {
		many = append(many, part{fmt.Sprint(i), nil})
	}
	fits := part{"layer.tar", packed(t, part{"etc/", nil}, part{"etc/x", zeros[:most]})}
	for name, c := range map[string]struct {
		data []byte
		over bool
	}{
		"fits":                      {packed(t, fits, part{"manifest.json", []byte(`[]`)}), false},
		"fits, packed":              {gzipped(t, packed(t, part{"blobs/sha256/a", gzipped(t, fits.data)})), false},
		"a file":                    {packed(t, part{"layer.tar", packed(t, part{"x", zeros[:most+1]})}), true},
		"two layers":                {packed(t, fits, part{"b", packed(t, part{"y", zeros[:1]})}), true},
		"a packed layer":            {packed(t, part{"a", gzipped(t, packed(t, part{"x", zeros[:2*most]}))}), true},
		"a layer in zstd":           {packed(t, part{"a", zstandard(t, packed(t, part{"x", zeros[:2*most]}))}), true},
		"packed, and no layer":      {packed(t, part{"a", gzipped(t, zeros[:100])}, part{"b", []byte{0x1f, 0x8b, 8, 0}}, fits), false},
		"behind the end of a layer": {packed(t, part{"a", gzipped(t, append(packed(t, part{"x", nil}), zeros...))}), true},
		"a part that is no layer":   {gzipped(t, packed(t, part{"index.json", zeros})), true},
		"holes":                     {packed(t, part{"a", holes(t, most+1)}), true},
		"few holes":                 {packed(t, part{"a", holes(t, most)}), false},
		"implied folders":           {packed(t, part{"a", packed(t, folders...)}), true},
		"many files":                {packed(t, part{"a", packed(t, many...)}), true},
	} {
		l := New(most)
		l.mostEntries = 1000
		f := file(t, c.data)
		if err := Check(t.Context(), f, l); errors.Is(err, ErrLimit) != c.over || err != nil && !c.over {
			t.Errorf("%s: %v", name, err)
		}
		if got, err := io.ReadAll(f); err != nil || !bytes.Equal(got, c.data) {
			t.Errorf("%s: %d bytes are left to be read, %v", name, len(got), err)
		}
	}
}

// TestParts: the names of all parts are kept in memory, so there are not many.
func TestParts(t *testing.T) {
	t.Parallel()
	parts := make([]part, maxParts)
	for i := range parts {
		parts[i].name = "a"
	}
	if err := CheckParts(t.Context(), file(t, packed(t, parts...))); err != nil {
		t.Error(err)
	}
	if err := CheckParts(t.Context(), file(t, packed(t, append(parts, part{"b", nil})...))); !errors.Is(err, ErrLimit) {
		t.Errorf("one more: %v", err)
	}
	if err := CheckParts(t.Context(), file(t, []byte("no archive"))); err == nil {
		t.Error("a text is an archive")
	}
}
