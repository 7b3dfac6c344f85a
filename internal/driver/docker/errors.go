package docker

import (
	"context"
	"errors"
	"io"
	"syscall"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// engineError sets the kind of an engine's error. text is for callers; the engine's own words, which hold
// host paths, are only in the cause.
func engineError(err error, text string) error {
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return sandbox.Wrap(sandbox.Timeout, err, "%s in time", text)
	case client.IsErrConnectionFailed(err), errdefs.IsUnavailable(err), isBroken(err):
		return sandbox.Wrap(sandbox.Unavailable, err, "the container engine cannot be reached")
	case errdefs.IsConflict(err):
		return sandbox.Wrap(sandbox.Conflict, err, "%s", text)
	default:
		return sandbox.Wrap(sandbox.Internal, err, "%s", text)
	}
}

// isBroken: the engine ended in the middle of a call.
func isBroken(err error) bool {
	for _, broken := range []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, broken) {
			return true
		}
	}
	return false
}

func isNotFound(err error) bool { return errdefs.IsNotFound(err) }

func isConflict(err error) bool { return errdefs.IsConflict(err) }
