package exchange

import (
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net"
	"net/http"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// idleBody is a request body whose sender may pause for idle at most. At its end net/http takes the
// deadline away.
type idleBody struct {
	io.ReadCloser
	rc   *http.ResponseController
	idle time.Duration
	last time.Time
	done bool
}

func (b *idleBody) Read(p []byte) (int, error) {
	if now := time.Now(); now.Sub(b.last) > b.idle/8 {
		b.last = now
		_ = b.rc.SetReadDeadline(now.Add(b.idle))
	}
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		b.done = true
	}
	return n, err
}

// Slow reports whether a body could not be read because its sender paused for too long.
func Slow(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

// Body returns r, the body of a request or a part of it. Its errors have the kinds of a body that does not
// arrive whole.
func Body(r io.Reader) io.Reader { return &upload{r} }

type upload struct{ r io.Reader }

func (u *upload) Read(p []byte) (int, error) {
	n, err := u.r.Read(p)
	switch {
	case err == nil || errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		return n, err
	case Slow(err):
		return n, sandbox.Wrap(sandbox.Timeout, err, "the body came too slowly")
	}
	return n, sandbox.Wrap(sandbox.Invalid, err, "the body ended too early")
}

// FileName is the name of a file part as it was sent: multipart would cut its folders off.
func FileName(part *multipart.Part) (name string, isFile bool) {
	_, params, err := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
	if err != nil {
		return "", false
	}
	name, isFile = params["filename"]
	return name, isFile
}

const maxFormParts = 10 // before the file

// FirstFile returns the first file of the form that r sends, and the name that it was sent with.
func FirstFile(r *http.Request) (name string, content io.Reader, err error) {
	form, err := r.MultipartReader()
	if err != nil {
		return "", nil, sandbox.Errorf(sandbox.Invalid, "the body is no multipart form")
	}
	for parts := 0; ; parts++ {
		part, err := form.NextRawPart()
		switch {
		case errors.Is(err, io.EOF) || parts > maxFormParts:
			return "", nil, sandbox.Errorf(sandbox.Invalid, "the form has no file in it")
		case err != nil:
			return "", nil, sandbox.Wrap(sandbox.Invalid, err, "the form ended too early, or is broken")
		}
		if name, isFile := FileName(part); isFile {
			return name, Body(part), nil
		}
	}
}
