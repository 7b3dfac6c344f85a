package nest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// InsideArgument is the first argument of the process that makes the sandbox from inside its namespaces.
const InsideArgument = "nest-inside"

// namespaces are those of a sandbox. The host name stays the machine's, and processes are those of the machine: a /proc of
// one's own wants one that is wholly visible, which most containers do not have.
const namespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWIPC

// capabilities are what the process has in the new user namespace until the sandbox is made.
var capabilities = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN, unix.CAP_SETPCAP}

// Start starts the sandbox of a private folder. wait waits for its end, which ctx brings about, too: it ends with this
// process at the latest. What the sandbox says goes to log.
func Start(ctx context.Context, dir string, o Order, log io.Writer) (wait func() error, err error) {
	if err := prepare(dir, o); err != nil {
		return nil, err
	}
	started, ended := make(chan error, 1), make(chan error, 1)
	go func() {
		// The sandbox ends with the thread that started it.
		runtime.LockOSThread()
		cmd := command(ctx, dir, o, log)
		if err := cmd.Start(); err != nil {
			started <- fmt.Errorf("the sandbox needs user, mount, network and IPC namespaces of its own, which this machine does not let its user make: %w", err)
			return
		}
		started <- nil
		err := cmd.Wait()
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			err = fmt.Errorf("the sandbox has ended: %s", exit.ProcessState)
		}
		ended <- err
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return func() error { return <-ended }, nil
}

func command(ctx context.Context, dir string, o Order, log io.Writer) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "/proc/self/exe", InsideArgument)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, []string{}, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  namespaces,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: o.UID, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: o.UID, HostID: os.Getegid(), Size: 1}},
		AmbientCaps: capabilities,
		Pdeathsig:   syscall.SIGKILL,
	}
	return cmd
}

// InsideIfAsked makes the sandbox and becomes its first process, when the command line says so. It returns when it does not.
func InsideIfAsked() {
	if len(os.Args) != 2 || os.Args[1] != InsideArgument {
		return
	}
	runtime.LockOSThread()
	fmt.Fprintln(os.Stderr, "skerry-bridge: the sandbox cannot be made:", inside())
	os.Exit(1)
}

// inside returns only when it fails.
func inside() error {
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	o, err := Read(dir)
	if err != nil {
		return err
	}
	if err := loopbackUp(); err != nil {
		return fmt.Errorf("loopback: %w", err)
	}
	unix.Umask(0o022)
	if err := makeRoot(dir, o); err != nil {
		return err
	}
	if err := dropCapabilities(); err != nil {
		return fmt.Errorf("capabilities: %w", err)
	}
	// The kernel forgets it with the credentials of before.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("end of the parent: %w", err)
	}
	return fmt.Errorf("%s: %w", o.Argv[0], syscall.Exec(o.Argv[0], o.Argv, []string{}))
}

// loopbackUp makes 127.0.0.1 answer in the network namespace, which begins without.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, lo); err != nil {
		return err
	}
	lo.SetUint16(lo.Uint16() | unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo)
}

// dropCapabilities takes all of them away, also from what this thread becomes.
func dropCapabilities() error {
	for n := uintptr(0); ; n++ {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, n, 0, 0, 0); errors.Is(err, unix.EINVAL) {
			break // there is none of that number
		} else if err != nil {
			return err
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return err
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	return unix.Capset(&header, &none[0])
}
