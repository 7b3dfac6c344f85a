package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/attack/wire"
)

// mountAttempts change what a path leads to, and what limits the sandbox.
var mountAttempts = map[string]attempt{
	"mount-over":       mountOver,
	"remount-writable": remountWritable,
	"mount-new-api":    mountNewAPI,
	"pivot-root":       pivotRoot,
	"chroot":           chroot,
	"unmount-cover":    unmountCover,
	"release-agent":    releaseAgent,
	"cgroup-limit":     cgroupLimit,
	"cgroup-child":     cgroupChild,
	"mknod-disk":       mknodDisk,
	"open-disk":        openDisk,
	"open-kmsg":        openKmsg,
	"unshare-user":     unshareUser,
	"clone3-user":      clone3User,
	"setns-host":       setnsHost,
}

func mountOver(wire.Facts) (string, error) {
	return "a file system lies over /etc", unix.Mount("none", "/etc", "tmpfs", 0, "")
}

// remountWritable takes the flag off the skills, which the host shares out.
func remountWritable(wire.Facts) (string, error) {
	return "/mnt/skills is mounted read-write", unix.Mount("none", "/mnt/skills", "", unix.MS_REMOUNT|unix.MS_BIND, "")
}

// mountNewAPI does the same by the calls that came after mount(2), which old filters do not know.
func mountNewAPI(wire.Facts) (string, error) {
	fs, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return "", fmt.Errorf("fsopen: %w", err)
	}
	defer unix.Close(fs)
	if err := unix.FsconfigCreate(fs); err != nil {
		return "", fmt.Errorf("fsconfig: %w", err)
	}
	mount, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return "", fmt.Errorf("fsmount: %w", err)
	}
	defer unix.Close(mount)
	err = unix.MoveMount(mount, "", unix.AT_FDCWD, "/etc", unix.MOVE_MOUNT_F_EMPTY_PATH)
	return "a file system lies over /etc", err
}

func pivotRoot(wire.Facts) (string, error) {
	if err := os.MkdirAll("/tmp/old", 0o700); err != nil {
		return "", broken("mkdir", err)
	}
	return "the root is /tmp", unix.PivotRoot("/tmp", "/tmp/old")
}

func chroot(wire.Facts) (string, error) {
	return "the root is /tmp", unix.Chroot("/tmp")
}

// unmountCover takes away what covers a file of /proc that tells of the host.
func unmountCover(wire.Facts) (string, error) {
	if err := unix.Unmount("/proc/keys", unix.MNT_DETACH); err != nil {
		return "", err
	}
	return "nothing covers /proc/keys", nil
}

// releaseAgent mounts a hierarchy of cgroups to have the host run a program when one of them is empty.
func releaseAgent(wire.Facts) (string, error) {
	dir := "/tmp/cgroup"
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", broken("mkdir", err)
	}
	if err := unix.Mount("cgroup", dir, "cgroup", 0, "freezer"); err != nil {
		if err = unix.Mount("cgroup2", dir, "cgroup2", 0, ""); err != nil {
			return "", fmt.Errorf("mount: %w", err)
		}
		file, err := os.OpenFile(dir+"/cgroup.procs", os.O_WRONLY, 0)
		if err != nil {
			return "", fmt.Errorf("cgroup.procs: %w", err)
		}
		return "cgroup.procs of the hierarchy can be written", file.Close()
	}
	path := dir + "/release_agent"
	now, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("release_agent: %w", err)
	}
	// What stands there stays there: this is a test.
	if err := os.WriteFile(path, now, 0); err != nil {
		return "", fmt.Errorf("release_agent: %w", err)
	}
	return "wrote release_agent", nil
}

// limits are files that hold a limit of the own cgroup, and what to write there.
var limits = map[string]string{
	"/sys/fs/cgroup/memory/memory.limit_in_bytes": "8589934592",
	"/sys/fs/cgroup/pids/pids.max":                "max",
	"/sys/fs/cgroup/pids.max":                     "max",
	"/sys/fs/cgroup/memory.max":                   "max",
}

// cgroupLimit lifts the own limits.
func cgroupLimit(wire.Facts) (string, error) {
	var worst error = unix.ENOENT
	for path, value := range limits {
		err := os.WriteFile(path, []byte(value), 0)
		if err == nil {
			return "wrote " + value + " into " + path, nil
		}
		if !errors.Is(err, unix.ENOENT) {
			worst = err
		}
	}
	return "", worst
}

