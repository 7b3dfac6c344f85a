// Package hostiletar reads tar archives of senders that nothing is known of. It bounds what is read, and refuses
// entries that are neither a folder nor a regular file. The caller checks names, and bounds the content.
package hostiletar

import (
	"archive/tar"
	"errors"
	"io"
)

// Refusal makes the errors of a reader.
type Refusal interface {
	TooLarge() error
	TooMany() error         // more entries than allowed
	Link(name string) error // an entry is a link, symbolic or not
	Special(name string) error
	Broken(err error) error // maps an error of a decoder, and keeps errors of the caller's own reader
}

// Limit returns a reader that fails when more than left bytes are read of r.
func Limit(r io.Reader, left int64, refuse Refusal) io.Reader {
	return &limited{r, left, refuse}
}

type limited struct {
	r      io.Reader
	left   int64
	refuse Refusal
}

func (l *limited) Read(p []byte) (int, error) {
	n, err := l.r.Read(p)
	if l.left -= int64(n); l.left < 0 {
		return 0, l.refuse.TooLarge()
	}
	return n, err
}

// Each calls each with every folder and every regular file of an archive that is not compressed, in their order. Names
// are as the archive has them.
func Each(r io.Reader, entries int, refuse Refusal, each func(*tar.Header, io.Reader) error) error {
	t := tar.NewReader(r)
	for n := 0; ; n++ {
		h, err := t.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && !errors.Is(err, tar.ErrInsecurePath): // the caller refuses names by what is wrong with them
			return refuse.Broken(err)
		case n >= entries:
			return refuse.TooMany()
		}
		switch h.Typeflag {
		case tar.TypeXGlobalHeader:
			continue
		case tar.TypeDir, tar.TypeReg:
			err = each(h, t)
		case tar.TypeSymlink, tar.TypeLink:
			err = refuse.Link(h.Name)
		default:
			err = refuse.Special(h.Name)
		}
		if err != nil {
			return err
		}
	}
}
