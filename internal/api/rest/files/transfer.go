package files

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"mime"
	"net/http"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humagin"

	"github.com/skerry-sandbox/skerry/internal/api/rest/exchange"
	"github.com/skerry-sandbox/skerry/internal/api/rest/problem"
	"github.com/skerry-sandbox/skerry/internal/api/rest/route"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/service"
	"github.com/skerry-sandbox/skerry/internal/workspace/paths"
)

// transferRoutes are the routes of uploads and downloads.
type transferRoutes struct {
	api   *route.API
	files service.Files
}

// Bounds of transfers of many files.
const (
	maxTransferFiles  = 1000
	maxDownloadBytes  = 32 << 20 // content of one download answer
	maxFormValueBytes = 8 << 10
)

// transferred is what became of one file of an upload or download.
type transferred struct {
	Path     string  `json:"path"`
	Bytes    int64   `json:"bytes"`
	Content  *string `json:"content,omitempty" doc:"Of a download"`
	Encoding string  `json:"encoding,omitempty" enum:"utf-8,base64"`
	Error    string  `json:"error,omitempty" enum:"file_not_found,permission_denied,is_directory,invalid_path,quota_exceeded"`
	Detail   string  `json:"detail,omitempty"`
}

// putIn names a file that is written, and says what the caller knows of it.
type putIn struct {
	PathIn
	IfMatch     []string `header:"If-Match" maxItems:"64" doc:"ETags of GET …/files/content, one of which the file has to have; *: it has to be there"`
	IfNoneMatch []string `header:"If-None-Match" maxItems:"1" doc:"*: the file must not be there"`
}

func (s transferRoutes) add() {
	const files = "/api/threads/{thread}/files"
	op := s.binaryOp(route.On(http.MethodGet, files+"/content", "getContent", route.TagFiles, route.Agents.At(route.FileReader), "A file's bytes; ranges and ETag"))
	route.Register(s.api, op, s.content)
	op = s.binaryOp(route.On(http.MethodHead, files+"/content", "headContent", route.TagFiles, route.Agents.At(route.FileReader), "Size and ETag of a file"))
	route.Register(s.api, op, s.content)
	op = route.On(http.MethodPut, files+"/content", "putContent", route.TagFiles, route.Agents.At(route.FileWriter).Taking(route.AnyType), "Write a file's bytes: 201 when it is new; streamed, any size up to the quota")
	op.Description = "With If-Match or If-None-Match the file is written only when it still is what the caller knows, else the answer is 412 with the code conflict, and nothing was written. " +
		"The server looks before it takes the bytes and again when it has them all. A program in the sandbox that writes at that very moment is not seen."
	op.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{"application/octet-stream": {Schema: route.Binary()}}}
	route.Register(s.api, route.Also[paths.Written](s.api, op, "201", "The file is new"), s.putContent)
	op = route.On(http.MethodPost, files+"/upload", "uploadFiles", route.TagFiles, route.Agents.At(route.FileWriter).Taking("multipart/form-data"),
		"Write many files. A part's file name is its path: absolute, or below the form field path (before the files; /mnt/user-data/uploads when absent)")
	route.Register(s.api, op, s.upload)
	// The form is streamed, so huma must not know of it before the route is registered.
	s.api.OpenAPI().Paths[files+"/upload"].Post.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
		"multipart/form-data": {Schema: &huma.Schema{Type: huma.TypeObject, Properties: map[string]*huma.Schema{
			"path": {Type: huma.TypeString}, "files": {Type: huma.TypeArray, Items: route.Binary()},
		}}},
	}}
	route.Register(s.api, route.On(http.MethodPost, files+"/download", "downloadFiles", route.TagFiles, route.Agents.At(route.FileWriter), "Read many files, at most 32 MiB together"), s.download)
}

func (s transferRoutes) binaryOp(op huma.Operation) huma.Operation {
	op.Responses = map[string]*huma.Response{
		"200":     {Description: "OK", Content: map[string]*huma.MediaType{"application/octet-stream": {Schema: route.Binary()}}},
		"206":     {Description: "The range that was asked for"},
		"304":     {Description: "Not changed"},
		"416":     {Description: "No such range"},
		"default": s.api.ProblemResponse(),
	}
	return op
}

