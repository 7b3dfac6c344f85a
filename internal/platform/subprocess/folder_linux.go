package subprocess

import (
	"context"
	"io/fs"
	"os"
)

// given is the path, in the process of a Func, of the file that call was given.
const given = "/proc/self/fd/3"

// FolderFunc is a Func that reads a folder.
type FolderFunc[Q, A any] struct{ f Func[Q, A] }

// NewFolder is New of a function that gets a folder, and sees nothing beyond it.
func NewFolder[Q, A any](name string, f func(folder fs.FS, question Q) (A, error)) FolderFunc[Q, A] {
	return FolderFunc[Q, A]{New(name, func(question Q) (none A, err error) {
		root, err := os.OpenRoot(given)
		if err != nil {
			return none, err
		}
		defer root.Close() //nolint:errcheck // only read
		return f(root.FS(), question)
	})}
}

// Call runs the function with a folder. The error is as of Func.Call.
func (f FolderFunc[Q, A]) Call(ctx context.Context, root *os.Root, question Q) (none A, err error) {
	folder, err := root.Open(".")
	if err != nil {
		return none, err
	}
	defer folder.Close() //nolint:errcheck // only read
	return f.f.call(ctx, question, folder)
}
