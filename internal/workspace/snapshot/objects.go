package snapshot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/skerry-sandbox/skerry/internal/platform/lockedfile"
	"github.com/skerry-sandbox/skerry/internal/platform/s3"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Objects is where snapshots are kept: a bucket or a folder. An object is there as a whole or not at all. Names have
// slashes, and no part that is empty, "." or "..". The methods may be called concurrently. Errors: NotFound, Conflict,
// QuotaExceeded, Forbidden, Timeout, and Unavailable for what may go away by itself.
type Objects interface {
	// Name says where it is.
	Name() string
	// Read returns an object of at most most bytes, and its version. NotFound: there is none; QuotaExceeded: it is larger.
	Read(ctx context.Context, name string, most int64) (data []byte, version string, err error)
	// Replace stores an object durably, in the place of the named version, or where there is none when
	// version is "". It returns the new version. Conflict: the object is another one.
	Replace(ctx context.Context, name string, data []byte, version string) (string, error)
	// List calls each for all objects below a name, which ends without a slash, in any order.
	List(ctx context.Context, below string, each func(Object) error) error
	// Remove removes an object. A missing one is no error.
	Remove(ctx context.Context, name string) error
}

// Object is an object that List found. Name is below the listed one.
type Object = s3.Object

// Bucket keeps objects in a bucket that speaks S3.
type Bucket struct{ s3.Bucket }

// NewBucket returns what is below an address s3://bucket/prefix. It connects to nothing yet. Invalid: no such address.
func NewBucket(address string, o s3.Options) (Bucket, error) {
	b, err := s3.OpenBucket(address, o)
	return Bucket{b}, err
}

// Read returns an object.
func (b Bucket) Read(ctx context.Context, name string, most int64) ([]byte, string, error) {
	return b.Client.Read(ctx, b.At(name), most)
}

// Replace stores an object.
func (b Bucket) Replace(ctx context.Context, name string, data []byte, version string) (string, error) {
	return b.Client.Replace(ctx, b.At(name), data, version)
}

// List calls each for all objects below a name.
func (b Bucket) List(ctx context.Context, below string, each func(Object) error) error {
	return b.Client.List(ctx, b.At(below), each)
}

// Remove removes an object.
func (b Bucket) Remove(ctx context.Context, name string) error {
	return b.Client.Remove(ctx, b.At(name))
}

// Folder keeps objects in a folder, as of another disk.
type Folder struct{ dir string }

// NewFolder returns the objects in a folder that exists. A folder that is missing is a disk that is not mounted, as a rule,
// so it is not made: every call says that it is not there.
func NewFolder(dir string) Folder { return Folder{filepath.Clean(dir)} }

// Name says where it is.
func (f Folder) Name() string { return f.dir }

func (f Folder) path(name string) (string, error) {
	if _, err := os.Stat(f.dir); err != nil {
		return "", unusable(errors.New(err.Error())) // not fs.ErrNotExist: nothing is known of the object
	}
	if !fs.ValidPath(name) || name == "." {
		return "", sandbox.Errorf(sandbox.Invalid, "%.200q is no name of an object", name)
	}
	return filepath.Join(f.dir, filepath.FromSlash(name)), nil
}

func unusable(err error) error {
	return sandbox.Wrap(sandbox.Unavailable, err, "the folder of the snapshots cannot be used")
}

func versionOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// Read returns an object.
func (f Folder) Read(_ context.Context, name string, most int64) ([]byte, string, error) {
	path, err := f.path(name)
	if err != nil {
		return nil, "", err
	}
	stamp, data, err := lockedfile.Read(path, most)
	switch {
	case err != nil:
		return nil, "", unusable(err)
	case stamp == (lockedfile.Stamp{}):
		return nil, "", sandbox.Errorf(sandbox.NotFound, "%s: there is no such object", name)
	case int64(len(data)) > most:
		return nil, "", sandbox.Errorf(sandbox.QuotaExceeded, "%s has more than %d bytes", name, most)
	}
	return data, versionOf(data), nil
}

// mostObject bounds an object that is replaced.
const mostObject = 1 << 30

// Replace stores an object.
func (f Folder) Replace(ctx context.Context, name string, data []byte, version string) (string, error) {
	path, err := f.path(name)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", unusable(err)
	}
	err = lockedfile.Edit(ctx, path, mostObject, func(text []byte) ([]byte, error) {
		if text == nil && version != "" || text != nil && version != versionOf(text) {
			return nil, sandbox.Errorf(sandbox.Conflict, "%s: it is not what it was", name)
		}
		return data, nil
	})
	var known *sandbox.Error
	if err != nil && !errors.As(err, &known) {
		err = unusable(err)
	}
	if err != nil {
		return "", err
	}
	// The names of new folders are durable, too.
	for dir := filepath.Dir(filepath.Dir(path)); len(dir) >= len(f.dir); dir = filepath.Dir(dir) {
		if err := lockedfile.SyncDir(dir); err != nil {
			return "", unusable(err)
		}
	}
	return versionOf(data), nil
}

// List calls each for all objects below a name.
func (f Folder) List(ctx context.Context, below string, each func(Object) error) error {
	top, err := f.path(below)
	if err != nil {
		return err
	}
	return filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return unusable(err)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if !d.Type().IsRegular() {
			return nil
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return unusable(err)
		}
		return each(Object{Key: filepath.ToSlash(strings.TrimPrefix(path, top+string(filepath.Separator))), Bytes: info.Size(), Changed: info.ModTime()})
	})
}

// Remove removes an object, and its folder when that is empty then.
func (f Folder) Remove(_ context.Context, name string) error {
	path, err := f.path(name)
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return unusable(err)
	}
	_ = os.Remove(filepath.Dir(path)) // when it is empty
	return nil
}

// probeTimeout bounds the check of a store, which comes before anything else.
const probeTimeout = 30 * time.Second

// Check makes sure that the store can be read and written, and that it holds to conditions: without them a server that
// was taken for dead could put a thread back to what it was. holder makes its name one of its own.
func Check(ctx context.Context, o Objects, holder string) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	name := ".check/" + holder
	if err := o.Remove(ctx, name); err != nil {
		return err
	}
	if _, err := o.Replace(ctx, name, []byte("1\n"), ""); err != nil && !errors.Is(err, sandbox.Conflict) { // another replica looks, too
		return err
	}
	_, err := o.Replace(ctx, name, []byte("2\n"), "")
	if e := o.Remove(ctx, name); e != nil {
		return e
	}
	if !errors.Is(err, sandbox.Conflict) {
		return sandbox.Errorf(sandbox.NotSupported, "%s does not hold to If-None-Match: it replaced an existing object; use a store that knows conditional writes", o.Name())
	}
	return nil
}
