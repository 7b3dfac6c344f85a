//go:build unix

package keyfile

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// owned refuses what belongs to another user than this process's, and root.
func owned(path string, info fs.FileInfo) error {
	if sys, ok := info.Sys().(*syscall.Stat_t); ok && sys.Uid != 0 && int(sys.Uid) != os.Geteuid() {
		return fmt.Errorf("%s belongs to uid %d, and not to the server's: chown it", path, sys.Uid)
	}
	return nil
}
