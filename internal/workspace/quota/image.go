package quota

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

const (
	// MinImage is the smallest image, in bytes: below it btrfs has hardly any room.
	MinImage = 256 << 20

	imageName  = "disk.img"
	loopTries  = 20 // another program may take a free loop device first
	mountFlags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOATIME
)

// kind is a file system that an image can have.
type kind struct {
	fs      string
	make    []string                // program and arguments that make it
	options string                  // of the mount, besides what becomes of freed blocks
	ready   func(root string) error // once, after the first mount
}

// kinds in the order in which they are tried. A kernel may have the one, or the other, or neither:
// whether it counts shows only when it is mounted.
var kinds = []kind{
	{fs: "ext4", make: []string{"mkfs.ext4", "-q", "-F", "-m", "0", "-i", "8192", "-O", "quota,project", "-E", "quotatype=usrquota:prjquota,nodiscard,lazy_itable_init=1"},
		options: "usrquota,prjquota", ready: func(string) error { return nil }},
	{fs: "btrfs", make: []string{"mkfs.btrfs", "-q", "-f", "-K", "-m", "single", "-d", "single"}, ready: enableQuotas},
}

// openImage mounts the image when there is one or there shall be one, of so many bytes, and says what it is,
// or "". A new one that grows takes its blocks when they are written, else all at once.
func (v *Volume) openImage(ctx context.Context, size int64, grows bool) (string, error) {
	file := filepath.Join(v.o.Data, imageName)
	at, err := mountedAt(v.root)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(file)
	switch {
	case err == nil && at.fs == "":
		if at, err = v.mountImage(file); err != nil {
			return "", fmt.Errorf("%s is there, with the threads in it, and cannot be mounted: %w", imageName, err)
		}
	case err == nil && !at.isLoopOf(file):
		return "", fmt.Errorf("%s is there, but something else is mounted where its threads should be", imageName)
	case err == nil: // mounted by a server before this one
	case !errors.Is(err, os.ErrNotExist):
		return "", err
	case v.o.Mode == Kernel || v.o.Mode == Off || v.o.Mode == Auto && size == 0:
		return "", nil
	case at.fs != "":
		return "", errors.New("no image can be mounted: something else is mounted at the folder of the threads")
	default:
		if at, err = v.makeImage(ctx, file, size, grows); err != nil {
			return "", err
		}
		if info, err = os.Stat(file); err != nil {
			return "", err
		}
	}
	if size > info.Size() {
		if err := at.grow(ctx, file, size); err != nil {
			v.o.Log.Error("disk image not enlarged", "error", err)
		} else if info, err = os.Stat(file); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%s image of %d MiB", at.fs, info.Size()>>20), nil
}

// makeImage makes the image, copies what there is of threads into it, and mounts it in their place. Until
// all is copied nothing is changed; afterwards what was there is kept beside it.
func (v *Volume) makeImage(ctx context.Context, file string, size int64, grows bool) (mounted, error) {
	if size < MinImage {
		return mounted{}, fmt.Errorf("disk_image_mib says %d, at least %d are needed", size>>20, MinImage>>20)
	}
	if dirs, err := filepath.Glob(filepath.Join(v.root, "*", "users", "*", "threads")); err != nil {
		return mounted{}, err
	} else if v.o.Live != nil {
		for _, dir := range dirs {
			if rel, err := filepath.Rel(v.root, dir); err == nil && v.o.Live(rel) {
				return mounted{}, errors.New("there are sandboxes whose files would be moved into the image: end them first (skerry release), then start the server again")
			}
		}
	}
	fresh := file + ".new"
	var errs []error
	for _, k := range kinds {
		err := v.tryKind(ctx, k, fresh, size, grows)
		if err == nil {
			if err = unix.Rename(fresh, file); err != nil {
				return mounted{}, err
			}
			return v.mountImage(file)
		}
		errs = append(errs, fmt.Errorf("%s: %w", k.fs, err), ignoreMissing(os.Remove(fresh)))
		if errors.Is(err, unix.ENOSPC) || ctx.Err() != nil {
			break
		}
	}
	return mounted{}, fmt.Errorf("no image can be made: %w", errors.Join(errs...))
}

func ignoreMissing(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// tryKind makes an image of a kind with a copy of the threads in it, tried and not mounted.
func (v *Volume) tryKind(ctx context.Context, k kind, file string, size int64, grows bool) (err error) {
	if err := reserve(file, size, grows); err != nil {
		return err
	}
	if err := run(ctx, append(k.make, file)...); err != nil {
		return err
	}
	at, err := os.MkdirTemp(v.o.Data, "disk-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(at)) }()
	if err := mount(file, at, k); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unmount(at)) }()
	if err := os.Chmod(at, 0o711); err != nil { //nolint:gosec // sandboxes pass through it
		return err
	}
	if err := k.ready(at); err != nil {
		return err
	}
	how, err := find(at)
	if err == nil {
		err = probe(how, at)
	}
	if err != nil {
		return err
	}
	if empty, err := isEmpty(v.root); err != nil || empty {
		return err
	}
	v.o.Log.Info("threads are copied into the disk image", "file", imageName)
	return CopyTree(ctx, v.root, at)
}

// unmount waits for what may still look at the file system, such as a scanner.
func unmount(at string) error {
	var err error
	for range loopTries {
		if err = unix.Unmount(at, 0); !errors.Is(err, unix.EBUSY) {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
	return err
}

// reserve makes a file whose blocks are its own, or one that grows, which has none.
func reserve(file string, size int64, grows bool) error {
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if grows {
		return errors.Join(f.Truncate(size), f.Close())
	}
	err = unix.Fallocate(int(f.Fd()), 0, 0, size)
	if errors.Is(err, unix.ENOSPC) {
		err = fmt.Errorf("the disk has no room for an image of %d MiB: %w", size>>20, err)
	}
	return errors.Join(err, f.Close())
}

// mountImage mounts the image where the threads are. What is there already was copied into it before it got
// its name, so it is put aside.
func (v *Volume) mountImage(file string) (mounted, error) {
	if empty, err := isEmpty(v.root); err != nil {
		return mounted{}, err
	} else if !empty {
		aside := v.root + ".before-image-" + strconv.FormatInt(time.Now().Unix(), 10)
		if err := errors.Join(os.Rename(v.root, aside), os.MkdirAll(v.root, 0o711)); err != nil {
			return mounted{}, err
		}
		v.o.Log.Warn("the threads are in the disk image now; the folder they were in is kept and can be deleted", "folder", aside)
	}
	var errs []error
	for _, k := range kinds {
		err := mount(file, v.root, k)
		if err == nil {
			return mountedAt(v.root)
		}
		errs = append(errs, fmt.Errorf("%s: %w", k.fs, err))
	}
	return mounted{}, errors.Join(errs...)
}

// mount attaches the file to a loop device and mounts that. The device goes when it is unmounted.
func mount(file, at string, k kind) error {
	back, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer back.Close() //nolint:errcheck // the device has it
	dev, err := attached(back)
	if err == nil && dev == nil {
		dev, err = attach(back)
	}
	if err != nil {
		return err
	}
	defer dev.Close() //nolint:errcheck // without a mount, the device goes here
	grows, err := isSparse(back)
	if err != nil {
		return err
	}
	freed := "nodiscard" // the image keeps them
	if grows {
		freed = "discard" // the host has them back
	}
	if err := unix.Mount(dev.Name(), at, k.fs, mountFlags, strings.TrimPrefix(k.options+","+freed, ",")); err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	return nil
}

// isSparse reports whether a file has not all of its blocks yet.
func isSparse(f *os.File) (bool, error) {
	var s unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &s); err != nil {
		return false, err
	}
	return s.Blocks*512 < s.Size, nil
}

// attached returns the loop device that a file has already, or nil. A sandbox that is alive, or the mount
// namespace of an earlier server, may still have the file system mounted. Mounted by way of the same device, it
// is the same one. By way of a second device, two file systems would write to one file, and destroy each other.
func attached(back *os.File) (*os.File, error) {
	names, err := filepath.Glob("/sys/block/loop*/loop/backing_file") // only of devices that have a file
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		dev, err := os.OpenFile(filepath.Join("/dev", filepath.Base(filepath.Dir(filepath.Dir(name)))), os.O_RDWR, 0)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENXIO) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
			continue // it is not one of ours to use
		}
		if err != nil {
			return nil, err
		}
		if loopsTo(dev, back) { // it is open now, and so keeps its file
			return dev, nil
		}
		if err := dev.Close(); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// loopsTo reports whether a loop device has that file, whatever name either was opened by.
func loopsTo(dev, file *os.File) bool {
	has, err := unix.IoctlLoopGetStatus64(int(dev.Fd()))
	if err != nil {
		return false
	}
	var is unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &is); err != nil {
		return false
	}
	return has.Device == is.Dev && has.Inode == is.Ino
}

