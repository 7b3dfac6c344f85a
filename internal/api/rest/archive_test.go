package rest

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/api/rest/files"
)

// TestArchive: a folder goes out in each format and comes back in; what is refused is a problem, and leaves nothing.
func TestArchive(t *testing.T) {
	t.Parallel()
	w := filesWorld(t)
	h := handler(t, w)
	work := filepath.Join(w.dir, "workspace")
	for name, text := range map[string]string{"a.txt": "one", "b.txt": "two"} {
		if err := os.WriteFile(filepath.Join(work, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(work, "out")); err != nil {
		t.Fatal(err)
	}
	const route = filesURL + "/archive"
	for format, typ := range map[string]string{"": "application/gzip", "&format=tar.gz": "application/gzip", "&format=tar": "application/x-tar", "&format=zip": "application/zip"} {
		rec := send(h, "GET", route+at("workspace")+format, "")
		if rec.Code != 200 || rec.Header().Get("Content-Type") != typ || rec.Header().Get(files.LeftOutHeader) != "1" || !strings.Contains(rec.Header().Get("Content-Disposition"), "filename=workspace.") {
			t.Fatalf("%s: %d %v", format, rec.Code, rec.Header())
		}
		if names := archiveNames(t, typ, rec.Body.Bytes()); names != "a.txt=one b.txt=two" {
			t.Errorf("%s: %s", format, names)
		}
		back := send(h, "PUT", route+at("outputs/x/y"), rec.Body.String(), "Content-Type: "+typ)
		if m := decodeBody(t, back); back.Code != 200 || m["files"] != 2.0 || m["bytes"] != 6.0 || m["path"] != "/mnt/user-data/outputs/x/y" {
			t.Errorf("%s: %d %v", format, back.Code, m)
		}
		if text, err := os.ReadFile(filepath.Join(w.dir, "outputs", "x", "y", "b.txt")); err != nil || string(text) != "two" {
			t.Errorf("%q %v", text, err)
		}
		if err := os.RemoveAll(filepath.Join(w.dir, "outputs", "x")); err != nil {
			t.Fatal(err)
		}
	}
	wantProblem(t, send(h, "GET", route+at("workspace")+"&format=rar", ""), 400, "invalid")
	wantProblem(t, send(h, "GET", route+at("workspace/none"), ""), 404, "not_found")
	wantProblem(t, send(h, "GET", route+at("workspace/a.txt"), ""), 400, "invalid")
	wantProblem(t, send(h, "GET", route+"?path=/etc", ""), 403, "forbidden")
	wantProblem(t, send(h, "PUT", route+"?path=/mnt/skills", "x", "Content-Type: application/zip"), 403, "forbidden")
	var evil bytes.Buffer
	z := zip.NewWriter(&evil)
	for _, name := range []string{"good.txt", "../evil.txt"} {
		f, err := z.Create(name)
		if err == nil {
			_, err = io.WriteString(f, "x")
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	p := wantProblem(t, send(h, "PUT", route+at("outputs"), evil.String(), "Content-Type: application/zip"), 400, "invalid")
	if !strings.Contains(p["detail"].(string), "../evil.txt") {
		t.Errorf("%v", p)
	}
	if left, err := os.ReadDir(filepath.Join(w.dir, "outputs")); err != nil || len(left) != 0 {
		t.Errorf("%v %v", left, err)
	}
}

func archiveNames(t *testing.T, typ string, data []byte) string {
	t.Helper()
	var out []string
	add := func(name string, r io.Reader) {
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, name+"="+string(text))
	}
	if typ == "application/zip" {
		z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range z.File {
			r, err := f.Open()
			if err != nil {
				t.Fatal(err)
			}
			add(f.Name, r)
		}
		return strings.Join(out, " ")
	}
	var r io.Reader = bytes.NewReader(data)
	if typ == "application/gzip" {
		var err error
		if r, err = gzip.NewReader(r); err != nil {
			t.Fatal(err)
		}
	}
	tr := tar.NewReader(r)
	for {
		h, err := tr.Next()
		if err == io.EOF { //nolint:errorlint // tar returns it as it is
			return strings.Join(out, " ")
		}
		if err != nil {
			t.Fatal(err)
		}
		add(h.Name, tr)
	}
}

// TestArchivePlaces: so many at once; a place comes back however the request ends.
func TestArchivePlaces(t *testing.T) {
	t.Parallel()
	w := filesWorld(t)
	o, _ := w.options(t)
	s, err := newServer(o)
	if err != nil {
		t.Fatal(err)
	}
	h, err := s.handler()
	if err != nil {
		t.Fatal(err)
	}
	for range files.MaxArchives {
		if _, err := s.archives.Take(); err != nil {
			t.Fatal(err)
		}
	}
	for _, method := range []string{"GET", "PUT"} {
		wantProblem(t, send(h, method, filesURL+"/archive"+at("workspace"), "x", "Content-Type: application/zip"), http.StatusServiceUnavailable, "capacity_exceeded")
	}
	<-s.archives
	for range 3 {
		wantProblem(t, send(h, "GET", filesURL+"/archive"+at("none"), ""), 404, "not_found")
		wantProblem(t, send(h, "PUT", filesURL+"/archive"+at("workspace"), "text", "Content-Type: application/zip"), 400, "invalid")
		if rec := send(h, "GET", filesURL+"/archive"+at("workspace"), ""); rec.Code != 200 {
			t.Errorf("%d", rec.Code)
		}
	}
}