// cgroupChild makes a cgroup of its own, where counts begin anew.
func cgroupChild(wire.Facts) (string, error) {
	var worst error = unix.ENOENT
	for _, dir := range []string{"/sys/fs/cgroup/pids", "/sys/fs/cgroup/memory", "/sys/fs/cgroup"} {
		err := os.Mkdir(dir+"/made", 0o755)
		if err == nil {
			return "made " + dir + "/made", os.Remove(dir + "/made")
		}
		if !errors.Is(err, unix.ENOENT) {
			worst = err
		}
	}
	return "", worst
}

func device(f wire.Facts) (int, error) {
	n, err := strconv.ParseUint(f["device"], 10, 63)
	return int(n), err //nolint:gosec // as it was given
}

// mknodDisk makes a node of a disk of the host.
func mknodDisk(f wire.Facts) (string, error) {
	dev, err := device(f)
	if err != nil {
		return "", broken("device", err)
	}
	path := "/tmp/disk"
	if err := unix.Mknod(path, unix.S_IFBLK|0o600, dev); err != nil {
		return "", err
	}
	return "made a node of a disk of the host", os.Remove(path)
}

// openDisk opens a disk of the host through a node that a careless restore left in the workspace.
func openDisk(wire.Facts) (string, error) {
	return readDevice(filepath.Join(workspace, "disk"))
}

// openKmsg reads what the host's kernel says, and the memory of the host.
func openKmsg(wire.Facts) (string, error) {
	var worst error = unix.ENOENT
	for _, path := range []string{"/dev/kmsg", "/dev/mem", "/dev/kmem", "/dev/port"} {
		found, err := readDevice(path)
		if err == nil {
			return found, nil
		}
		if !errors.Is(err, unix.ENOENT) {
			worst = err
		}
	}
	return "", worst
}

func readDevice(path string) (string, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	defer unix.Close(fd)
	n, err := unix.Read(fd, make([]byte, 8192))
	if err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	return fmt.Sprintf("read %d bytes of %s", n, path), nil
}

// unshareUser becomes root in a user namespace of its own, and so gets at far more of the kernel.
func unshareUser(wire.Facts) (string, error) {
	// A thread cannot do it while the program has others: a child can, before it runs anything.
	return childWith(&syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER})
}

// clone3User does the same by clone3, whose flags no filter can see.
func clone3User(wire.Facts) (string, error) {
	args := [11]uint64{0: unix.CLONE_NEWUSER | unix.CLONE_NEWNS, 4: uint64(unix.SIGCHLD)}
	pid, _, errno := unix.RawSyscall(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&args)), unsafe.Sizeof(args), 0)
	if errno == 0 && pid == 0 {
		// The child is a copy of one thread: it calls nothing of the runtime.
		_, _, _ = unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
	}
	if errno != 0 {
		return "", errno
	}
	var status unix.WaitStatus
	if _, err := unix.Wait4(int(pid), &status, 0, nil); err != nil {
		return "", broken("wait", err)
	}
	return "a child ran in a user and mount namespace of its own", nil
}

// childWith starts a child that ends at once.
func childWith(attr *syscall.SysProcAttr) (string, error) {
	process, err := os.StartProcess("/proc/self/exe", []string{"probe", "list"}, &os.ProcAttr{Sys: attr})
	if err != nil {
		return "", err
	}
	state, err := process.Wait()
	if err != nil {
		return "", broken("wait", err)
	}
	return "a child ran in the new namespace: " + state.String(), nil
}

// setnsHost goes to the namespaces of the first process that has others.
func setnsHost(f wire.Facts) (string, error) {
	all, err := pids()
	if err != nil {
		return "", err
	}
	var worst error = refusal("no other namespace")
	for _, pid := range all {
		fd, err := unix.Open("/proc/"+pid+"/ns/mnt", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			worst = err
			continue
		}
		err = joinMounts(fd)
		unix.Close(fd)
		if err != nil {
			worst = fmt.Errorf("setns: %w", err)
			continue
		}
		if found, err := secretIn(f["canary"], f["secret"]); err == nil {
			return "in the mount namespace of " + pid + ": " + strings.ToLower(found), nil
		}
	}
	return "", worst
}

func joinMounts(fd int) error {
	if err := unix.Unshare(unix.CLONE_FS); err != nil { // shared with the program's other threads
		return err
	}
	return unix.Setns(fd, unix.CLONE_NEWNS)
}
