package paths

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// spool keeps what a sender that may be slow sends, before anything else is done.
type spool struct {
	body func(r io.Reader) (*os.File, error) // Options.Body
	dir  string                              // Options.Spool
}

// spoolCheck is how many bytes come between two looks at the disk that they go to.
const spoolCheck = 16 << 20

// incoming is a reader of what is to be kept: at most so many bytes, and only while the disk has room. Many senders may
// send at once, and what they send is in no quota.
func (s spool) incoming(ctx context.Context, r io.Reader, most int64, limited bool) *boundedReader {
	return &boundedReader{ctx: ctx, r: r, left: most, limited: limited, room: func() error { return roomOn(cmp.Or(s.dir, os.TempDir()), statfs) }}
}

// reserved is what a disk keeps free for the server itself: a twentieth, and at most so many bytes.
const reserved = 1 << 30

func roomOn(dir string, stat func(dir string) (all, free int64, err error)) error {
	all, free, err := stat(dir)
	if err != nil {
		return err
	}
	if free < min(reserved, all/20) {
		return sandbox.Errorf(sandbox.CapacityExceeded, "the server's disk has no room for what is sent; try again later")
	}
	return nil
}

func statfs(dir string) (all, free int64, err error) {
	var s unix.Statfs_t
	err = unix.Statfs(dir, &s)
	return int64(s.Blocks) * s.Bsize, int64(s.Bavail) * s.Bsize, err //nolint:gosec // no disk is so large
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
	in := s.incoming(ctx, r, most, true)
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
	room    func() error // is asked now and then whether there is room; nil: never
	until   int64        // bytes until it is asked again
}

func (b *boundedReader) Read(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	if b.room != nil && b.until <= 0 {
		if err := b.room(); err != nil {
			return 0, err
		}
		b.until = spoolCheck
	}
	n, err := b.r.Read(p)
	b.until -= int64(n)
	if b.limited {
		if b.left -= int64(n); b.left < 0 {
			return 0, errQuota
		}
	}
	return n, err
}
