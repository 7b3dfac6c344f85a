package paths

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// A description of a file is what is said of it beside its bytes: names and values, which the file system keeps with the file as
// extended attributes. What runs in a sandbox reads and writes them, too. A move keeps them, a copy may not.

const (
	// describedPrefix begins the names of such attributes. It is E2B's: programs in sandboxes look for it.
	describedPrefix = "user.e2b."
	// maxDescription bounds the names and values of a file together: file systems have one block for them.
	maxDescription = 2 << 10
)

// CheckDescription refuses what cannot be kept.
func CheckDescription(described map[string]string) error {
	sum := 0
	for name, value := range described {
		if sum += len(describedPrefix) + len(name) + len(value); name == "" || len(name) > 200 || strings.ContainsRune(name+value, 0) {
			return sandbox.Errorf(sandbox.Invalid, "metadata %.200q: a name has 1 to 200 bytes, and neither it nor its value has NUL", name)
		}
	}
	if sum > maxDescription {
		return sandbox.Errorf(sandbox.Invalid, "metadata of a file: at most %d bytes, with %d for each name", maxDescription, len(describedPrefix))
	}
	return nil
}

// WriteWith is Write of a whole file with a description, which takes its place together with the bytes, or under conditions.
// NotSupported: the file system keeps no descriptions. ErrChanged: a condition is not met, and nothing was written.
func (f *FS) WriteWith(ctx context.Context, name string, r io.Reader, w Writing) (Written, error) {
	if err := CheckDescription(w.Described); err != nil {
		return Written{}, err
	}
	return f.write(ctx, name, r, false, w)
}

// describe sets the description of a file that is being made.
func describe(file *os.File, described map[string]string) error {
	for name, value := range described {
		switch err := unix.Fsetxattr(int(file.Fd()), describedPrefix+name, []byte(value), 0); {
		case errors.Is(err, unix.ENOTSUP):
			return sandbox.Wrap(sandbox.NotSupported, err, "metadata of files: the file system of the workspace keeps none")
		case err != nil:
			return err
		}
	}
	return nil
}

// Description returns what a regular file is described by; nothing for all else, and for what cannot be read.
func (f *FS) Description(name string) map[string]string {
	file, err := f.Open(name)
	if err != nil {
		return nil
	}
	defer file.Close() //nolint:errcheck // read-only
	fd := int(file.f.Fd())
	n, err := unix.Flistxattr(fd, nil)
	if err != nil || n == 0 {
		return nil
	}
	names := make([]byte, n)
	if n, err = unix.Flistxattr(fd, names); err != nil {
		return nil
	}
	var out map[string]string
	left := maxDescription
	for name := range bytes.SplitSeq(names[:n], []byte{0}) {
		key, ours := bytes.CutPrefix(name, []byte(describedPrefix))
		if !ours || len(key) == 0 {
			continue
		}
		value := make([]byte, maxDescription)
		size, err := unix.Fgetxattr(fd, string(name), value)
		if err != nil || len(name)+size > left { // the sandbox set more than a client may
			continue
		}
		left -= len(name) + size
		if out == nil {
			out = map[string]string{}
		}
		out[strings.ToValidUTF8(string(key), "\uFFFD")] = strings.ToValidUTF8(string(value[:size]), "\uFFFD")
	}
	return out
}
