package librechat

import (
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/skerry-sandbox/skerry/internal/api/inprocess"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/workspace/paths"
)

// maxParts bounds the parts of a form that are no files.
const maxParts = 32

// maxDepth is how deep files are found.
const maxDepth = 16

func contentPath(thread string) string { return "/api/threads/" + thread + "/files/content" }

// inWorkspace is the query for a file. The API says what is wrong with a name that leads out of there.
func inWorkspace(name string) map[string]string {
	return map[string]string{"path": sandbox.WorkspaceDir + "/" + name}
}

// relative is the path below the workspace where a file of that name lies, as lists show it: the API takes "/a//b" for "a/b". A name
// that leads out stays, and the API says so.
func relative(name string) string {
	if slices.Contains(strings.Split(name, "/"), "..") {
		return name
	}
	return strings.TrimPrefix(path.Clean("/"+name), "/")
}

// file is one of a session.
type file struct {
	name string // relative to the workspace
	paths.Entry
}

// files lists a session.
func (c *call) files(session string) ([]file, error) {
	var got paths.Listing
	if err := c.into(inprocess.Request{Method: http.MethodGet, Path: "/api/threads/" + session + "/files/list", Query: map[string]string{"path": sandbox.WorkspaceDir, "depth": strconv.Itoa(maxDepth)}}, &got); err != nil {
		return nil, err
	}
	all := []file{}
	for _, e := range got.Items {
		if name, ok := strings.CutPrefix(e.Path, sandbox.WorkspaceDir+"/"); ok && !e.IsDir && e.Symlink == "" {
			all = append(all, file{name, e})
		}
	}
	return all, nil
}

// named returns the file that the path of a request names.
func (c *call) named() (session string, f file, err error) {
	if session, err = c.session(); err != nil {
		return "", file{}, err
	}
	all, err := c.files(session)
	if err != nil {
		return "", file{}, err
	}
	id := c.R.PathValue("file")
	for _, f := range all {
		if fileID(f.name) == id {
			return session, f, nil
		}
	}
	return "", file{}, sandbox.Errorf(sandbox.NotFound, "the session %s has no file %.64q", session, id)
}

// shown is a file as LibreChat reads it. Its name begins with what LibreChat finds it by.
type shown struct {
	Name         string            `json:"name"`
	ID           string            `json:"id"`
	Session      string            `json:"storage_session_id"`
	Older        string            `json:"session_id"`
	Size         int64             `json:"size"`
	LastModified time.Time         `json:"lastModified"`
	ContentType  string            `json:"contentType"`
	Metadata     map[string]string `json:"metadata"`
}

func show(session string, f file) shown {
	id, kind := fileID(f.name), mime.TypeByExtension(path.Ext(f.name))
	if kind == "" {
		kind = "application/octet-stream"
	}
	return shown{
		Name: session + "/" + id + path.Ext(f.name), ID: id, Session: session, Older: session, Size: f.Bytes, LastModified: f.ModifiedAt.UTC(),
		ContentType: kind, Metadata: map[string]string{"content-type": kind, "original-filename": f.name},
	}
}

func (*adapter) list(c *call) error {
	session, err := c.session()
	if err != nil {
		return err
	}
	all, err := c.files(session)
	if err != nil {
		return err
	}
	if detail := c.R.URL.Query().Get("detail"); detail == "" || detail == "simple" {
		names := []string{}
		for _, f := range all {
			names = append(names, show(session, f).Name)
		}
		inprocess.Write(c.W, http.StatusOK, names)
		return nil
	}
	items := []shown{}
	for _, f := range all {
		items = append(items, show(session, f))
	}
	inprocess.Write(c.W, http.StatusOK, items)
	return nil
}

func (*adapter) object(c *call) error {
	session, f, err := c.named()
	if err != nil {
		return err
	}
	inprocess.Write(c.W, http.StatusOK, show(session, f))
	return nil
}

// download passes the API's answer on as it comes.
func (*adapter) download(c *call) error {
	session, f, err := c.named()
	if err != nil {
		return err
	}
	r, err := c.Make(c.with(inprocess.Request{Method: http.MethodGet, Path: contentPath(session), Query: inWorkspace(f.name)}))
	if err != nil {
		return err
	}
	c.API.ServeHTTP(c.W, r)
	return nil
}

