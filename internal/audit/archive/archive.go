// Package archive keeps the full segments of an audit log elsewhere: in a folder, or in a bucket that speaks S3. It
// stores objects as a whole or not at all, and removes none.
package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/skerry-sandbox/skerry/internal/platform/lockedfile"
	"github.com/skerry-sandbox/skerry/internal/platform/s3"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Folder is an archive in a folder, as of another disk.
type Folder struct{ dir string }

// NewFolder returns the archive in a folder that exists. A folder that is missing is a disk that is not mounted, as a rule,
// so it is not made: every call says that it is not there.
func NewFolder(dir string) Folder { return Folder{dir} }

// Name says where it is.
func (f Folder) Name() string { return f.dir }

// temporary names what is being written. One process writes a writer's segments, one at a time.
const temporary = ".part"

// Put stores an object of size bytes. It is durable on return; before that nothing is there under its name, or what was.
func (f Folder) Put(ctx context.Context, name string, from io.Reader, size int64) error {
	if _, err := os.Stat(f.dir); err != nil {
		return unreachable(err)
	}
	path := filepath.Join(f.dir, filepath.FromSlash(name))
	parent := filepath.Dir(path)
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return unreachable(err)
	}
	tmp, err := os.OpenFile(path+temporary, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return unreachable(err)
	}
	n, err := io.Copy(tmp, from)
	if err == nil && n != size {
		err = io.ErrUnexpectedEOF
	}
	if err = errors.Join(err, ctx.Err()); err == nil {
		err = tmp.Sync()
	}
	if err = errors.Join(err, tmp.Close()); err != nil {
		return unreachable(errors.Join(err, os.Remove(tmp.Name())))
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		return unreachable(err)
	}
	if err := errors.Join(lockedfile.SyncDir(parent), lockedfile.SyncDir(f.dir)); err != nil {
		return unreachable(err)
	}
	return nil
}

// Get returns an object; fs.ErrNotExist: there is none.
func (f Folder) Get(_ context.Context, name string) (io.ReadCloser, error) {
	if _, err := os.Stat(f.dir); err != nil {
		return nil, unreachable(errors.New(err.Error())) // not fs.ErrNotExist: nothing is known of the object
	}
	file, err := os.Open(filepath.Join(f.dir, filepath.FromSlash(name)))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, unreachable(err)
	}
	return file, err
}

func unreachable(err error) error {
	return sandbox.Wrap(sandbox.Unavailable, err, "the folder of the audit archive cannot be used")
}

// Bucket is an archive in a bucket.
type Bucket struct{ s3.Bucket }

// NewBucket returns the archive below an address s3://bucket/prefix. It connects to nothing yet. Invalid: no such address.
func NewBucket(address string, o s3.Options) (Bucket, error) {
	b, err := s3.OpenBucket(address, o)
	return Bucket{b}, err
}

// Put stores an object of size bytes: it is there as a whole, or not at all.
func (b Bucket) Put(ctx context.Context, name string, from io.Reader, size int64) error {
	return b.Client.Put(ctx, b.At(name), from, size)
}

// Get returns an object; fs.ErrNotExist: there is none.
func (b Bucket) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	r, err := b.Client.Fetch(ctx, b.At(name))
	if sandbox.KindOf(err) == sandbox.NotFound {
		return nil, fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	return r, err
}
