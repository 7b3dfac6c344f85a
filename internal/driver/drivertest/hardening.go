package drivertest

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/driver/drivertest/probewire"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/hardening"
	"github.com/skerry-sandbox/skerry/internal/platform/anchor"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// hardening asserts the list of design §4 from inside.
func (s *suite) hardening(t *testing.T) {
	need(t, s.caps.Isolated, "Isolated")
	r := s.start(t)
	for _, c := range []struct {
		name string
		test func(*testing.T, *rig)
	}{
		{"Identity", s.identity},
		{"Namespaces", s.namespaces},
		{"UserNamespace", s.userNamespace},
		{"Network", s.network},
		{"FileSystems", s.fileSystems},
		{"ProcAndSys", s.procAndSys},
		{"Devices", s.devices},
		{"Processes", s.processes},
		{"Sockets", s.sockets},
		{"Syscalls", s.syscalls},
		{"SetuidAndNodes", s.setuidAndNodes},
		{"Environment", s.environment},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, r) })
	}
}

// ownKernel reports whether the sandbox runs on a kernel of its runtime's own (gVisor). Some things
// that a shared kernel must refuse are then harmless, because they are not the host's.
func ownKernel(t testing.TB, r *rig) bool {
	t.Helper()
	host, err := os.ReadFile("/proc/sys/kernel/osrelease")
	must(t, err)
	version := r.ask(t, probewire.Request{Op: probewire.OpRead, Path: "/proc/version"}).Text
	return !strings.Contains(version, strings.TrimSpace(string(host)))
}

// identity: nobody's uid, in no group, with no capability, for good, and under a filter.
func (s *suite) identity(t *testing.T, r *rig) {
	uid := fmt.Sprint(r.spec.UID)
	for _, child := range []bool{false, true} {
		got := r.ask(t, probewire.Request{Op: probewire.OpIdentity, Child: child}).Lines
		groups := got[min(4, len(got)):]
		if len(got) < 4 || !slices.Equal(got[:4], []string{uid, uid, uid, uid}) {
			t.Errorf("uid, euid, gid, egid are %v, want %s", got, uid)
		}
		if len(groups) > 0 && !slices.Equal(groups, []string{uid}) {
			t.Errorf("supplementary groups %v, want none", groups)
		}
		status := statusOf(r.ask(t, probewire.Request{Op: probewire.OpRead, Path: "/proc/self/status", Child: child}).Text)
		for name, want := range map[string]string{
			"CapInh": "0000000000000000", "CapPrm": "0000000000000000", "CapEff": "0000000000000000",
			"CapBnd": "0000000000000000", "Seccomp": "2",
		} {
			if status[name] != want {
				t.Errorf("%s is %q, want %s", name, status[name], want)
			}
		}
		// gVisor's kernel does not print these two.
		for name, want := range map[string]string{"CapAmb": "0000000000000000", "NoNewPrivs": "1"} {
			if value, ok := status[name]; ok && value != want {
				t.Errorf("%s is %q, want %s", name, value, want)
			}
		}
		if got := r.ask(t, probewire.Request{Op: probewire.OpControls, Child: child}); !slices.Equal(got.Lines, []string{"1", "2"}) {
			t.Errorf("no_new_privs and seccomp mode are %+v, want 1 and 2", got)
		}
	}
}

func statusOf(text string) map[string]string {
	out := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(line, ":"); ok {
			out[name] = strings.TrimSpace(value)
		}
	}
	return out
}

