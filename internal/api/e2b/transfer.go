package e2b

import (
	"compress/gzip"
	"errors"
	"io"
	"mime"
	"net/http"
	"path"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/workspace/paths"
)

// transfers serves uploads and downloads.
type transfers struct{ *Adapter }

// maxUploads bounds the files of one request.
const maxUploads = 1000

// transfer checks what both ways have in common.
func (a transfers) transfer(r *http.Request, q request) error {
	v := r.URL.Query()
	if v.Has("signature") {
		return notSupported("signed URLs")
	}
	for _, user := range []string{v.Get("username"), r.Header.Get(userHeader)} {
		if err := checkUser(user); err != nil {
			return err
		}
	}
	_, err := a.known.find(r.Context(), q, false)
	return err
}

// download serves a file's bytes. What a sandbox wrote is hostile: it is never shown as a page of this server.
func (a transfers) download(w http.ResponseWriter, r *http.Request, q request) error {
	if err := a.transfer(r, q); err != nil {
		return err
	}
	at, err := virtual(r.URL.Query().Get("path"))
	if err != nil {
		return err
	}
	var file *paths.File
	err = a.o.Files.ReadFiles(r.Context(), q.caller, q.thread, func(files *paths.FS) (err error) {
		file, err = files.Open(at)
		return err
	})
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // read-only
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": path.Base(at)}))
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'")
	h.Set("ETag", file.ETag())
	http.ServeContent(w, r, "", file.Entry().ModifiedAt, file)
	return nil
}

// uploaded is a file that was written, as the SDKs want to hear of it.
type uploaded struct {
	Name string `json:"name"`
	Path string `json:"path"`
	Type string `json:"type"`
}

// upload writes one file of raw bytes, or those of a form.
func (a transfers) upload(w http.ResponseWriter, r *http.Request, q request) error {
	if err := a.transfer(r, q); err != nil {
		return err
	}
	to := r.URL.Query().Get("path")
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	var out []uploaded
	var err error
	switch kind {
	case "application/octet-stream":
		out, err = a.uploadRaw(r, q, to)
	case "multipart/form-data":
		out, err = a.uploadForm(r, q, to)
	default:
		err = sandbox.Errorf(sandbox.Invalid, "Content-Type: want application/octet-stream or multipart/form-data")
	}
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

func (a transfers) uploadRaw(r *http.Request, q request, to string) ([]uploaded, error) {
	body := io.Reader(arriving{r.Body})
	switch r.Header.Get("Content-Encoding") {
	case "":
	case "gzip": // what comes out of it is bounded by the thread's quota, as all that is written
		z, err := gzip.NewReader(body)
		if err != nil {
			return nil, sandbox.Errorf(sandbox.Invalid, "the body is no gzip")
		}
		body = arriving{z}
	default:
		return nil, notSupported("this Content-Encoding")
	}
	u, err := a.write(r, q, to, body)
	return []uploaded{u}, err
}

func (a transfers) uploadForm(r *http.Request, q request, to string) ([]uploaded, error) {
	form, err := r.MultipartReader()
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "the body is no multipart form")
	}
	out := []uploaded{}
	for {
		part, err := form.NextRawPart()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, sandbox.Wrap(sandbox.Invalid, err, "the form ended too early, or is broken")
		}
		if part.FormName() != "file" {
			continue
		}
		name := to
		if name == "" { // multipart would cut the folders off
			_, params, _ := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
			name = params["filename"]
		}
		if len(out) == maxUploads {
			return nil, sandbox.Errorf(sandbox.Invalid, "at most %d files a request", maxUploads)
		}
		u, err := a.write(r, q, name, arriving{part})
		if err != nil {
			return nil, err
		}
		out = append(out, u)
	}
}

// write is one recorded change.
func (a transfers) write(r *http.Request, q request, name string, content io.Reader) (uploaded, error) {
	to, err := virtual(name)
	if err != nil {
		return uploaded{}, err
	}
	err = a.o.Files.ChangeFiles(r.Context(), q.caller, q.thread, audit.ActionFileWrite, to, func(files *paths.FS) (int64, error) {
		w, err := files.Write(r.Context(), to, content, false)
		return w.Added, err
	})
	return uploaded{Name: path.Base(to), Path: to, Type: "file"}, err
}

// arriving sets the kind of errors of a body that does not arrive whole.
type arriving struct{ r io.Reader }

func (a arriving) Read(p []byte) (int, error) {
	n, err := a.r.Read(p)
	if err == nil || errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return n, err
	}
	return n, sandbox.Wrap(sandbox.Invalid, err, "the body ended too early, or is broken")
}