func attach(back *os.File) (*os.File, error) {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("loop devices: %w", err)
	}
	defer control.Close() //nolint:errcheck // only a handle
	for range loopTries {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("no loop device is free: %w", err)
		}
		dev, err := os.OpenFile("/dev/loop"+strconv.Itoa(n), os.O_RDWR, 0)
		if err != nil {
			return nil, err
		}
		c := unix.LoopConfig{Fd: uint32(back.Fd()), Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR | unix.LO_FLAGS_DIRECT_IO}} //nolint:gosec // a descriptor
		copy(c.Info.File_name[:], back.Name())
		err = unix.IoctlLoopConfigure(int(dev.Fd()), &c)
		if errors.Is(err, unix.EINVAL) { // the disk below cannot do without the page cache
			c.Info.Flags = unix.LO_FLAGS_AUTOCLEAR
			err = unix.IoctlLoopConfigure(int(dev.Fd()), &c)
		}
		if err == nil {
			return dev, nil
		}
		if err = errors.Join(err, dev.Close()); !errors.Is(err, unix.EBUSY) {
			return nil, fmt.Errorf("loop device: %w", err)
		}
	}
	return nil, errors.New("no loop device is free")
}

// mounted is what is mounted at a folder itself.
type mounted struct {
	at, fs, device string
}