// namespaces: each is another than the host's. A kernel of gVisor's own has fewer kinds, and none of
// the host's.
func (s *suite) namespaces(t *testing.T, r *rig) {
	entries := r.ask(t, probewire.Request{Op: probewire.OpList, Path: "/proc/self/ns"}).Lines
	if len(entries) == 0 {
		t.Error("no namespaces are listed")
	}
	host, own := s.h.PID(t, r.spec.ID), ownKernel(t, r)
	for _, kind := range []string{"pid", "ipc", "uts", "net", "mnt", "cgroup"} {
		ours, err := os.Readlink("/proc/self/ns/" + kind)
		must(t, err)
		if slices.Contains(entries, kind) && (kind != "cgroup" || s.keeps(t, driver.OwnCgroup)) {
			if inside := r.ask(t, probewire.Request{Op: probewire.OpReadlink, Path: "/proc/self/ns/" + kind}).Text; inside == ours {
				t.Errorf("the %s namespace is the host's: %s", kind, inside)
			}
		}
		if own && kind == "cgroup" {
			continue // that kernel hides the host's cgroups; its process needs no namespace
		}
		if kind == "cgroup" && !s.keeps(t, driver.OwnCgroup) {
			continue
		}
		theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", host, kind))
		must(t, err)
		if theirs == ours {
			t.Errorf("seen from the host, the %s namespace is the host's: %s", kind, theirs)
		}
	}
	if name := r.ask(t, probewire.Request{Op: probewire.OpRead, Path: "/proc/sys/kernel/hostname"}).Text; strings.TrimSpace(name) != r.spec.Hostname {
		t.Errorf("the hostname is %q, want %q", name, r.spec.Hostname)
	}
}

// userNamespace checks what the driver declares, seen from the host. In its own user namespace the sandbox's
// uid is itself, and neither the host's root nor another uid of the host is in it. A file of another owner
// then belongs to no user. Only a kernel that shows the host's owners tells that inside.
func (s *suite) userNamespace(t *testing.T, r *rig) {
	declared := slices.Contains(s.caps.UserNamespaces, s.h.Runtime)
	if why := s.caps.NoUserNamespace[s.h.Runtime]; declared == (why != "") {
		t.Fatalf("a user namespace is declared: %v, and why not: %q", declared, why)
	}
	pid := s.h.PID(t, r.spec.ID)
	have := true
	for _, file := range []string{"uid_map", "gid_map"} {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
		must(t, err)
		lines := strings.Split(strings.TrimSpace(string(data)), "\n")
		var host []string
		for _, line := range lines {
			if f := strings.Fields(line); len(f) == 3 && f[2] == "1" {
				host = append(host, f[0]+" "+f[1])
			}
		}
		uid := fmt.Sprint(r.spec.UID)
		if len(host) != len(lines) || len(host) != 2 || host[1] != uid+" "+uid || host[0] == "0 0" {
			have = false
			if declared {
				t.Errorf("%s is %q, want the sandbox's own %s and one that stands for root", file, data, uid)
			}
		}
	}
	if have != declared {
		t.Errorf("the sandbox has a user namespace of its own: %v; declared: %v", have, declared)
	}
	if !declared {
		t.Skipf("capability UserNamespaces: the driver declares that it lacks it: %s", s.caps.NoUserNamespace[s.h.Runtime])
	}
	must(t, os.WriteFile(filepath.Join(r.thread, "workspace", "of-root"), nil, 0o600))
	got := r.ask(t, probewire.Request{Op: probewire.OpOwner, Path: sandbox.WorkspaceDir + "/of-root"})
	if !slices.Equal(got.Lines, []string{"65534", "65534"}) {
		t.Errorf("a file of the host's root belongs to %v inside, want nobody", got.Lines)
	}
}

// network: loopback, which works, and nothing else.
func (s *suite) network(t *testing.T, r *rig) {
	if s.caps.Network != "none" {
		t.Skipf("capability Network: the driver declares %q", s.caps.Network)
	}
	interfaces := r.ask(t, probewire.Request{Op: probewire.OpInterfaces}).Lines
	if len(interfaces) != 1 || !strings.HasPrefix(interfaces[0], "lo ") || !strings.Contains(interfaces[0], "up") {
		t.Errorf("interfaces are %q, want lo, up, alone", interfaces)
	}
	if routes := r.ask(t, probewire.Request{Op: probewire.OpRead, Path: "/proc/net/route"}); strings.Count(strings.TrimSpace(routes.Text), "\n") > 0 {
		t.Errorf("there are routes: %q", routes.Text)
	}
	if got := r.ask(t, probewire.Request{Op: probewire.OpListen, Path: "tcp", Data: fmt.Sprintf("127.0.0.1:%d", sandbox.BridgePort)}); got.Err != "" {
		t.Errorf("loopback does not work: %s", got.Err)
	}
	hostTCP, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer hostTCP.Close() //nolint:errcheck // a listener of the test
	echo(hostTCP)
	hostAbstract, err := net.Listen("unix", "@drivertest-"+s.run)
	must(t, err)
	defer hostAbstract.Close() //nolint:errcheck // a listener of the test
	echo(hostAbstract)
	for _, to := range [][2]string{
		{"tcp", hostTCP.Addr().String()},
		{"unix", "@drivertest-" + s.run},
		{"tcp", "192.0.2.1:80"},
		{"udp", "192.0.2.1:53"},
		{"tcp", "169.254.169.254:80"},
		{"tcp", "[2001:db8::1]:80"},
	} {
		if got := r.ask(t, probewire.Request{Op: probewire.OpDial, Path: to[0], Data: to[1]}); got.Err == "" {
			t.Errorf("%s %s answers: %q", to[0], to[1], got.Text)
		}
	}
}

