package skerry

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"
	"strings"
)

// Paths of files are those inside of the sandbox: /mnt/user-data/… can be written, /mnt/skills/…,
// /mnt/plugins/… and /mnt/code-api/… can be read. None of these calls starts a sandbox.

func at(path string) url.Values { return url.Values{"path": {path}} }

func (t *Thread) files(part string) string { return t.path("files") + part }

// ReadFile reads a file by lines: it passes over offset of them and returns limit, 2000 when 0.
func (t *Thread) ReadFile(ctx context.Context, path string, offset, limit int) (*FileText, error) {
	q := at(path)
	setInt(q, "offset", offset)
	setInt(q, "limit", limit)
	return get[FileText](ctx, t.c, Request{Method: http.MethodGet, Path: t.files(""), Query: q})
}

// WriteFile writes a whole file of at most some MiB; folders above it are made.
func (t *Thread) WriteFile(ctx context.Context, path string, data []byte) (*Written, error) {
	return t.write(ctx, path, data, false)
}

// AppendFile writes behind what a file has.
func (t *Thread) AppendFile(ctx context.Context, path string, data []byte) (*Written, error) {
	return t.write(ctx, path, data, true)
}

func (t *Thread) write(ctx context.Context, path string, data []byte, after bool) (*Written, error) {
	body := map[string]any{"path": path, "content": base64.StdEncoding.EncodeToString(data), "encoding": "base64", "append": after}
	return get[Written](ctx, t.c, Request{Method: http.MethodPut, Path: t.files(""), Body: body, Once: after})
}

// EditFile replaces a text in a file: Conflict when it is not there, or there more than once unless all.
func (t *Thread) EditFile(ctx context.Context, path, old, replacement string, all bool) (*Edited, error) {
	body := map[string]any{"path": path, "old": old, "new": replacement, "replace_all": all}
	return get[Edited](ctx, t.c, Request{Method: http.MethodPost, Path: t.files("/edit"), Body: body})
}

// ListFiles lists a folder, so many levels deep; 0 is 1.
func (t *Thread) ListFiles(ctx context.Context, path string, depth int) (*FileListing, error) {
	q := at(path)
	setInt(q, "depth", depth)
	return get[FileListing](ctx, t.c, Request{Method: http.MethodGet, Path: t.files("/list"), Query: q})
}

// GlobFiles finds files below a folder by a pattern such as "**/*.py".
func (t *Thread) GlobFiles(ctx context.Context, path, pattern string) (*FileListing, error) {
	q := at(path)
	q.Set("pattern", pattern)
	return get[FileListing](ctx, t.c, Request{Method: http.MethodGet, Path: t.files("/glob"), Query: q})
}

// GrepOptions say what GrepFiles looks for.
type GrepOptions struct {
	Pattern    string
	Regex      bool   // RE2; else Pattern is plain text
	Glob       string // only in files that match
	Max        int    // lines; 100 when 0
	Context    int    // lines before and after
	IgnoreCase bool
}

// GrepFiles finds lines in the files below a folder.
func (t *Thread) GrepFiles(ctx context.Context, path string, o GrepOptions) (*GrepMatches, error) {
	q := at(path)
	q.Set("pattern", o.Pattern)
	set(q, "glob", o.Glob)
	setInt(q, "max", o.Max)
	setInt(q, "context", o.Context)
	for name, on := range map[string]bool{"regex": o.Regex, "ignore_case": o.IgnoreCase} {
		if on {
			q.Set(name, "true")
		}
	}
	return get[GrepMatches](ctx, t.c, Request{Method: http.MethodGet, Path: t.files("/grep"), Query: q})
}

// StatFile says what a path is.
func (t *Thread) StatFile(ctx context.Context, path string) (*FileEntry, error) {
	return get[FileEntry](ctx, t.c, Request{Method: http.MethodGet, Path: t.files("/stat"), Query: at(path)})
}

// DeleteFile deletes a file, or with recursive a folder.
func (t *Thread) DeleteFile(ctx context.Context, path string, recursive bool) error {
	q := at(path)
	if recursive {
		q.Set("recursive", "true")
	}
	return t.call(ctx, Request{Method: http.MethodDelete, Path: t.files(""), Query: q}, nil)
}

// MakeFolder makes a folder and those above it.
func (t *Thread) MakeFolder(ctx context.Context, path string) (*FileEntry, error) {
	return get[FileEntry](ctx, t.c, Request{Method: http.MethodPost, Path: t.files("/mkdir"), Body: map[string]string{"path": path}})
}

