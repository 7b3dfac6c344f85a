// Package rename moves files and folders so that nothing is replaced by mistake, and exchanges them in one step. The
// kernel has flags for both, which network file systems refuse (NFS and CephFS answer EINVAL); there it is done by
// steps that keep the first promise and give up the second one.
package rename

import (
	"errors"

	"golang.org/x/sys/unix"
)

// NoReplace moves what is at from to the free name to. EEXIST: there is something, and nothing has moved.
func NoReplace(from, to string) error { return NoReplaceAt(unix.AT_FDCWD, from, unix.AT_FDCWD, to) }

// NoReplaceAt is NoReplace for names in two open folders. Where the file system knows no such flag, a file
// has both names for a moment. A folder moves over an empty folder that NoReplaceAt makes first.
func NoReplaceAt(fromDir int, from string, toDir int, to string) error {
	err := unix.Renameat2(fromDir, from, toDir, to, unix.RENAME_NOREPLACE)
	if !unknown(err) {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstatat(fromDir, from, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return folder(fromDir, from, toDir, to)
	}
	if err := unix.Linkat(fromDir, from, toDir, to, 0); err != nil {
		return err
	}
	if err := unix.Unlinkat(fromDir, from, 0); err != nil {
		return errors.Join(err, unix.Unlinkat(toDir, to, 0))
	}
	return nil
}

// folder takes the name by an empty folder, which the kernel replaces by another folder in one step as long as it is empty.
func folder(fromDir int, from string, toDir int, to string) error {
	if err := unix.Mkdirat(toDir, to, 0o700); err != nil {
		return err
	}
	err := unix.Renameat(fromDir, from, toDir, to)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.ENOTDIR): // another process put something there meanwhile
		return unix.EEXIST
	}
	_ = unix.Unlinkat(toDir, to, unix.AT_REMOVEDIR) // only when it is empty
	return err
}

// Exchange exchanges what is at two names. ENOENT: there is nothing at one of them, and nothing has changed. Where the
// file system cannot, for a moment there is nothing at b, and what was there is at a+".old"; a process that ends in that moment leaves it so.
func Exchange(a, b string) error {
	err := unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
	if !unknown(err) {
		return err
	}
	var st unix.Stat_t
	if err := unix.Lstat(a, &st); err != nil {
		return err
	}
	aside := a + ".old"
	if err := unix.Rename(b, aside); err != nil {
		return err
	}
	if err := unix.Rename(a, b); err != nil {
		return errors.Join(err, unix.Rename(aside, b))
	}
	return unix.Rename(aside, a)
}

// unknown says whether the file system, or the kernel, does not know a flag. EINVAL may also be about the names: then the steps
// say so, too.
func unknown(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.ENOTSUP)
}
