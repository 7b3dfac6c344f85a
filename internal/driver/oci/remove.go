package oci

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/go-runc"
	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/driver/engine/cgroup"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/hardening"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// removal ends a sandbox and deletes what is left of it.
type removal struct{ *Driver }

const (
	// removeTimeout bounds one removal: the kill, the runtime's own delete and the cgroups.
	removeTimeout = 30 * time.Second
	// killWait is how long PID 1 may take to die of SIGKILL. A large memory to give back takes a
	// second; beyond this the process sits in the kernel, and the runtime's delete tries again.
	killWait = 5 * time.Second
)

// Remove implements driver.Driver.
func (d *Driver) Remove(ctx context.Context, id sandbox.ID) error {
	if err := hardening.CheckID(id); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, removeTimeout)
	defer cancel()
	unlock, err := d.locks.Lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	return removal{d}.remove(ctx, id)
}

// remove takes away everything of a sandbox, the bundle last: until then it can be found again. The
// caller holds its lock.
func (d removal) remove(ctx context.Context, id sandbox.ID) error {
	rec, err := readRecord(d.bundle(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return sandbox.Wrap(sandbox.Internal, err, "the record of sandbox %s cannot be read", id)
	}
	rt, err := d.runtimes.Find(rec.Runtime)
	if err != nil {
		return err
	}
	d.kill(ctx, id)
	deleteErr := rt.cli.Delete(ctx, string(id), &runc.DeleteOpts{Force: true})
	if ctx.Err() != nil {
		return sandbox.Wrap(sandbox.Timeout, errors.Join(context.Cause(ctx), deleteErr), "the sandbox could not be removed in time")
	}
	if deleteErr != nil {
		return sandbox.Wrap(sandbox.Internal, deleteErr, "the sandbox could not be removed")
	}
	if err := rt.sweepState(id); err != nil {
		return sandbox.Wrap(sandbox.Internal, err, "the sandbox left files of its runtime")
	}
	if err := cgroup.Remove(ctx, d.cgroupPath(id)); err != nil {
		return sandbox.Wrap(sandbox.Internal, err, "the sandbox left a control group")
	}
	if err := removeBundle(d.bundles(), id); err != nil {
		return sandbox.Wrap(sandbox.Internal, err, "the sandbox left files")
	}
	return nil
}

// kill ends PID 1, and with it every process of the sandbox, and waits until it is dead. The
// runtime's delete would do so too, but looks only ten times a second.
func (d removal) kill(ctx context.Context, id sandbox.ID) {
	fd, _, err := d.openInit(id)
	if err != nil {
		return
	}
	defer unix.Close(fd) //nolint:errcheck // a process handle
	if unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) != nil {
		return
	}
	cgroup.Thaw(d.cgroupPath(id))
	for end := time.Now().Add(killWait); ctx.Err() == nil && time.Now().Before(end); {
		if hasEnded(fd, 100*time.Millisecond) { // short waits, because poll does not know ctx
			return
		}
	}
}

// hasEnded reports whether the process of a handle has ended, and waits up to limit for it.
func hasEnded(pidfd int, limit time.Duration) bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, int(limit.Milliseconds())) //nolint:gosec // descriptors are small
	return n > 0 || (err != nil && !errors.Is(err, unix.EINTR))
}

// hasEnded reports whether the sandbox was started and its PID 1 no longer exists.
func (d removal) hasEnded(id sandbox.ID) bool {
	fd, _, err := d.openInit(id)
	if err != nil {
		return errors.Is(err, unix.ESRCH)
	}
	defer unix.Close(fd) //nolint:errcheck // a process handle
	return hasEnded(fd, 0)
}

var (
	// errNoPID says that the runtime has not written the pid of a sandbox (yet).
	errNoPID = errors.New("no pid")
	// errNotInCgroup says that the pid is that of a process outside: another process that got the number of
	// a sandbox's that has ended, or the sandbox's own when its runtime sets no limits.
	errNotInCgroup = errors.New("not in the sandbox's cgroup")
)

// openInit opens a handle (pidfd) of the sandbox's PID 1 and returns its number on the host.
// fs.ErrNotExist: the runtime has not started it; unix.ESRCH: it has ended.
func (d removal) openInit(id sandbox.ID) (fd, pid int, err error) {
	data, err := os.ReadFile(filepath.Join(d.bundle(id), pidFile))
	if err != nil {
		return -1, 0, err
	}
	pid, err = strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil || pid <= 1 {
		return -1, 0, errNoPID
	}
	fd, err = unix.PidfdOpen(pid, 0)
	if err != nil {
		return -1, 0, err
	}
	if !cgroup.Holds(d.cgroupPath(id), pid) { // looked at after opening: the handle keeps the pid from being another's
		err = error(unix.ESRCH)
		if !hasEnded(fd, 0) {
			err = errors.Join(errNotInCgroup, unix.ESRCH)
		}
		return -1, 0, errors.Join(err, unix.Close(fd))
	}
	return fd, pid, nil
}
