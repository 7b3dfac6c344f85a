package onserver

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"context"
	"io"
	"io/fs"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/skills/archive"
)

// part is one entry of an archive: a link when it has a target.
type part struct {
	name, text, target string
	hard               bool
}

const skillText = "---\nname: %\ndescription: does things\n---\nText.\n"

func zipOf(t *testing.T, parts ...part) []byte {
	t.Helper()
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	for _, p := range parts {
		h := &zip.FileHeader{Name: p.name, Method: zip.Deflate}
		h.SetMode(0o644)
		if p.target != "" {
			h.SetMode(fs.ModeSymlink | 0o777)
			p.text = p.target
		}
		w, err := z.CreateHeader(h)
		must(t, err)
		_, err = io.WriteString(w, p.text)
		must(t, err)
	}
	must(t, z.Close())
	return out.Bytes()
}

func tarOf(t *testing.T, parts ...part) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, p := range parts {
		h := &tar.Header{Name: p.name, Mode: 0o644, Size: int64(len(p.text)), Typeflag: tar.TypeReg, Linkname: p.target}
		if p.target != "" {
			h.Typeflag = tar.TypeSymlink
			if p.hard {
				h.Typeflag = tar.TypeLink
			}
		}
		must(t, w.WriteHeader(h))
		_, err := io.WriteString(w, p.text)
		must(t, err)
	}
	must(t, w.Close())
	return out.Bytes()
}

// install uploads an archive as a skill.
func (b *bed) install(t *testing.T, raw []byte) answer {
	t.Helper()
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	f, err := w.CreateFormFile("file", "x.skill")
	must(t, err)
	_, err = f.Write(raw)
	must(t, err)
	must(t, w.Close())
	req, err := http.NewRequest(http.MethodPost, b.url+"/api/skills/install", &form)
	must(t, err)
	req.Header.Set("Content-Type", w.FormDataContentType())
	a, err := b.send(eve, req)
	must(t, err)
	return a
}

// extract is what a program does that trusts an archive.
func extract(t *testing.T, dir string, parts []part) {
	t.Helper()
	for _, p := range parts {
		file := filepath.Join(dir, p.name)
		if filepath.IsAbs(p.name) {
			file = p.name
		}
		_ = os.MkdirAll(filepath.Dir(file), 0o750)
		switch {
		case p.target != "" && p.hard:
			_ = os.Link(p.target, file)
		case p.target != "":
			_ = os.Symlink(p.target, file)
		default:
			_ = os.WriteFile(file, []byte(p.text), 0o600)
		}
	}
}

func archives() []attack {
	leave := func(c canary) map[string][]part {
		skill := part{name: "SKILL.md", text: strings.Replace(skillText, "%", "slip", 1)}
		up := strings.Repeat("../", 30)
		return map[string][]part{
			"parent":   {skill, {name: up + c.dir[1:] + "/planted", text: "x"}},
			"absolute": {skill, {name: c.dir + "/planted", text: "x"}},
		}
	}
	link := func(c canary) map[string][]part {
		skill := part{name: "SKILL.md", text: strings.Replace(skillText, "%", "linked", 1)}
		return map[string][]part{
			"through a link": {skill, {name: "out", target: c.dir}, {name: "out/planted", text: "x"}},
			"link to read":   {skill, {name: "notes.md", target: c.secret()}},
			"hard link":      {skill, {name: "notes.md", target: c.secret(), hard: true}},
		}
	}
	make := func(name, does string, kinds func(canary) map[string][]part) attack {
		return attack{
			name: name, class: "archives", does: does, expect: "refused whole; nothing of it is on disk",
			try: func(t *testing.T, b *bed) {
				c := b.canary(t)
				for kind, parts := range kinds(c) {
					if a := b.install(t, zipOf(t, parts...)); a.status != http.StatusBadRequest && !strings.Contains(kind, "hard") || a.status >= 500 {
						t.Errorf("zip, %s: %d %s", kind, a.status, a.body)
					}
					dir := t.TempDir()
					s, err := archive.UnpackTar(context.Background(), bytes.NewReader(tarOf(t, parts...)), dir, archive.DefaultLimits(), func(string) bool { return false })
					if list, e := os.ReadDir(dir); err == nil || e != nil || len(list) > 0 {
						t.Errorf("tar, %s: %v, left %v", kind, s, list)
					}
					b.do(t, eve, "DELETE", "/api/skills/custom/linked", nil) // what a zip without hard links may have written
				}
				c.untouched(t)
			},
			control: func(t *testing.T, b *bed) {
				for kind := range kinds(b.canary(t)) {
					c := b.canary(t)
					parts := kinds(c)[kind]
					dir, err := os.MkdirTemp(b.dir, "extract-")
					must(t, err)
					defer os.RemoveAll(dir)
					extract(t, dir, parts)
					read, _ := os.ReadFile(filepath.Join(dir, "notes.md"))
					if !exists(filepath.Join(c.dir, "planted")) && !strings.Contains(string(read), c.text) {
						t.Errorf("%s: without checks it reaches nothing", kind)
					}
				}
			},
		}
	}
	return []attack{
		make("archive-slip", "names in a zip or tar lead out of the folder, by .. and from the root", leave),
		make("archive-links", "links in a zip or tar lead out, to be read and to be written through", link),
		{
			name: "archive-bomb", class: "archives", does: "a zip of 300 KiB holds 256 MiB of zeros", expect: "refused; memory and disk stay",
			try: func(t *testing.T, b *bed) {
				before := b.rss(t)
				raw := zipOf(t, part{name: "SKILL.md", text: strings.Replace(skillText, "%", "bomb", 1)}, part{name: "zeros", text: strings.Repeat("\x00", 256<<20)})
				if a := b.install(t, raw); a.status != http.StatusBadRequest {
					t.Errorf("%d %s", a.status, a.body)
				}
				if grown := b.rss(t) - before; grown > 96<<20 {
					t.Errorf("the server grew by %d bytes", grown)
				}
			},
			control: func(t *testing.T, _ *bed) {
				raw := zipOf(t, part{name: "zeros", text: strings.Repeat("\x00", 256<<20)})
				z, err := zip.NewReader(bytes.NewReader(raw), int64(len(raw)))
				must(t, err)
				f, err := z.File[0].Open()
				must(t, err)
				if n, err := io.Copy(io.Discard, f); err != nil || n != 256<<20 || len(raw) > 1<<20 {
					t.Errorf("%d bytes come out of %d, %v", n, len(raw), err)
				}
			},
		},
	}
}