// MoveFile renames a file or folder: Conflict when the new name exists.
func (t *Thread) MoveFile(ctx context.Context, from, to string) (*FileEntry, error) {
	return get[FileEntry](ctx, t.c, Request{Method: http.MethodPost, Path: t.files("/move"), Body: map[string]string{"from": from, "to": to}})
}

// Content is a file as it comes. ETag names this version of it, for IfMatch.
type Content struct {
	io.ReadCloser
	ETag string
}

// Get reads a file's bytes, however many. The caller closes it; a read that fails with
// io.ErrUnexpectedEOF means that not all came.
func (t *Thread) Get(ctx context.Context, path string) (*Content, error) {
	res, err := t.c.open(ctx, Request{Method: http.MethodGet, Path: t.files("/content"), Query: at(path)}, t.c.o.Timeout) //nolint:bodyclose // it is what is given
	if err != nil {
		return nil, err
	}
	return &Content{res.Body, res.Header.Get("ETag")}, nil
}

// Condition is what Put wants of the file that is there. ErrPreconditionFailed: it is not so, and nothing was written.
type Condition struct{ header, value string }

// IfMatch wants the file to be one of these versions, which are ETags of Content or Written. "*": any file.
func IfMatch(etags ...string) Condition { return Condition{"If-Match", strings.Join(etags, ", ")} }

// IfAbsent wants no file to be there.
func IfAbsent() Condition { return Condition{"If-None-Match", "*"} }

// Put writes a file's bytes, however many. It is sent again after an error only when r is an io.Seeker. With a condition it is not sent
// again when it may have been done: the file that it wrote itself would not fit any more.
func (t *Thread) Put(ctx context.Context, path string, r io.Reader, only ...Condition) (*Written, error) {
	h := http.Header{}
	for _, c := range only {
		if c.value == "" {
			return nil, errors.New("skerry: IfMatch has no ETag: the write would have no condition")
		}
		h.Set(c.header, c.value)
	}
	var out Written
	err := t.c.send(ctx, Request{
		Method: http.MethodPut, Path: t.files("/content"), Query: at(path), Header: h, Content: r, ContentType: "application/octet-stream", Once: len(only) > 0,
	}, &out)
	if err != nil {
		return nil, err
	}
	return &out, nil
}

// UploadFile is one file of Upload. A Path that is not absolute is below /mnt/user-data/uploads.
type UploadFile struct {
	Path string
	Data io.Reader
}

// Upload writes many files in one request, which is sent once. Each has a result of its own, in order.
func (t *Thread) Upload(ctx context.Context, files []UploadFile) ([]Transferred, error) {
	r, w := io.Pipe()
	form := multipart.NewWriter(w)
	go func() { // it ends with the request, which reads r or closes it
		w.CloseWithError(writeForm(form, files)) //nolint:errcheck // it never fails
	}()
	defer r.Close() //nolint:errcheck // it never fails
	var p page[Transferred]
	err := t.c.send(ctx, Request{
		Method: http.MethodPost, Path: t.files("/upload"), Content: r, ContentType: form.FormDataContentType(), Once: true,
	}, &p)
	return p.Items, err
}

func writeForm(form *multipart.Writer, files []UploadFile) error {
	quote := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\r", "%0D", "\n", "%0A")
	for _, f := range files {
		part, err := form.CreatePart(textproto.MIMEHeader{
			"Content-Disposition": {`form-data; name="files"; filename="` + quote.Replace(f.Path) + `"`},
			"Content-Type":        {"application/octet-stream"},
		})
		if err != nil {
			return err
		}
		if _, err := io.Copy(part, f.Data); err != nil {
			return err
		}
	}
	return form.Close()
}

// Download reads many files, at most 32 MiB together. Each has a result of its own, in order.
func (t *Thread) Download(ctx context.Context, paths []string) ([]Transferred, error) {
	p, err := get[page[Transferred]](ctx, t.c, Request{Method: http.MethodPost, Path: t.files("/download"), Body: map[string]any{"paths": paths}})
	if err != nil {
		return nil, err
	}
	return p.Items, nil
}

// send sends content that takes as long as it takes, and decodes the answer.
func (c *Client) send(ctx context.Context, r Request, out any) error {
	res, err := c.open(ctx, r, max(c.o.Silence, c.o.Timeout))
	if err != nil {
		return err
	}
	return errors.Join(decode(res.Body, r, out), res.Body.Close())
}
