package app

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/platform/rename"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// sealed returns a copy of the daemon's program, below dir, which has a sealed one beside it (see sandbox.SealedDaemon).
// Where programs of dir cannot be executed, it returns the program itself.
func sealed(program, dir string) (string, error) {
	in, err := os.Open(program)
	if err != nil {
		return "", err
	}
	defer in.Close() //nolint:errcheck // it was read
	sum := sha256.New()
	if _, err := io.Copy(sum, in); err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return "", err
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil || st.Flags&unix.ST_NOEXEC != 0 {
		return program, err
	}
	own := filepath.Join(dir, hex.EncodeToString(sum.Sum(nil)[:16]))
	at := filepath.Join(own, filepath.Base(program))
	if _, err := os.Stat(at); !errors.Is(err, fs.ErrNotExist) {
		return at, err
	}
	aside, err := os.MkdirTemp(dir, ".new-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(aside) //nolint:errcheck // it was moved
	readable := filepath.Join(aside, filepath.Base(program))
	if err := errors.Join(copyProgram(in, readable, 0o755), copyProgram(in, sandbox.SealedDaemon(readable), 0o711), os.Chmod(aside, 0o711)); err != nil {
		return "", err
	}
	if err := rename.NoReplace(aside, own); err != nil && !errors.Is(err, fs.ErrExist) { // another server was faster
		return "", err
	}
	return at, nil
}

// copyProgram writes a program, durable: the name of the folder says what is in it.
func copyProgram(in *os.File, to string, mode fs.FileMode) error {
	if _, err := in.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o711); err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o700)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Chmod(mode), out.Sync(), out.Close())
}