// fileSystems: only tmpfs and the workspace can be written; what is read-only is so all the way down.
func (s *suite) fileSystems(t *testing.T, r *rig) {
	for _, path := range []string{"/x", "/etc/x", "/usr/x", "/opt/x", "/opt/skerry/x", "/var/x", "/root/x", "/mnt/x", "/run/x", "/home/x", "/sys/x", "/dev/x", "/proc/x",
		sandbox.UserDataDir + "/x", sandbox.SkillsDir + "/x", sandbox.SkillsDir + "/public/x", sandbox.RunDir + "/x"} {
		if got := r.ask(t, probewire.Request{Op: probewire.OpWrite, Path: path, Data: "x"}); got.Err == "" {
			t.Errorf("%s could be written", path)
		}
	}
	// Also where the modes alone would allow it.
	must(t, os.Chown(r.skills, r.spec.UID, r.spec.UID))
	must(t, os.Chown(r.skills+"/SKILL.md", r.spec.UID, r.spec.UID))
	must(t, os.Chown(filepath.Join(filepath.Dir(r.skills), "public"), r.spec.UID, r.spec.UID))
	must(t, os.Chown(r.run, r.spec.UID, r.spec.UID))
	r.push(t, sandbox.SkillsDir)
	for _, path := range []string{sandbox.SkillsDir + "/x", sandbox.SkillsDir + "/SKILL.md", sandbox.SkillsDir + "/public/x", sandbox.RunDir + "/x", sandbox.DaemonPath} {
		if got := r.ask(t, probewire.Request{Op: probewire.OpWrite, Path: path, Data: "x"}); got.Err == "" {
			t.Errorf("%s could be written by its owner", path)
		}
	}
	if got := r.ask(t, probewire.Request{Op: probewire.OpRead, Path: sandbox.SkillsDir + "/SKILL.md"}); got.Text != "a skill\n" {
		t.Errorf("a mounted file reads %+v", got)
	}
	if got := r.ask(t, probewire.Request{Op: probewire.OpRead, Path: sandbox.SkillsDir + "/public/NESTED.md"}); got.Text != "nested\n" {
		t.Errorf("a file of a mount in a mount reads %+v", got)
	}
	for _, path := range []string{"/tmp/x", sandbox.HomeDir + "/x", sandbox.WorkspaceDir + "/x", sandbox.UploadsDir + "/x", sandbox.OutputsDir + "/x", "/dev/shm/x"} {
		if got := r.ask(t, probewire.Request{Op: probewire.OpWrite, Path: path, Data: "x"}); got.Err != "" {
			t.Errorf("%s cannot be written: %s", path, got.Err)
		}
	}
	r.pull(t)
	info, err := os.Stat(filepath.Join(r.thread, "outputs", "x"))
	must(t, err)
	if owner := info.Sys().(*syscall.Stat_t).Uid; int(owner) != r.spec.UID {
		t.Errorf("a file made inside belongs to %d on the host, want %d", owner, r.spec.UID)
	}
	s.tmpfsFlags(t, r)
}

