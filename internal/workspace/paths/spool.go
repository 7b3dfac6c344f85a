package paths

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// spool keeps what a sender that may be slow sends, before anything else is done.
type spool struct {
	body func(r io.Reader) (*os.File, error) // Options.Body
	dir  string                              // Options.Spool
}

// wanted reports whether r is to be kept first: it is not in memory.
func (s spool) wanted(r io.Reader) bool {
	_, here := r.(interface{ Len() int })
	return !here && s.body != nil
}

// archive keeps an archive that comes, in a file without a name. limit bounds its bytes, as MaxArchiveBytes
// does; 0: no other limit.
func (s spool) archive(ctx context.Context, r io.Reader, limit int64) (*os.File, error) {
	most := int64(MaxArchiveBytes)
	if limit > 0 {
		most = min(most, limit)
	}
	in := &boundedReader{ctx: ctx, r: r, left: most, limited: true}
	if s.body != nil {
		file, err := s.body(in)
		return file, tooLong(err, most)
	}
	file, err := os.CreateTemp(s.dir, ".archive-")
	if err != nil {
		return nil, err
	}
	err = os.Remove(file.Name())
	if err == nil {
		_, err = io.Copy(file, in)
	}
	if err != nil {
		return nil, tooLong(errors.Join(err, file.Close()), most)
	}
	return file, nil
}

func tooLong(err error, most int64) error {
	if errors.Is(err, errQuota) {
		return sandbox.Errorf(sandbox.QuotaExceeded, "the archive has more than %d bytes", most)
	}
	return err
}

// boundedReader ends a copy when ctx does and when the room is used up.
type boundedReader struct {
	ctx     context.Context
	r       io.Reader
	left    int64
	limited bool
}

func (b *boundedReader) Read(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := b.r.Read(p)
	if b.limited {
		if b.left -= int64(n); b.left < 0 {
			return 0, errQuota
		}
	}
	return n, err
}
