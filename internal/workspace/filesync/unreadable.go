package filesync

import (
	"errors"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Unreadable is the error when a thread's files could not be copied from its sandbox.
func Unreadable(err error) error {
	if errors.Is(err, sandbox.QuotaExceeded) {
		return sandbox.Wrap(sandbox.QuotaExceeded, err, "the sandbox has more files than the thread may have: delete some there")
	}
	return sandbox.Wrap(sandbox.Unavailable, err, "the thread's files are in its sandbox, which cannot be reached now; try again")
}
