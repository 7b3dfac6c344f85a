package lockedfile

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Stamp changes when a file does. The zero Stamp stands for a file that is not there. Stamps are
// comparable.
type Stamp struct {
	exists  bool
	inode   uint64
	size    int64
	changed time.Time
}

// racyTime is the resolution of a file's times that is surely not exceeded.
const racyTime = 50 * time.Millisecond

// Racy says that the file was changed so shortly before now, when it was looked at, that a later change may bear
// the same stamp: its text must be read again to be sure.
func (s Stamp) Racy(now time.Time) bool { return s.ChangedWithin(racyTime, now) }

// ChangedWithin says that there is a file, and that it was changed no longer ago than d before now.
func (s Stamp) ChangedWithin(d time.Duration, now time.Time) bool {
	return s.exists && now.Sub(s.changed) < d
}

// Stat returns the stamp of a file without reading it.
func Stat(path string) (Stamp, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Stamp{}, nil
	}
	if err != nil {
		return Stamp{}, err
	}
	return StampOf(info), nil
}

// StampOf returns the stamp of a file or folder that was looked at.
func StampOf(info fs.FileInfo) Stamp {
	s := Stamp{exists: true, size: info.Size(), changed: info.ModTime()}
	return withChange(s, info)
}

// Read returns at most limit+1 bytes of a file, and its stamp, which is taken first: a change in between
// is seen by the next look. A file that is not there is empty.
func Read(path string, limit int64) (Stamp, []byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|noWait, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return Stamp{}, nil, nil
	}
	if err != nil {
		s, _ := Stat(path) // what cannot be opened can often still be seen to change
		return s, nil, err
	}
	defer file.Close() //nolint:errcheck // it was read
	info, err := file.Stat()
	if err != nil {
		return Stamp{}, nil, err
	}
	if !info.Mode().IsRegular() {
		return StampOf(info), nil, errors.New("not a regular file")
	}
	text, err := io.ReadAll(io.LimitReader(file, limit+1))
	return StampOf(info), text, err
}

// lockTime bounds the wait for others who change files of the same folder: each takes milliseconds.
const lockTime = 10 * time.Second

// Edit changes a file while no other process does. change gets its text, at most limit+1 bytes, nil when
// there is none. It returns the new text; nil leaves the file as it is. Edit replaces the file in one step,
// durably, or not at all. The file keeps its owner and mode; a new one has 0600, in folders that are made
// with 0711. Read, Edit by others and crashes see one of the two texts. Errors of change come back as they
// are; ErrBusy after 10 s, or when ctx ends before.
func Edit(ctx context.Context, path string, limit int64, change func(text []byte) ([]byte, error)) error {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, lockTime)
	defer cancel()
	unlock, err := Lock(ctx, dir)
	if err != nil {
		return err
	}
	defer unlock()
	_, text, err := Read(path, limit)
	if err != nil {
		return err
	}
	out, err := change(text)
	if err != nil || out == nil {
		return err
	}
	return Replace(path, out)
}

// Replace writes a file anew in one step, durably. It keeps the owner and the mode of the file that it
// replaces, or sets 0600 when there is none. Its folder is there.
func Replace(path string, text []byte) error {
	return put(path, text, func(temp *os.File) error { return likeBefore(temp, path) }, os.Rename)
}

// ReplaceAs is Replace with this mode, and the process's owner, whatever the file had before.
func ReplaceAs(path string, text []byte, mode fs.FileMode) error {
	return put(path, text, func(temp *os.File) error { return temp.Chmod(mode) }, os.Rename)
}

// Create is ReplaceAs that leaves a file which is there as it is, and returns fs.ErrExist.
func Create(path string, text []byte, mode fs.FileMode) error {
	return put(path, text, func(temp *os.File) error { return temp.Chmod(mode) }, os.Link)
}

// Swap replaces a file in one step, for readers, and does not wait for the disk: after a power cut the file may be
// empty. Only one caller at a time may change the file.
func Swap(path string, text []byte, mode fs.FileMode) error {
	if err := os.WriteFile(path+".new", text, mode); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// put writes a file beside, and then renames it.
func put(path string, text []byte, prepare func(*os.File) error, name func(from, to string) error) error {
	temp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".new-")
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name()) //nolint:errcheck // it has another name by then
	err = prepare(temp)
	if err == nil {
		_, err = temp.Write(text)
	}
	if err == nil {
		err = temp.Sync()
	}
	if err = errors.Join(err, temp.Close()); err != nil {
		return err
	}
	if err := name(temp.Name(), path); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

func likeBefore(temp *os.File, path string) error {
	info, err := os.Stat(path)
	if err != nil { // there is none: CreateTemp made it 0600
		return nil //nolint:nilerr // see above
	}
	if err := temp.Chmod(info.Mode().Perm()); err != nil {
		return err
	}
	return likeOwner(temp, info)
}

// Later returns the stamp of the two whose file changed later, with the sizes of both: of all files of a
// folder it changes when one of them does.
func (s Stamp) Later(t Stamp) Stamp {
	if t.changed.After(s.changed) {
		s, t = t, s
	}
	if s.exists && t.exists {
		s.size += t.size
	}
	return s
}
