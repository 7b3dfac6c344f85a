package paths

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"syscall"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// ErrIsDirectory is in the chain of an error that says that a file was wanted and a folder is there.
var ErrIsDirectory = errors.New("is a directory")

// ErrLeaves is in the chain of an error that says that a symbolic link points out of the thread's
// files.
var ErrLeaves = errors.New("path leaves the thread's files")

func leaves(virtual string) error {
	return sandbox.Wrap(sandbox.Forbidden, ErrLeaves, "%s: path leaves the thread's files", virtual)
}

func notFound(virtual string) error {
	return sandbox.Errorf(sandbox.NotFound, "%s: no such file or directory", virtual)
}

func isDirectory(virtual string) error {
	return sandbox.Wrap(sandbox.Invalid, ErrIsDirectory, "%s: is a directory", virtual)
}

func notDirectory(virtual string) error {
	return sandbox.Errorf(sandbox.Invalid, "%s: is not a directory", virtual)
}

func notRegular(virtual string) error {
	return sandbox.Errorf(sandbox.Invalid, "%s: is not a regular file", virtual)
}

func readOnly(virtual string) error {
	if virtual == sandbox.UserDataDir || strings.HasPrefix(virtual, sandbox.UserDataDir+"/") {
		return sandbox.Errorf(sandbox.Forbidden, "%s: only what is in workspace, uploads and outputs of %s can be changed", virtual, sandbox.UserDataDir)
	}
	return sandbox.Errorf(sandbox.Forbidden, "%s: only %s can be changed", virtual, sandbox.UserDataDir)
}

// fail maps an error of the system to its kind and a text that names the virtual path. The cause,
// which names host paths, stays behind Unwrap for the log.
func fail(err error, virtual string) error {
	var ours *sandbox.Error
	if err == nil || errors.As(err, &ours) {
		return err
	}
	kind, text := sandbox.Internal, "cannot be used"
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		kind, text = sandbox.Timeout, "took too long"
	case errors.Is(err, context.Canceled):
		kind, text = sandbox.Timeout, "the request was cancelled"
	case errors.Is(err, fs.ErrNotExist):
		kind, text = sandbox.NotFound, "no such file or directory"
	case errors.Is(err, syscall.ENOTEMPTY):
		kind, text = sandbox.Conflict, "directory is not empty"
	case errors.Is(err, fs.ErrExist):
		kind, text = sandbox.Conflict, "exists"
	case errors.Is(err, syscall.ENOTDIR):
		kind, text = sandbox.Invalid, "is not a directory"
	case errors.Is(err, syscall.EISDIR):
		return sandbox.Wrap(sandbox.Invalid, errors.Join(ErrIsDirectory, err), "%s: is a directory", virtual)
	case errors.Is(err, syscall.ELOOP):
		kind, text = sandbox.Invalid, "too many symbolic links"
	case errors.Is(err, syscall.ENAMETOOLONG):
		kind, text = sandbox.Invalid, "path is too long"
	case errors.Is(err, syscall.ENXIO), errors.Is(err, syscall.ENODEV):
		kind, text = sandbox.Invalid, "is not a regular file"
	case errors.Is(err, syscall.EROFS), errors.Is(err, fs.ErrPermission):
		kind, text = sandbox.Forbidden, "permission denied"
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EFBIG):
		kind, text = sandbox.QuotaExceeded, "no space left"
	case strings.Contains(err.Error(), "path escapes from parent"):
		return sandbox.Wrap(sandbox.Forbidden, errors.Join(ErrLeaves, err), "%s: path leaves the thread's files", virtual)
	}
	return sandbox.Wrap(kind, err, "%s: %s", virtual, text)
}
