package confine

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/driver/engine/hardening"
)

// The test binary stands for the program that confines itself, and for the program that it becomes.
func TestMain(m *testing.M) {
	IfAsked()
	if os.Getenv("CONFINED") != "" {
		os.Exit(look())
	}
	os.Exit(m.Run())
}

// look prints what is in force in the program that a process became.
func look() int {
	var files, core unix.Rlimit
	_ = unix.Getrlimit(unix.RLIMIT_NOFILE, &files)
	_ = unix.Getrlimit(unix.RLIMIT_CORE, &core)
	privs, _ := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	mode, _ := unix.PrctlRetInt(unix.PR_GET_SECCOMP, 0, 0, 0, 0)
	_, packet := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
	_, _, clone3 := unix.RawSyscall(unix.SYS_CLONE3, 0, 0, 0)
	// RLIMIT_CORE is 1; a program that sets it to 0 is told that it did.
	lowered := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
	_ = unix.Getrlimit(unix.RLIMIT_CORE, &core)
	high := func() syscall.Errno { // rubbish in the high half of an argument
		_, _, errno := unix.RawSyscall(unix.SYS_SOCKET, unix.AF_UNIX|1<<40, unix.SOCK_STREAM, 0)
		return errno
	}()
	_, unixErr := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	words := []string{
		strconv.FormatUint(files.Max, 10), strconv.FormatUint(core.Max, 10), strconv.Itoa(privs), strconv.Itoa(mode),
		word(packet), word(clone3), word(lowered), word(high), word(unixErr), strings.Join(os.Environ(), ","),
	}
	os.Stdout.WriteString(strings.Join(words, " ") + "\n") //nolint:errcheck // the test sees it
	return 0
}

func word(err error) string {
	if e, ok := err.(syscall.Errno); ok && e != 0 { //nolint:errorlint // as the kernel returned it
		return unix.ErrnoName(e)
	}
	return "ok"
}

func order(t *testing.T) string {
	t.Helper()
	runc, err := hardening.FindRuntime("runc")
	if err != nil {
		t.Fatal(err)
	}
	filter, err := hardening.SeccompFilter(runc)
	if err != nil {
		t.Fatal(err)
	}
	text, err := Argument(Order{
		Rlimits: map[int]uint64{unix.RLIMIT_NOFILE: 77, unix.RLIMIT_CORE: 1},
		Env:     []string{"CONFINED=1"},
	}, filter)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func run(t *testing.T, uid uint32, caps []uintptr, args ...string) (string, int) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", args...) //nolint:gosec // this program
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}, AmbientCaps: caps}
	cmd.Dir = "/"
	out, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out)), cmd.ProcessState.ExitCode()
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 && os.Getenv("CI") == "" {
		t.Skip("needs root, to start a process as nobody")
	}
}

// TestConfined: limits, filter and environment are in force in the program that the process becomes.
func TestConfined(t *testing.T) {
	needRoot(t)
	got, code := run(t, 65534, nil, Command, order(t), "/proc/self/exe")
	if want := "77 1 1 2 EPERM ENOSYS ok EPERM ok CONFINED=1"; got != want || code != 0 {
		t.Errorf("got %q (%d), want %q", got, code, want)
	}
}

// TestRefused: who is not powerless, or has a bad order, becomes nothing.
func TestRefused(t *testing.T) {
	needRoot(t)
	good := order(t)
	for name, c := range map[string]struct {
		uid  uint32
		caps []uintptr
		args []string
		want string
	}{
		"root":         {0, nil, []string{Command, good, "/proc/self/exe"}, "as root"},
		"a capability": {65534, []uintptr{unix.CAP_NET_RAW}, []string{Command, good, "/proc/self/exe"}, "capability"},
		"no program":   {65534, nil, []string{Command, good}, "want an order and a program"},
		"no order":     {65534, nil, []string{Command, "x", "/proc/self/exe"}, "order"},
		"no filter":    {65534, nil, []string{Command, `{"rlimits":{}}`, "/proc/self/exe"}, "filter"},
		"not there":    {65534, nil, []string{Command, good, "/no/such"}, "/no/such"},
	} {
		if got, code := run(t, c.uid, c.caps, c.args...); code != ExitRefused || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q (%d), want %q and %d", name, got, code, c.want, ExitRefused)
		}
	}
}
