package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/skerry-sandbox/skerry/internal/platform/lockedfile"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/workspace/paths"
	"github.com/skerry-sandbox/skerry/internal/workspace/quota"
)

// FirstUID is where the host uids of workspaces begin: above every login, system and subordinate
// uid that a distribution hands out by default.
const FirstUID = 1_000_000

// Names are the folders of a thread that its code may write.
var Names = []string{"workspace", "uploads", "outputs"}

// stageAge is how old the beginning of a thread's folder, or of a file, must be to be the rest of a server
// that died.
const stageAge = time.Hour

// UIDs hands out the uids of threads' files, each once.
type UIDs interface {
	NextUID(ctx context.Context, first int) (int, error)
}

// Options are the parts that Folders work with.
type Options struct {
	DataDir string
	// Disk makes the folders of threads and bounds them; nil: nothing bounds them.
	Disk *quota.Volume
	UIDs UIDs
	Log  *slog.Logger
}

// Folders are the folders of all threads in a data folder.
type Folders struct{ o Options }

// New returns the folders of a data folder.
func New(o Options) *Folders { return &Folders{o: o} }

// UID is the uid that owns the thread's files. ErrNotExist: the thread has none yet.
func UID(dir string) (int, error) { return ownerOf(filepath.Join(dir, Names[0])) }