// content serves a file's bytes. What a sandbox wrote is hostile: it is never shown as a page of
// this server.
func (s transferRoutes) content(ctx context.Context, in *PathIn) (*route.Written, error) {
	file, err := service.View(ctx, s.files, exchange.CallerOf(ctx), in.Thread, func(f *paths.FS) (*paths.File, error) { return f.Open(in.Path) })
	if err != nil {
		return nil, err
	}
	return &route.Written{Body: func(c huma.Context) {
		defer file.Close() //nolint:errcheck // read-only
		g := humagin.Unwrap(c)
		e, h := file.Entry(), g.Writer.Header()
		kind := mime.TypeByExtension(path.Ext(e.Path))
		if kind == "" {
			kind = "application/octet-stream"
		}
		h.Set("Content-Type", kind)
		h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": path.Base(e.Path)}))
		h.Set("Content-Security-Policy", "sandbox; default-src 'none'")
		h.Set("ETag", file.ETag())
		http.ServeContent(plainErrors{g.Writer}, g.Request, "", e.ModifiedAt, file)
	}}, nil
}

// plainErrors makes problem documents of the errors of http.ServeContent.
type plainErrors struct{ http.ResponseWriter }

func (w plainErrors) WriteHeader(status int) {
	if status < http.StatusBadRequest {
		w.ResponseWriter.WriteHeader(status)
		return
	}
	for _, k := range []string{"Content-Disposition", "Etag", "Content-Length", "Last-Modified"} {
		w.Header().Del(k)
	}
	p := problem.New(sandbox.Invalid, "the file has no such range", problem.FieldError{Field: "Range", Detail: "outside of the file"}).WithStatus(status)
	problem.Write(w.ResponseWriter, p)
}

func (w plainErrors) Write(p []byte) (int, error) {
	if g, ok := w.ResponseWriter.(interface{ Status() int }); ok && g.Status() >= http.StatusBadRequest {
		return len(p), nil // the text that the problem document replaces
	}
	return w.ResponseWriter.Write(p)
}

// putAnswer is what a write did; its ETag is in the header, too.
type putAnswer struct {
	Status int
	ETag   string `header:"ETag" doc:"Of the file as this call left it"`
	Body   paths.Written
}

func (s transferRoutes) putContent(ctx context.Context, in *putIn) (*putAnswer, error) {
	r := exchange.Of(ctx).Request
	if len(in.IfNoneMatch) > 0 && !slices.Equal(in.IfNoneMatch, []string{"*"}) {
		return nil, sandbox.InvalidField("If-None-Match", "has to be *: nothing may be there")
	}
	with := paths.Writing{Absent: len(in.IfNoneMatch) > 0}
	for _, tag := range in.IfMatch {
		with.Match = append(with.Match, strings.TrimSpace(tag))
	}
	w, err := service.Put(ctx, s.files, exchange.CallerOf(ctx), in.Thread, in.Path, func(f *paths.FS) (paths.Written, error) {
		return f.WriteWith(ctx, in.Path, exchange.Body(r.Body), with)
	})
	if errors.Is(err, paths.ErrChanged) {
		return nil, problem.Of(ctx, err).WithStatus(http.StatusPreconditionFailed)
	}
	if err != nil {
		return nil, err
	}
	return &putAnswer{Status: writtenStatus(w), ETag: w.ETag, Body: w}, nil
}

