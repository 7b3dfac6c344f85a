// Package ownedsocket makes unix sockets that exactly one uid may open: the way into the server from
// one sandbox.
package ownedsocket

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
)

// Listen makes the socket dir/name, which belongs to uid alone (mode 0600), in the place of a former
// server's; uid 0 leaves it to this process's own. Listen makes it under a name of its own and renames it
// when owner and mode are right. So no process finds a socket that it may not open. The folder is reached
// through a descriptor: its path may be longer than a socket address. The name stays after Close: by then it
// may be that of the next server's socket.
func Listen(dir, name string, uid int) (*net.UnixListener, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	fresh := "." + name + ".new"
	path := filepath.Join(dir, fresh)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), fresh)})
	if err != nil {
		return nil, err
	}
	ln.SetUnlinkOnClose(false)
	err = os.Chmod(path, 0o600)
	if err == nil && uid != 0 && uid != os.Getuid() {
		err = os.Chown(path, uid, uid)
	}
	if err == nil {
		err = os.Rename(path, filepath.Join(dir, name))
	}
	if err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	return ln, nil
}
