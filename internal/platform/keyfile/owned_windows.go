package keyfile

import (
	"errors"
	"io/fs"
)

// owned refuses all: a server runs on Linux, and no command keeps private keys on Windows.
func owned(string, fs.FileInfo) error {
	return errors.New("who can read a file of Windows is not known here: keep private keys on the server")
}