// mountedAt looks into the mounts of this process; an empty answer: the folder is no place of a mount.
func mountedAt(dir string) (mounted, error) {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return mounted{}, err
	}
	mounts, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) { return m.Mountpoint != real, false })
	if err != nil || len(mounts) == 0 {
		return mounted{}, err
	}
	m := mounts[len(mounts)-1] // of two the later one is on top
	return mounted{at: real, fs: m.FSType, device: m.Source}, nil
}

// isLoopOf says whether it is the loop device of that file.
func (m mounted) isLoopOf(name string) bool {
	file, err := os.Open(name)
	if err != nil {
		return false
	}
	defer file.Close() //nolint:errcheck // only looked at
	dev, err := os.Open(m.device)
	if err != nil {
		return false
	}
	defer dev.Close() //nolint:errcheck // only looked at
	return loopsTo(dev, file)
}

// grow enlarges the image and its file system while it is used.
func (m mounted) grow(ctx context.Context, file string, size int64) error {
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only made longer
	grows, err := isSparse(f)
	if err != nil {
		return err
	}
	if grows {
		err = f.Truncate(size)
	} else {
		err = unix.Fallocate(int(f.Fd()), 0, 0, size)
	}
	if err != nil {
		return err
	}
	dev, err := os.OpenFile(m.device, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer dev.Close() //nolint:errcheck // only a handle
	if err := unix.IoctlSetInt(int(dev.Fd()), unix.LOOP_SET_CAPACITY, 0); err != nil {
		return err
	}
	if m.fs == "btrfs" {
		var args volArgs
		copy(args.Name[:], "max")
		return ask(m.at, resize, unsafe.Pointer(&args))
	}
	return run(ctx, "resize2fs", m.device)
}

func run(ctx context.Context, argv ...string) error {
	out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w %.300s", argv[0], err, strings.TrimSpace(string(out)))
	}
	return nil
}