// tmpfsFlags: what code can fill carries neither set-uid programs nor devices, but runs programs.
func (s *suite) tmpfsFlags(t *testing.T, r *rig) {
	mounts := r.ask(t, probewire.Request{Op: probewire.OpRead, Path: "/proc/self/mounts"}).Text
	seen, own := 0, ownKernel(t, r)
	for line := range strings.Lines(mounts) {
		f := strings.Fields(line)
		if len(f) < 4 || (f[1] != "/tmp" && f[1] != sandbox.HomeDir) {
			continue
		}
		seen++
		options := strings.Split(f[3], ",")
		if own || !s.keeps(t, driver.VolumeFlags) {
			continue // gVisor keeps the flags but does not show them; setuidAndNodes sees the effect
		}
		if !slices.Contains(options, "nosuid") || !slices.Contains(options, "nodev") || slices.Contains(options, "noexec") {
			t.Errorf("%s is mounted with %s, want nosuid, nodev and exec", f[1], f[3])
		}
	}
	if seen != 2 {
		t.Errorf("%d of 2 tmpfs found in %q", seen, mounts)
	}
}

// procAndSys: what tells of the host is masked, and what steers the kernel cannot be written.
func (s *suite) procAndSys(t *testing.T, r *rig) {
	masked := hardening.MaskedPaths()
	if !s.keeps(t, driver.MaskedPaths) {
		masked = []string{"/proc/kcore", "/proc/keys", "/proc/timer_list", "/sys/firmware"} // every engine does
	}
	for _, path := range masked {
		got := r.ask(t, probewire.Request{Op: probewire.OpRead, Path: path})
		listed := r.ask(t, probewire.Request{Op: probewire.OpList, Path: path})
		if path == "/sys/devices/virtual/dmi" && ownKernel(t, r) { // gVisor masks nothing, and shows one file here on some hosts
			if shown := r.ask(t, probewire.Request{Op: probewire.OpList, Path: path + "/id"}).Lines; len(listed.Lines) > 1 || len(shown) > 1 ||
				len(shown) == 1 && shown[0] != "product_name" {
				t.Errorf("%s shows %v, and its id %v", path, listed.Lines, shown)
			}
			continue
		}
		if got.Text != "" || len(listed.Lines) != 0 {
			t.Errorf("%s shows %.100q %v", path, got.Text, listed.Lines)
		}
	}
	for _, path := range []string{
		"/proc/sys/kernel/core_pattern", "/proc/sys/vm/drop_caches", "/proc/sys/kernel/hostname", "/proc/sysrq-trigger",
		"/proc/irq/default_smp_affinity", "/sys/kernel/mm/ksm/run", "/sys/power/state", "/sys/fs/cgroup/cgroup.procs",
		"/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/pids/pids.max", "/sys/fs/cgroup/pids.max",
	} {
		if got := r.ask(t, probewire.Request{Op: probewire.OpWrite, Path: path, Data: "1"}); got.Err == "" {
			t.Errorf("%s could be written", path)
		}
	}
	for _, path := range []string{"/sys/fs/cgroup/made", "/sys/fs/cgroup/memory/made", "/sys/fs/cgroup/pids/made"} {
		if got := r.ask(t, probewire.Request{Op: probewire.OpMkdir, Path: path}); got.Err == "" {
			t.Errorf("%s could be made", path)
		}
	}
	if !s.keeps(t, driver.OwnCgroup) {
		return
	}
	inside := r.ask(t, probewire.Request{Op: probewire.OpRead, Path: "/proc/self/cgroup"}).Text
	host, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", s.h.PID(t, r.spec.ID)))
	must(t, err)
	for line := range strings.Lines(string(host)) {
		path := strings.SplitN(strings.TrimSpace(line), ":", 3)[2]
		if r.spec.Runtime == "runsc" && path == "/"+filepath.Base(path) {
			continue // gVisor makes this file up, with the sandbox's own name: that of a container is no secret in it
		}
		if path != "/" && strings.Contains(inside, path) {
			t.Errorf("the host's cgroup %s shows: %q", path, inside)
		}
	}
}

