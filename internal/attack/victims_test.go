package attack

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/attack/wire"
)

// victimUID is the uid of who is attacked on the host itself.
const victimUID = controlUID - 1

// hostVictim starts a process on the host that is attacked when namespaces are shared, and tells where to
// find it.
func hostVictim(t testing.TB) wire.Facts {
	t.Helper()
	dir := openDir(t)
	must(t, os.Chown(dir, victimUID, victimUID))
	file := filepath.Join(dir, "victim.json")
	mark := "host-" + filepath.Base(dir)
	used := []string{filepath.Join(dir, "of-image"), filepath.Join(dir, "of-skill")}
	for _, name := range used {
		must(t, os.WriteFile(name, []byte("used by many"), 0o644)) //nolint:gosec // all may read it
	}
	background(t, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: victimUID, Gid: victimUID}}, append([]string{"victim", mark, file}, used...)...)
	facts := waitFor(t, file)
	must(t, os.Chmod(file, 0o600))
	facts["file"], facts["uid"] = file, strconv.Itoa(victimUID)
	facts["used-image"], facts["used-skill"] = used[0], used[1]
	return facts
}

// theOutside starts a network that has what attacks look for: traffic stays in it.
func theOutside(t testing.TB) wire.Facts {
	t.Helper()
	file := filepath.Join(openDir(t), "outside.json")
	background(t, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}, "outside", file)
	return waitFor(t, file)
}

// background starts the program on the host and ends it after the test.
func background(t testing.TB, how *syscall.SysProcAttr, args ...string) {
	t.Helper()
	how.Pdeathsig = unix.SIGKILL
	cmd := exec.Command(filepath.Join(bin, "probe"), args...)
	cmd.SysProcAttr, cmd.Dir, cmd.WaitDelay = how, "/", time.Second
	log := &lines{}
	cmd.Stderr = log
	// Which ends with the thread that started it: that one is kept.
	started := make(chan error)
	end := make(chan struct{})
	ended := make(chan struct{})
	go func() { // ends after the test
		defer close(ended)
		runtime.LockOSThread()
		started <- cmd.Start()
		<-end
		if cmd.Process != nil {
			_ = cmd.Process.Signal(unix.SIGTERM)
			_ = cmd.Wait()
		}
	}()
	must(t, <-started)
	t.Cleanup(func() {
		close(end)
		<-ended
		if t.Failed() {
			t.Logf("probe %v: %s", args, log)
		}
	})
}

// waitFor reads a file of facts that a victim writes once it is there.
func waitFor(t testing.TB, path string) wire.Facts {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		var facts wire.Facts
		data, err := os.ReadFile(path)
		if err == nil && json.Unmarshal(data, &facts) == nil {
			return facts
		}
		if time.Now().After(end) {
			t.Fatalf("nobody wrote %s: %v", path, err)
		}
	}
}

// plant puts into a thread's folder what a careless restore by root might.
func plant(t testing.TB, folder string, facts wire.Facts) {
	t.Helper()
	must(t, os.WriteFile(filepath.Join(folder, "of-root"), []byte("root's"), 0o644)) //nolint:gosec // as said
	workspace := filepath.Join(folder, "workspace")
	dev, err := strconv.ParseUint(facts["device"], 10, 63)
	must(t, err)
	disk := filepath.Join(workspace, "disk")
	must(t, unix.Mknod(disk, unix.S_IFBLK|0o666, int(dev))) //nolint:gosec // below 1<<63
	must(t, os.Chmod(disk, 0o666))                          //nolint:gosec // its mode must not be what holds
	program, err := os.ReadFile(filepath.Join(bin, "probe"))
	must(t, err)
	for _, name := range []string{"set-uid", "capable"} {
		must(t, os.WriteFile(filepath.Join(workspace, name), program, 0o755)) //nolint:gosec // a program
	}
	must(t, os.Chmod(filepath.Join(workspace, "set-uid"), 0o755|os.ModeSetuid|os.ModeSetgid))
	// struct vfs_cap_data, revision 2 with the effective bit: CAP_NET_RAW, number 13, permitted.
	capability := []byte{1, 0, 0, 2, 0, 1 << (unix.CAP_NET_RAW - 8), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	must(t, unix.Setxattr(filepath.Join(workspace, "capable"), "security.capability", capability, 0))
}