func (*adapter) remove(c *call) error {
	session, f, err := c.named()
	if err != nil {
		return err
	}
	if _, err := c.do(inprocess.Request{Method: http.MethodDelete, Path: "/api/threads/" + session + "/files", Query: inWorkspace(f.name)}); err != nil {
		return err
	}
	inprocess.Write(c.W, http.StatusOK, map[string]string{"message": "File deleted successfully"})
	return nil
}

// uploaded is a file that was.
type uploaded struct {
	Status   string `json:"status,omitempty"` // of a batch: "success" or "error"
	Filename string `json:"filename"`
	FileID   string `json:"fileId,omitempty"`
	Error    string `json:"error,omitempty"`
}

// upload takes one file, or several, and fails with the first that fails.
func (*adapter) upload(c *call) error {
	session := newSession()
	files := []uploaded{}
	err := c.parts(func(name string, content io.Reader) error {
		if err := c.put(session, name, content); err != nil {
			return err
		}
		files = append(files, uploaded{Filename: name, FileID: fileID(name)})
		return nil
	})
	if err != nil {
		return err
	}
	inprocess.Write(c.W, http.StatusOK, map[string]any{"message": "success", "session_id": session, "storage_session_id": session, "files": files})
	return nil
}

// uploadBatch takes several files, and says of each how it went.
func (*adapter) uploadBatch(c *call) error {
	session := newSession()
	files := []uploaded{}
	failed := 0
	err := c.parts(func(name string, content io.Reader) error {
		err := c.put(session, name, content)
		var refused *inprocess.Refusal
		switch {
		case err == nil:
			files = append(files, uploaded{Status: "success", Filename: name, FileID: fileID(name)})
		case errors.As(err, &refused) && refused.Status != http.StatusUnauthorized:
			failed++
			files = append(files, uploaded{Status: "error", Filename: name, Error: refused.Detail})
		default:
			return err
		}
		return nil
	})
	if err != nil {
		return err
	}
	message := "success"
	switch failed {
	case 0:
	case len(files):
		message = "error"
	default:
		message = "partial_success"
	}
	inprocess.Write(c.W, http.StatusOK, map[string]any{
		"message": message, "session_id": session, "storage_session_id": session, "files": files, "succeeded": len(files) - failed, "failed": failed,
	})
	return nil
}

func (c *call) put(session, name string, content io.Reader) error {
	_, err := c.do(inprocess.Request{Method: http.MethodPut, Path: contentPath(session), Query: inWorkspace(name), Body: content})
	return err
}

// parts calls take with each file of a form as it comes. Fields are passed over: whose files they are follows from the key.
func (c *call) parts(take func(name string, content io.Reader) error) error {
	form, err := c.R.MultipartReader()
	if err != nil {
		return sandbox.Errorf(sandbox.Invalid, "Content-Type: the body has to be multipart/form-data")
	}
	files, others := 0, 0
	for {
		part, err := form.NextRawPart()
		switch {
		case errors.Is(err, io.EOF) && files == 0:
			return sandbox.Errorf(sandbox.Invalid, "the form has no file in it")
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return sandbox.Wrap(sandbox.Invalid, err, "the form ended too early, or is broken")
		}
		name, isFile := filename(part)
		if !isFile {
			if others++; others > maxParts {
				return sandbox.Errorf(sandbox.Invalid, "the form has more than %d fields", maxParts)
			}
			continue
		}
		if files++; files > maxFiles {
			return sandbox.Errorf(sandbox.Invalid, "the form has more than %d files", maxFiles)
		}
		if err := take(relative(name), part); err != nil {
			return err
		}
	}
}

// filename returns the name of a part with its folders, which FileName would cut off.
func filename(p *multipart.Part) (name string, ok bool) {
	_, params, err := mime.ParseMediaType(p.Header.Get("Content-Disposition"))
	if err != nil {
		return "", false
	}
	name, ok = params["filename"]
	return name, ok
}