// devices: the usual few.
func (s *suite) devices(t *testing.T, r *rig) {
	allowed, own := hardening.Devices(), ownKernel(t, r)
	for _, line := range r.ask(t, probewire.Request{Op: probewire.OpDevices}).Lines {
		kind, path, _ := strings.Cut(line, " ")
		switch {
		case kind == "c" && (slices.Contains(allowed, path) || path == "/dev/ptmx" || path == "/dev/console" || strings.HasPrefix(path, "/dev/pts/")):
		case own && kind == "c" && (path == "/dev/fuse" || path == "/dev/net/tun"):
			// Made by that kernel, of which they are part: nothing of the host is behind them.
		default:
			t.Errorf("there is a device %s", line)
		}
	}
	for _, path := range allowed[:len(allowed)-1] { // a terminal can be opened by who has one
		if got := r.ask(t, probewire.Request{Op: probewire.OpOpenDevice, Path: path}); got.Err != "" {
			t.Errorf("%s cannot be opened: %s", path, got.Err)
		}
	}
	// As a shell's "> /dev/null" does, with O_CREAT and O_TRUNC.
	if got := r.ask(t, probewire.Request{Op: probewire.OpWrite, Path: "/dev/null", Data: "x"}); got.Err != "" {
		t.Errorf("/dev/null cannot be written: %s", got.Err)
	}
}

// processes: PID 1 and what it started.
func (s *suite) processes(t *testing.T, r *rig) {
	pids := 0
	for _, name := range r.ask(t, probewire.Request{Op: probewire.OpList, Path: "/proc"}).Lines {
		if name[0] < '0' || name[0] > '9' {
			continue
		}
		pids++
		comm := r.ask(t, probewire.Request{Op: probewire.OpRead, Path: "/proc/" + name + "/comm"}).Text
		// The kernel cuts names at 15 bytes.
		if !strings.HasPrefix(filepath.Base(sandbox.DaemonPath), strings.TrimSpace(comm)) && strings.TrimSpace(comm) != "exe" {
			t.Errorf("process %s is %q", name, comm)
		}
	}
	if pids == 0 || pids > 3 {
		t.Errorf("%d processes are visible, want PID 1 alone", pids)
	}
	if got := r.ask(t, probewire.Request{Op: probewire.OpRead, Path: "/proc/1/comm"}).Text; !strings.HasPrefix(got, "skerry-sandboxd") {
		t.Errorf("PID 1 is %q", got)
	}
}

// sockets: those of the server are reached, and those made inside work.
func (s *suite) sockets(t *testing.T, r *rig) {
	if got := r.ask(t, s.dialControl()); got.Text != "ping\n" {
		t.Errorf("the server's socket: %+v", got)
	}
	for _, path := range []string{"/tmp/a.sock", sandbox.HomeDir + "/a.sock", "@inside"} {
		if got := r.ask(t, probewire.Request{Op: probewire.OpListen, Path: "unix", Data: path}); got.Err != "" {
			t.Errorf("a socket at %s: %s", path, got.Err)
		}
	}
	for _, path := range []string{"/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock"} {
		if got := r.ask(t, probewire.Request{Op: probewire.OpDial, Path: "unix", Data: path}); got.Err == "" {
			t.Errorf("the host's socket %s can be reached", path)
		}
	}
}

// dialControl is what code in the sandbox does to reach the server's socket.
func (s *suite) dialControl() probewire.Request {
	if s.h.Anchored {
		return probewire.Request{Op: probewire.OpDial, Path: "tcp", Data: fmt.Sprintf("127.0.0.1:%d", sandbox.BridgePort)}
	}
	return probewire.Request{Op: probewire.OpDial, Path: "unix", Data: sandbox.ControlSocket}
}

// syscalls: each attempt is refused before the kernel looks at its arguments.
func (s *suite) syscalls(t *testing.T, r *rig) {
	names := r.ask(t, probewire.Request{Op: probewire.OpSyscalls}).Lines
	if len(names) < 30 {
		t.Fatalf("only %d attempts", len(names))
	}
	own := ownKernel(t, r)
	if let := letThrough(t, r, names, own); len(let) > 0 {
		t.Errorf("let through: %v, want none", let)
	}
	// The flags of clone3 lie in memory, where no filter sees them: the C library must be sent to clone.
	got := r.ask(t, probewire.Request{Op: probewire.OpSyscall, Path: "clone3", Child: true})
	if want := int(unix.ENOSYS); got.Errno != want && !own {
		t.Errorf("clone3: %q, want it unknown", got.Err)
	}
}

