package e2b

import (
	"compress/gzip"
	"errors"
	"io"
	"mime"
	"net/http"
	"path"
	"strings"

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
	if v.Has("signature") { // one that is good was taken away
		return badSignature(v)
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
	if !ofThread(at) {
		return a.stream(w, r, q, at)
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
	announce(h, at)
	h.Set("ETag", file.ETag())
	http.ServeContent(w, r, "", file.Entry().ModifiedAt, file)
	return nil
}

// announce says that the bytes of a file follow.
func announce(h http.Header, at string) {
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": path.Base(at)}))
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'")
}

// stream sends a file that only the sandbox has. One that breaks off is not to look whole.
func (a transfers) stream(w http.ResponseWriter, r *http.Request, q request, at string) error {
	sent := &streamed{w: w, at: at}
	err := a.o.Files.ReadSandbox(r.Context(), q.caller, q.thread, func(t paths.Tree) error { return t.Read(r.Context(), at, sent) })
	switch {
	case err != nil && sent.begun:
		panic(http.ErrAbortHandler)
	case err == nil:
		_, err = sent.Write(nil) // it may be empty
	}
	return err
}

// streamed announces a file when its first byte comes: until then it may be an error.
type streamed struct {
	w     http.ResponseWriter
	at    string
	begun bool
}

func (s *streamed) Write(p []byte) (int, error) {
	if !s.begun {
		s.begun = true
		announce(s.w.Header(), s.at)
	}
	return s.w.Write(p)
}

// uploaded is a file that was written, as the SDKs want to hear of it.
type uploaded struct {
	Name string `json:"name"`
	Path string `json:"path"`
	Type string `json:"type"`

	Metadata map[string]string `json:"metadata,omitempty"`
}

// metadataHeader begins the headers with metadata of a file, whose names follow.
const metadataHeader = "X-Metadata-"

// metadataOf is what the files of an upload are to be described by.
func metadataOf(h http.Header) (map[string]string, error) {
	var out map[string]string
	for name, values := range h {
		key, ours := strings.CutPrefix(name, metadataHeader)
		if !ours {
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		out[strings.ToLower(key)] = values[0]
	}
	return out, paths.CheckDescription(out)
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
	meta, err := metadataOf(r.Header)
	if err == nil && meta != nil && !ofThread(to) {
		err = notSupported("metadata of files outside " + homeDir)
	}
	if err != nil {
		return uploaded{}, err
	}
	err = a.changeTree(r.Context(), q, audit.ActionFileWrite, to, []string{to}, func(t paths.Tree) (int64, error) {
		if own, ok := t.(threadTree); ok {
			return own.writeDescribed(r.Context(), to, content, meta)
		}
		return t.Write(r.Context(), to, content)
	})
	return uploaded{Name: path.Base(to), Path: shown(to), Type: "file", Metadata: meta}, err
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
