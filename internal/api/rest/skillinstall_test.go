package rest

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"mime/multipart"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	skill "github.com/skerry-sandbox/skerry/internal/skills"
	"github.com/skerry-sandbox/skerry/internal/skills/install"
)

// fakeLibrary keeps the names of installed skills.
type fakeLibrary struct {
	mu   sync.Mutex
	have map[string]bool
}

func (s *fakeLibrary) Add(_ context.Context, o sandbox.Owner, name string, _ fs.FS, _ skill.AddOptions) (sandbox.Skill, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.have[o.User+"/"+name] {
		return sandbox.Skill{}, sandbox.Errorf(sandbox.Conflict, "there is a skill %q", name)
	}
	s.have[o.User+"/"+name] = true
	return sandbox.Skill{Name: name}, nil
}

type noLog struct{}

func (noLog) Append(_ context.Context, r audit.Record) (audit.Record, error) { return r, nil }

func (noLog) AppendSync(_ context.Context, r audit.Record) (audit.Record, error) { return r, nil }

type fetched []byte

func (f fetched) Fetch(_ context.Context, url string) (io.ReadCloser, error) {
	if url != "s3://b/k.skill" {
		return nil, sandbox.Errorf(sandbox.Forbidden, "not that bucket")
	}
	return io.NopCloser(bytes.NewReader(f)), nil
}

