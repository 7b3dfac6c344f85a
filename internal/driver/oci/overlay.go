package oci

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/driver/engine/ociconfig"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Sandboxes that mount one folder share its inodes. Under runc code then sees by inotify which files its neighbours
// open, and holds or finds locks of flock on them. So each sandbox has its root file system through overlays of its
// own, whose inodes are theirs alone. gVisor does both in its own kernel, and needs none.

// overlays are those of one sandbox. Once the sandbox runs, its mount namespace keeps them, and they go here.
type overlays struct {
	dir   string // holds a folder for each
	empty string // overlays have two folders below at least; the upper one gives its mode to the root
	at    map[string]string
}

// newOverlays makes a folder for the overlays of a sandbox that is about to start.
func (d *Driver) newOverlays() (*overlays, error) {
	dir, err := newUnfinished(d.roots())
	if err == nil {
		err = os.Chmod(dir, 0o711) //nolint:gosec // in a user namespace the runtime passes through it as nobody
	}
	return &overlays{dir: dir, empty: d.root + "/empty", at: map[string]string{}}, err
}

// of mounts the overlay of a folder, once, and returns where it is.
func (o *overlays) of(folder string) (string, error) {
	if at, ok := o.at[folder]; ok {
		return at, nil
	}
	at := filepath.Join(o.dir, fmt.Sprint(len(o.at)))
	if err := os.Mkdir(at, 0o755); err != nil { //nolint:gosec // it is covered
		return "", err
	}
	o.at[folder] = at
	if err := unix.Mount("overlay", at, "overlay", unix.MS_RDONLY, "lowerdir="+escaped(folder)+":"+escaped(o.empty)); err != nil {
		return "", fmt.Errorf("overlay of %s: %w", folder, err)
	}
	return at, nil
}

// escaped is a path as the options of an overlay have it.
func escaped(path string) string {
	return strings.NewReplacer(`\`, `\\`, `:`, `\:`, `,`, `\,`).Replace(path)
}

// file returns a file by the overlay of its folder.
func (o *overlays) file(path string) (string, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", err
	}
	at, err := o.of(filepath.Dir(real))
	return filepath.Join(at, filepath.Base(real)), err
}

// bound returns mounts of the host's files as mounts of overlays.
func (o *overlays) bound(mounts []specs.Mount) ([]specs.Mount, error) {
	if len(mounts) == 0 {
		return mounts, nil
	}
	mounted, err := mountinfo.GetMounts(nil)
	if err != nil {
		return nil, err
	}
	out := make([]specs.Mount, 0, len(mounts))
	for _, m := range mounts {
		info, err := os.Stat(m.Source)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(mounted, func(i *mountinfo.Info) bool { return strings.HasPrefix(i.Mountpoint, m.Source+"/") }) {
			out = append(out, m) // an overlay would not show what is mounted in it
			continue
		}
		if info.IsDir() {
			m.Source, err = o.of(m.Source)
		} else {
			m.Source, err = o.file(m.Source)
		}
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}

// fill makes overlays of all that the root file system consists of, and of the folder of the daemon.
func (o *overlays) fill(in *ociconfig.Input) error {
	var e1, e2, e3 error
	in.Rootfs, e1 = o.of(in.Rootfs)
	in.RootMounts, e2 = o.bound(in.RootMounts)
	in.Spec.Daemon, e3 = o.file(in.Spec.Daemon)
	return errors.Join(e1, e2, e3)
}

// remove takes the overlays away. A sandbox that runs keeps them.
func (o *overlays) remove() error { return removeOverlays(o.dir) }

// removeOverlays takes away a folder of overlays, and nothing but empty folders.
func removeOverlays(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range entries {
		at := filepath.Join(dir, e.Name())
		if err := unix.Unmount(at, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) { // it is none
			errs = append(errs, err)
		}
		errs = append(errs, os.Remove(at))
	}
	return errors.Join(append(errs, os.Remove(dir))...)
}

// sweepOverlays removes those of servers that died while they started a sandbox.
func sweepOverlays(roots string) error {
	entries, err := os.ReadDir(roots)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if isLeftOver(e.Name()) {
			err = errors.Join(err, removeOverlays(filepath.Join(roots, e.Name())))
		}
	}
	return err
}

// fillOwn is fill, where this kernel can do it. Where it cannot, or not for the file system of the image, the sandbox
// shares inodes, and the log says so once. Any other failure is one of the start.
func (d creation) fillOwn(in ociconfig.Input, own *overlays) (ociconfig.Input, error) {
	with := in
	err := own.fill(&with)
	if err == nil {
		return with, nil
	}
	if !noOverlay(err) {
		return in, sandbox.Wrap(sandbox.Unavailable, err, "the sandbox gets no root file system of its own now; try again")
	}
	d.shared.Do(func() {
		d.log.Warn("no overlays: code sees by inotify and flock which files of the image its neighbours use", "error", err)
	})
	return in, nil
}

// noOverlay reports whether the kernel has no overlays, not on that file system, or not for this server.
func noOverlay(err error) bool {
	return slices.ContainsFunc([]error{unix.ENODEV, unix.EINVAL, unix.EOPNOTSUPP, unix.EPERM, unix.ELOOP}, func(no error) bool { return errors.Is(err, no) })
}