func (s transferRoutes) upload(ctx context.Context, in *route.ThreadIn) (*route.Body[route.Page[transferred]], error) {
	r := exchange.Of(ctx).Request
	form, err := r.MultipartReader()
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "the body is no multipart form")
	}
	folder, items := sandbox.UploadsDir, []transferred{}
	for {
		part, err := form.NextRawPart()
		if errors.Is(err, io.EOF) && len(items) > 0 {
			return route.PageOf(items, ""), nil
		}
		if errors.Is(err, io.EOF) {
			return nil, sandbox.Errorf(sandbox.Invalid, "the form has no file in it")
		}
		if err != nil {
			return nil, sandbox.Wrap(sandbox.Invalid, err, "the form ended too early, or is broken")
		}
		name, isFile := exchange.FileName(part)
		if !isFile {
			if part.FormName() != "path" {
				continue
			}
			value, err := io.ReadAll(io.LimitReader(exchange.Body(part), maxFormValueBytes))
			if err != nil {
				return nil, err
			}
			folder = string(value)
			continue
		}
		if len(items) == maxTransferFiles {
			return nil, sandbox.Errorf(sandbox.Invalid, "at most %d files a request", maxTransferFiles)
		}
		item, err := s.uploadOne(ctx, in.Thread, target(folder, name), part)
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
}

// target is where a file of an upload goes. What is wrong with it, workspace/paths will say.
func target(folder, name string) string {
	if strings.HasPrefix(name, "/") {
		return name
	}
	return strings.TrimSuffix(folder, "/") + "/" + name
}

func (s transferRoutes) uploadOne(ctx context.Context, thread, to string, content io.Reader) (transferred, error) {
	w, err := service.Put(ctx, s.files, exchange.CallerOf(ctx), thread, to, func(f *paths.FS) (paths.Written, error) {
		if strings.HasSuffix(to, "/") {
			return paths.Written{}, sandbox.InvalidField("filename", "a file name is missing")
		}
		return f.Write(ctx, to, exchange.Body(content), false)
	})
	if err != nil {
		return failed(to, err)
	}
	return transferred{Path: w.Path, Bytes: w.Bytes}, nil
}

// failed adds to the error of one file its name. An error that is not about that file fails the
// request.
func failed(name string, err error) (transferred, error) {
	t := transferred{Path: name}
	var e *sandbox.Error
	if errors.As(err, &e) {
		t.Detail = e.Detail
	}
	switch kind := sandbox.KindOf(err); {
	case errors.Is(err, paths.ErrIsDirectory):
		t.Error = "is_directory"
	case kind == sandbox.NotFound:
		t.Error = "file_not_found"
	case kind == sandbox.Forbidden:
		t.Error = "permission_denied"
	case kind == sandbox.Invalid || kind == sandbox.Conflict:
		t.Error = "invalid_path"
	case kind == sandbox.QuotaExceeded:
		t.Error = "quota_exceeded"
	default:
		return t, err
	}
	return t, nil
}

func (s transferRoutes) download(ctx context.Context, in *struct {
	route.ThreadIn
	Body struct {
		Paths []string `json:"paths" minItems:"1" maxItems:"1000"`
	}
},
) (*route.Body[route.Page[transferred]], error) {
	items, err := service.View(ctx, s.files, exchange.CallerOf(ctx), in.Thread, func(f *paths.FS) ([]transferred, error) {
		left := int64(maxDownloadBytes)
		items := make([]transferred, 0, len(in.Body.Paths))
		for _, name := range in.Body.Paths {
			item, err := downloadOne(f, name, left)
			if err != nil {
				if item, err = failed(name, err); err != nil {
					return nil, err
				}
			}
			left -= item.Bytes
			items = append(items, item)
		}
		return items, nil
	})
	if err != nil {
		return nil, err
	}
	return route.PageOf(items, ""), nil
}

func downloadOne(f *paths.FS, name string, left int64) (transferred, error) {
	file, err := f.Open(name)
	if err != nil {
		return transferred{}, err
	}
	defer file.Close() //nolint:errcheck // read-only
	content, err := io.ReadAll(io.LimitReader(file, left+1))
	if err != nil {
		return transferred{}, err
	}
	if int64(len(content)) > left {
		return transferred{}, sandbox.Errorf(sandbox.QuotaExceeded, "%s: more than %d bytes in one answer; get it by files/content", name, maxDownloadBytes)
	}
	t := transferred{Path: name, Bytes: int64(len(content)), Encoding: "utf-8"}
	text := string(content)
	if !utf8.ValidString(text) {
		t.Encoding, text = "base64", base64.StdEncoding.EncodeToString(content)
	}
	t.Content = &text
	return t, nil
}