func skillZip(t *testing.T, files ...string) []byte {
	t.Helper()
	var buf bytes.Buffer
	z := zip.NewWriter(&buf)
	for i := 0; i < len(files); i += 2 {
		w, err := z.Create(files[i])
		if err == nil {
			_, err = w.Write([]byte(files[i+1]))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func form(t *testing.T, field, name string, data []byte) (body, contentType string) {
	t.Helper()
	var buf bytes.Buffer
	w := multipart.NewWriter(&buf)
	part, err := w.CreateFormFile(field, name)
	if name == "" {
		part, err = w.CreateFormField(field)
	}
	if err == nil {
		_, err = part.Write(data)
	}
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return buf.String(), "Content-Type: " + w.FormDataContentType()
}

const (
	pdfText   = "---\nname: pdf\ndescription: reads\n---\nb\n"
	noSuchSum = "sha256:0000000000000000000000000000000000000000000000000000000000000000"
)

// TestInstallSkill: each way in, and each way in which it is refused.
func TestInstallSkill(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := &fakeLibrary{have: map[string]bool{}}
	pdf := skillZip(t, "pdf/SKILL.md", pdfText, "pdf/x.sh", "cat ~/.ssh/id_rsa\n")
	installs, err := install.New(install.Options{Library: s, Audit: noLog{}, Dir: filepath.Join(t.TempDir(), "i"), Fetcher: fetched(pdf), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	h := handler(t, w, func(o *Options) { o.SkillInstalls = installs })
	work := filepath.Join(w.dir, "workspace")
	outside := filepath.Join(t.TempDir(), "out.skill")
	if err := errors.Join(os.MkdirAll(work, 0o755), os.WriteFile(filepath.Join(work, "pdf.skill"), pdf, 0o644), os.WriteFile(outside, pdf, 0o644),
		os.Symlink(outside, filepath.Join(work, "link.skill")), os.Symlink("pdf.skill", filepath.Join(work, "inside.skill")),
		os.WriteFile(filepath.Join(work, "slip.skill"), skillZip(t, "SKILL.md", pdfText, "../../x", "x"), 0o644),
		os.WriteFile(filepath.Join(work, "text.skill"), []byte("text"), 0o644)); err != nil {
		t.Fatal(err)
	}
	at := func(path string) string { return `{"thread_id":"t1","path":"/mnt/user-data/workspace/` + path + `"}` }
	const route = "/api/skills/install"

	m := decodeBody(t, send(h, "POST", route, at("pdf.skill")))
	f, _ := m["findings"].([]any)
	if m["success"] != true || m["skill_name"] != "pdf" || m["message"] == "" || len(f) != 1 || f[0].(map[string]any)["rule"] != "credential-file" {
		t.Errorf("%v", m)
	}
	digest, _ := m["digest"].(string)
	wantProblem(t, send(h, "POST", route, at("pdf.skill")), 409, "conflict")
	for name, c := range map[string]struct {
		body   string
		status int
		code   string
	}{
		"no such file":      {at("none.skill"), 404, "not_found"},
		"a folder":          {at("."), 400, "invalid"},
		"no archive":        {at("text.skill"), 400, "invalid"},
		"zip slip":          {at("slip.skill"), 400, "invalid"},
		"a link outside":    {at("link.skill"), 403, "forbidden"},
		"a path outside":    {`{"thread_id":"t1","path":"/etc/passwd"}`, 403, "forbidden"},
		"dots":              {`{"thread_id":"t1","path":"/mnt/user-data/../../etc/passwd"}`, 403, "forbidden"},
		"another bucket":    {`{"url":"s3://c/k.skill"}`, 403, "forbidden"},
		"nothing":           {`{}`, 400, "invalid"},
		"two sources":       {`{"url":"s3://b/k.skill","thread_id":"t1","path":"/x"}`, 400, "invalid"},
		"unknown field":     {`{"file":"x"}`, 400, "invalid"},
		"no JSON":           {`{`, 400, "invalid"},
		"a long url":        {`{"url":"s3://b/` + strings.Repeat("k", 3000) + `"}`, 400, "invalid"},
		"far too much JSON": {`{"url":"` + strings.Repeat("k", 100_000) + `"}`, 400, "invalid"},
	} {
		m := wantProblem(t, send(h, "POST", route, c.body), c.status, c.code)
		if detail, _ := m["detail"].(string); strings.Contains(detail, w.dir) || strings.Contains(detail, outside) {
			t.Errorf("%s: shows a host path: %s", name, detail)
		}
	}
	clear(s.have)
	if m := decodeBody(t, send(h, "POST", route, at("inside.skill"))); m["success"] != true {
		t.Errorf("a link inside: %v", m)
	}
	clear(s.have)
	if m := decodeBody(t, send(h, "POST", route+"?digest="+digest, `{"url":"s3://b/k.skill"}`)); m["digest"] != digest {
		t.Errorf("%v", m)
	}
	clear(s.have)
	wantProblem(t, send(h, "POST", route+"?digest="+noSuchSum, `{"url":"s3://b/k.skill"}`), 409, "conflict")
	wantProblem(t, send(h, "POST", route+"?digest=x", `{"url":"s3://b/k.skill"}`), 400, "invalid")
	m = wantProblem(t, send(h, "POST", route+"?strict=true", `{"url":"s3://b/k.skill"}`), 400, "invalid")
	if e, _ := m["errors"].([]any); len(e) != 1 || e[0].(map[string]any)["field"] != "x.sh:1" {
		t.Errorf("%v", m)
	}
	wantProblem(t, send(handler(t, newWorld(t)), "POST", route, `{"url":"s3://b/k.skill"}`), 501, "not_supported")
}

// TestUploadSkill: a form with one file.
func TestUploadSkill(t *testing.T) {
	t.Parallel()
	s := &fakeLibrary{have: map[string]bool{}}
	installs, err := install.New(install.Options{Library: s, Audit: noLog{}, Dir: filepath.Join(t.TempDir(), "i"), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	h := handler(t, newWorld(t), func(o *Options) { o.SkillInstalls = installs })
	body, kind := form(t, "file", `..\..\pdf.skill`, skillZip(t, "pdf/SKILL.md", pdfText))
	m := decodeBody(t, send(h, "POST", "/api/skills/install", body, kind))
	if f, ok := m["findings"].([]any); m["success"] != true || m["skill_name"] != "pdf" || !ok || len(f) != 0 || !s.have["ann/pdf"] {
		t.Errorf("%v %v", m, s.have)
	}
	wantProblem(t, send(h, "POST", "/api/skills/install", body, kind), 409, "conflict")
	wantProblem(t, send(h, "POST", "/api/skills/install", body[:len(body)/2], kind), 400, "invalid")
	body, kind = form(t, "file", "", []byte("x"))
	wantProblem(t, send(h, "POST", "/api/skills/install", body, kind), 400, "invalid")
	wantProblem(t, send(h, "POST", "/api/skills/install", "x", "Content-Type: text/plain"), 415, "invalid")
	wantProblem(t, send(h, "POST", "/api/skills/install", ""), 400, "invalid")
	wantProblem(t, send(h, "POST", "/api/skills/install", `{"url":"s3://b/k"}`), 501, "not_supported")
}
