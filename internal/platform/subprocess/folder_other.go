//go:build !linux

package subprocess

import (
	"context"
	"io/fs"
	"os"
)

// FolderFunc is a function that reads a folder, in this process: servers, which read folders of others, run on Linux. On
// other systems commands read what their own user has.
type FolderFunc[Q, A any] struct {
	f func(folder fs.FS, question Q) (A, error)
}

// NewFolder names a function, as on Linux.
func NewFolder[Q, A any](_ string, f func(folder fs.FS, question Q) (A, error)) FolderFunc[Q, A] {
	return FolderFunc[Q, A]{f}
}

// Call runs the function with a folder. The error is an *Error when the function refused the question.
func (f FolderFunc[Q, A]) Call(_ context.Context, root *os.Root, question Q) (A, error) {
	a, err := f.f(root.FS(), question)
	if err != nil {
		var none A
		return none, &Error{err.Error()}
	}
	return a, nil
}