// letThrough makes each attempt, and names the ones that were not refused.
func letThrough(t *testing.T, r *rig, names []string, own bool) []string {
	t.Helper()
	refusals := []int{int(unix.EPERM), int(unix.EACCES), int(unix.ENOSYS), int(unix.EROFS), int(unix.EAFNOSUPPORT)}
	var let []string
	for _, name := range names {
		if own && (name == "lower-oom-score" || name == "lower-core-limit") {
			continue // a number of that kernel's own; the host's is out of reach, and no dump of it gets there
		}
		got := r.ask(t, probewire.Request{Op: probewire.OpSyscall, Path: name, Child: true})
		absent := strings.HasPrefix(name, "write-") && got.Errno == int(unix.ENOENT) // gVisor has no such file
		if !slices.Contains(refusals, got.Errno) && !absent {
			t.Logf("%s: %q (errno %d)", name, got.Err, got.Errno)
			let = append(let, name)
		}
	}
	return let
}

// setuidAndNodes: a set-uid program and a device node that got into the workspace, as by a careless
// restore, give nothing.
func (s *suite) setuidAndNodes(t *testing.T, r *rig) {
	program, err := os.ReadFile(s.program)
	must(t, err)
	path := filepath.Join(r.thread, "workspace", "rootly")
	must(t, os.WriteFile(path, program, 0o755))
	must(t, os.Chmod(path, 0o755|os.ModeSetuid|os.ModeSetgid))
	r.push(t, sandbox.WorkspaceDir+"/rootly")
	got := r.ask(t, probewire.Request{Op: probewire.OpExec, Path: sandbox.WorkspaceDir + "/rootly", Data: `child {"op":"identity"}`})
	if uid := fmt.Sprint(r.spec.UID); !strings.Contains(got.Text, uid) || strings.Contains(got.Text, `"0"`) {
		t.Errorf("a set-uid program of root ran as %+v, want %s", got, uid)
	}
	disk := filepath.Join(r.thread, "workspace", "disk")
	must(t, unix.Mknod(disk, unix.S_IFBLK|0o666, int(rootDevice(t))))
	must(t, os.Chmod(disk, 0o666))
	if got := r.ask(t, probewire.Request{Op: probewire.OpOpenDevice, Path: sandbox.WorkspaceDir + "/disk"}); got.Err == "" {
		t.Error("the host's disk can be opened through a device node in the workspace")
	}
}

// rootDevice returns the number of the device under the host's root, or that of a common disk.
func rootDevice(t testing.TB) uint64 {
	info, err := os.Stat("/")
	must(t, err)
	if dev := info.Sys().(*syscall.Stat_t).Dev; unix.Major(dev) != 0 {
		return dev
	}
	return unix.Mkdev(8, 0)
}

// environment: nothing of the server's.
func (s *suite) environment(t *testing.T, r *rig) {
	text := r.ask(t, probewire.Request{Op: probewire.OpRead, Path: "/proc/1/environ"}).Text
	allowed := []string{"PATH", "HOME", "LANG", "HOSTNAME"}
	for entry := range strings.SplitSeq(strings.Trim(text, "\x00"), "\x00") {
		if name, _, _ := strings.Cut(entry, "="); !slices.Contains(allowed, name) {
			t.Errorf("PID 1 has %q in its environment", entry)
		}
	}
	want := sandbox.DaemonPath + "\x00serve\x00"
	if s.h.Anchored {
		want = sandbox.DaemonPath + "\x00" + anchor.Argument + "\x00serve\x00"
	}
	if args := r.ask(t, probewire.Request{Op: probewire.OpRead, Path: "/proc/1/cmdline"}).Text; args != want {
		t.Errorf("PID 1 was run as %q", args)
	}
	if dir := r.ask(t, probewire.Request{Op: probewire.OpReadlink, Path: "/proc/1/cwd"}).Text; dir != "/" {
		t.Errorf("PID 1 works in %q", dir)
	}
}