// ownerOf is the uid that owns a folder, one of those that NextUID returns.
func ownerOf(dir string) (int, error) {
	info, err := os.Lstat(dir)
	if err != nil {
		return 0, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() || st.Uid < FirstUID {
		return 0, fmt.Errorf("%s is not a folder with a uid of its own", filepath.Base(dir))
	}
	return int(st.Uid), nil
}

// Fill makes those of Names that are missing.
func Fill(files string, uid int) error {
	for _, name := range Names {
		p := filepath.Join(files, name)
		err := os.Mkdir(p, 0o700)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err := errors.Join(err, os.Lchown(p, uid, uid)); err != nil {
			return err
		}
	}
	return nil
}

// Dir is the host folder of a thread's files. The names were checked when they came in.
func (f *Folders) Dir(t sandbox.Thread) string {
	return filepath.Join(f.o.DataDir, "tenants", Threads(t.Owner), t.ID)
}

// Make makes the folder of a thread, whole: fill makes what is in it.
func (f *Folders) Make(ctx context.Context, dir string, fill func(files string, uid int) error) (int, error) {
	return f.make(ctx, dir, 0, UID, fill)
}

// make is Make for what belongs to a uid; 0: to the next one. owner tells the uid of what is there.
func (f *Folders) make(
	ctx context.Context, dir string, uid int, owner func(dir string) (int, error), fill func(files string, uid int) error,
) (int, error) {
	parent := filepath.Dir(dir)
	if err := f.o.Disk.MakeUser(parent); err != nil {
		return 0, err
	}
	var err error
	if uid == 0 {
		if uid, err = f.o.UIDs.NextUID(ctx, FirstUID); err != nil {
			return 0, err
		}
	}
	stage, err := os.MkdirTemp(parent, ".new-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(stage)
	files := filepath.Join(stage, "files")
	if err := f.o.Disk.MakeThread(files); err != nil {
		return 0, err
	}
	if err := fill(files, uid); err != nil {
		return 0, err
	}
	err = os.Rename(files, dir)
	if err == nil {
		return uid, lockedfile.SyncDir(parent)
	}
	// Another request made it first; its uid counts.
	if made, e := owner(dir); e == nil {
		if made == uid {
			uid = 0 // its limits are those of what is there
		}
		return made, errors.Join(f.empty(ctx, files), f.o.Disk.Drop(files, uid))
	}
	return 0, err
}

// Exists reports whether the caller has such a thread, as NotFound when not.
func (f *Folders) Exists(t sandbox.Thread) error {
	_, err := UID(f.Dir(t))
	if errors.Is(err, fs.ErrNotExist) {
		return sandbox.Errorf(sandbox.NotFound, "there is no thread %q", t.ID)
	}
	if err != nil {
		return sandbox.Wrap(sandbox.Internal, err, "the thread's files cannot be opened")
	}
	return nil
}

// Bound sets the disk quota of a thread's folder.
func (f *Folders) Bound(t sandbox.Thread, uid int, bytes int64) error {
	if err := f.o.Disk.Limit(f.Dir(t), uid, bytes); err != nil {
		return NoRoom(err, "the thread's disk quota cannot be set")
	}
	return nil
}

// NoRoom maps an error of making folders to its kind.
func NoRoom(err error, otherwise string) error {
	var known *sandbox.Error
	switch {
	case errors.As(err, &known):
		return err
	case quota.Exceeded(err):
		return sandbox.Wrap(sandbox.QuotaExceeded, err, "there is no room for the thread's files")
	}
	return sandbox.Wrap(sandbox.Internal, err, "%s", otherwise)
}

// Discard removes a folder of a thread: it counts no more at once, and is then deleted. A missing folder is no
// error.
func (f *Folders) Discard(ctx context.Context, dir string) error { return f.discard(ctx, dir, UID) }

func (f *Folders) discard(ctx context.Context, dir string, owner func(dir string) (int, error)) error {
	uid, err := owner(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	f.o.Disk.Forget(dir)
	trash, err := os.MkdirTemp(filepath.Dir(dir), ".deleted-")
	if err == nil {
		err = os.Rename(dir, filepath.Join(trash, "files"))
	}
	if err == nil {
		err = f.RemoveDiscarded(ctx, trash, uid)
	}
	return err
}

// RemoveDiscarded deletes such a folder: the files of a thread that belonged to uid, at <trash>/files. It
// empties each folder by itself, because it moves deep ones about. Also, <trash>/files may be the top of a
// file system of its own.
func (f *Folders) RemoveDiscarded(ctx context.Context, trash string, uid int) error {
	files := filepath.Join(trash, "files")
	if err := f.empty(ctx, files); err != nil {
		return err
	}
	return errors.Join(f.o.Disk.Drop(files, uid), paths.RemoveAll(ctx, trash))
}

// empty removes what code has made in the folder of a thread, or in a home.
func (f *Folders) empty(ctx context.Context, files string) error {
	var errs []error
	for _, name := range emptied() {
		errs = append(errs, paths.RemoveAll(ctx, filepath.Join(files, name)))
	}
	return errors.Join(errs...)
}

// Sweep finishes what servers that died had begun to delete or to make: it counts for the user.
func (f *Folders) Sweep(ctx context.Context) {
	f.sweepStages()
	dirs, err := filepath.Glob(filepath.Join(f.o.DataDir, "tenants", "*", "users", "*", "threads", ".*-*"))
	if err != nil {
		return
	}
	for _, dir := range dirs {
		info, err := os.Lstat(dir)
		name := filepath.Base(dir)
		if err != nil || !strings.HasPrefix(name, ".deleted-") && (!strings.HasPrefix(name, ".new-") || time.Since(info.ModTime()) < stageAge) {
			continue
		}
		uid, err := UID(filepath.Join(dir, "files"))
		if err != nil {
			if uid, err = homeUID(filepath.Join(dir, "files")); err != nil {
				uid = 0
			}
		}
		if err := f.RemoveDiscarded(ctx, dir, uid); err != nil {
			f.o.Log.Warn("files of a deleted thread are not all deleted", "error", err)
		}
	}
}

// sweepStages removes the files that servers that died did not get into their places.
func (f *Folders) sweepStages() {
	staged, err := filepath.Glob(filepath.Join(f.o.DataDir, "tenants", "*", "users", "*", "threads", "*", paths.StageDir, "*"))
	if err != nil {
		return
	}
	for _, file := range staged {
		if info, err := os.Lstat(file); err != nil || time.Since(info.ModTime()) < stageAge {
			continue
		}
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			f.o.Log.Warn("a file that a server did not finish is not deleted", "file", file, "error", err)
		}
	}
}

// Drop removes the folder of a waiting sandbox: there is nothing in it. A missing one is no error.
func (f *Folders) Drop(files string, uid int) error {
	if _, err := os.Lstat(files); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return f.o.Disk.Drop(files, uid)
}
