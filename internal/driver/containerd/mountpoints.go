package containerd

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/containerd/containerd/v2/core/mount"
	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/driver/engine/hardening"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/ociconfig"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// rootfsRoot holds the places where root file systems are mounted for a moment.
func (d *Driver) rootfsRoot() string { return filepath.Join(d.root, "rootfs") }

func (d *Driver) rootfs(id sandbox.ID) string { return filepath.Join(d.rootfsRoot(), string(id)) }

// makeMountPoints makes the mount points in the root file system of a sandbox, which is mounted for that, once
// and for some milliseconds: in a user namespace the runtime cannot. The image is hostile, so nothing follows
// a link out of it.
func (d *Driver) makeMountPoints(spec sandbox.Spec, volumes []hardening.Tmpfs, mounts []mount.Mount) (err error) {
	failed := func(err error) error {
		return sandbox.Wrap(sandbox.Internal, err, "the root file system of the sandbox could not be prepared")
	}
	dir := d.rootfs(spec.ID)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return failed(err)
	}
	defer func() {
		if e := d.unmountRootfs(spec.ID); err == nil && e != nil {
			err = failed(e)
		}
	}()
	if err := mount.All(mounts, dir); err != nil {
		return failed(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return failed(err)
	}
	defer root.Close() //nolint:errcheck // nothing was written through this handle itself
	if err := ociconfig.MakeMountPoints(root); err != nil {
		return err
	}
	return ociconfig.MakeMountPointsOf(root, spec, volumes)
}

// unmountRootfs takes away what makeMountPoints mounted, also when a crash interrupted it. Nothing there is no
// error.
func (d *Driver) unmountRootfs(id sandbox.ID) error {
	dir := d.rootfs(id)
	err := unix.Unmount(dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) { // no mount; no folder
		return err
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
