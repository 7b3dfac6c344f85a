package containerd

import (
	"context"
	"errors"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// engineError sets the kind of an error of containerd. text is for callers; containerd's own words, which
// hold host paths, are only in the cause.
func engineError(err error, text string) error {
	err = native(err)
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return sandbox.Wrap(sandbox.Timeout, err, "%s in time", text)
	case errdefs.IsUnavailable(err):
		return sandbox.Wrap(sandbox.Unavailable, err, "containerd cannot be reached")
	case errdefs.IsAlreadyExists(err):
		return sandbox.Wrap(sandbox.Conflict, err, "%s", text)
	default:
		return sandbox.Wrap(sandbox.Internal, err, "%s", text)
	}
}

// native turns what a service answered into an error that errdefs knows. Others are left as they are.
func native(err error) error {
	if s, ok := status.FromError(err); err != nil && ok && s.Code() != codes.OK {
		return errors.Join(errgrpc.ToNative(err), err)
	}
	return err
}

func isNotFound(err error) bool { return errdefs.IsNotFound(native(err)) }

func isAlreadyExists(err error) bool { return errdefs.IsAlreadyExists(native(err)) }
