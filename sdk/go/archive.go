package skerry

import (
	"context"
	"encoding/json"
	"io"
	"iter"
	"net/http"
	"strconv"
)

// ArchiveFormat is how GetArchive packs a folder. PutArchive tells them apart by itself.
type ArchiveFormat string

// The formats.
const (
	TarGzip ArchiveFormat = "tar.gz"
	Tar     ArchiveFormat = "tar"
	Zip     ArchiveFormat = "zip"
)

// Archive is a folder as it comes. A read that fails with io.ErrUnexpectedEOF means that not all came. LeftOut are the symbolic links
// and special files of the folder that are not in it.
type Archive struct {
	io.ReadCloser
	LeftOut int
}

// GetArchive reads all that is in a folder, as one archive with names relative to it. The caller closes it.
func (t *Thread) GetArchive(ctx context.Context, folder string, format ArchiveFormat) (*Archive, error) {
	q := at(folder)
	set(q, "format", string(format))
	res, err := t.c.open(ctx, Request{Method: http.MethodGet, Path: t.files("/archive"), Query: q}, t.c.o.Timeout) //nolint:bodyclose // it is what is given
	if err != nil {
		return nil, err
	}
	left, _ := strconv.Atoi(res.Header.Get(headerLeftOut)) // 0 when it is not there
	return &Archive{res.Body, left}, nil
}

// PutArchive writes what is in a tar, tar.gz or zip archive into a folder, which is made. Nothing is written of an archive that has links,
// paths that lead out, or more than there is room for. It is sent again after an error only when r is an io.Seeker.
func (t *Thread) PutArchive(ctx context.Context, folder string, r io.Reader) (*Unpacked, error) {
	var out Unpacked
	err := t.c.send(ctx, Request{
		Method: http.MethodPut, Path: t.files("/archive"), Query: at(folder), Content: r, ContentType: "application/octet-stream",
	}, &out)
	if err != nil {
		return nil, err
	}
	return &out, nil
}

// WatchFiles returns what changes in a folder as it changes. The first change is "started", of the folder itself: from then on all is
// told. It ends well when the thread's sandbox has ended; a watch that was cut off lists the folder and watches again.
func (t *Thread) WatchFiles(ctx context.Context, folder string, recursive bool) iter.Seq2[WatchedChange, error] {
	return func(yield func(WatchedChange, error) bool) {
		q := at(folder)
		q.Set("recursive", strconv.FormatBool(recursive))
		res, err := t.c.open(ctx, Request{Method: http.MethodGet, Path: t.files("/watch"), Query: q, Header: streamed()}, t.c.o.Timeout)
		if err != nil {
			yield(WatchedChange{}, err)
			return
		}
		defer res.Body.Close()
		err = readMessages(res.Body, func(m message) (bool, error) {
			switch m.event {
			case string(Started):
				return yield(WatchedChange{Path: folder, Change: string(Started), IsDir: true}, nil), nil
			case eventChange:
				var c WatchedChange
				if err := json.Unmarshal([]byte(m.data), &c); err != nil {
					return false, err
				}
				return yield(c, nil), nil
			case eventError:
				return false, streamError(m.data)
			}
			return m.event != eventEnd, nil
		})
		if err != nil {
			yield(WatchedChange{}, err)
		}
	}
}
