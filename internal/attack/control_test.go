package attack

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/attack/wire"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/hardening"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/ociconfig"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// controlUID is the uid of the containers of the controls: far from those of workspaces.
const controlUID = 1_900_000

// controlCgroup is above those of the containers.
const controlCgroup = "/skerry-attack"

// pid1Path is the program that makes the attempt.
const pid1Path = "/usr/bin/control"

// rig is what a container of a control is made of, before it starts. Guards are taken away from it.
type rig struct {
	t     testing.TB
	spec  *specs.Spec
	dir   string     // its folder on the host
	facts wire.Facts // what the attempt is told
	files []*os.File // descriptors left open
	owner int        // of /mnt/user-data
}

// TestControls: with its guards taken away each attack succeeds, and with any one of them back it does
// not. So what the table names is what holds it off.
func TestControls(t *testing.T) {
	needPlace(t, "oci", "runc")
	need(t, exec.Command("docker", "info").Run() == nil, "a docker daemon") // whose socket one of them reaches
	t.Cleanup(func() {
		for _, pattern := range []string{"/sys/fs/cgroup/*" + controlCgroup, "/sys/fs/cgroup" + controlCgroup} {
			empty, err := filepath.Glob(pattern)
			must(t, err)
			for _, dir := range empty {
				must(t, removeCgroup(dir))
			}
		}
	})
	facts := hostFacts(t)
	maps.Copy(facts, hostVictim(t))
	facts["api"], facts["hosts-abstract"] = facts["port"], facts["abstract"]
	facts["image-file"], facts["skill-file"] = "/usr/bin/used", sandbox.SkillsDir+"/used"
	maps.Copy(facts, theOutside(t))
	for _, a := range All() {
		t.Run(a.Name, func(t *testing.T) {
			t.Parallel()
			out, err := without(t, a, a.Guards, facts)
			must(t, err)
			if out.Refused != "" && contains(a.Absent, out.Refused) {
				recordControl(t, a.Name, false, out.Refused, out.Evidence)
				return
			}
			recordControl(t, a.Name, out.Refused == "", out.Refused, out.Evidence)
			t.Logf("without %v: %s %s", a.Guards, out.Refused, out.Evidence)
			for i, g := range a.Guards {
				out, err := without(t, a, slices.Delete(slices.Clone(a.Guards), i, i+1), facts)
				must(t, err)
				if out.Refused == "" && (cgroupV1() || !contains(a.OnV1, g)) {
					strict(t)("it succeeds also with the guard %q: that one holds nothing off: %s", g, out.Evidence)
				}
			}
		})
	}
}

// cgroupV1 reports whether the kernel of this machine has hierarchies of cgroup v1.
func cgroupV1() bool {
	var fs unix.Statfs_t
	return unix.Statfs("/sys/fs/cgroup", &fs) == nil && fs.Type != unix.CGROUP2_SUPER_MAGIC
}

// removeCgroup removes a cgroup with those below it. Those of processes that have just ended stay busy for a moment.
func removeCgroup(dir string) error {
	var err error
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		below, e := filepath.Glob(filepath.Join(dir, "*/cgroup.procs"))
		err = e
		for _, procs := range below {
			err = errors.Join(err, removeCgroup(filepath.Dir(procs)))
		}
		if err = errors.Join(err, os.Remove(dir)); err == nil {
			return nil
		}
	}
	return err
}

// strict complains in CI. Elsewhere a kernel may leave to everybody what the table thinks it guards, such as its log.
func strict(t *testing.T) func(string, ...any) {
	if os.Getenv("CI") != "" || *update {
		return t.Errorf
	}
	return t.Logf
}

const controlTimeout = 2 * time.Minute

// without makes an attack under runc in a container that is a sandbox but for some guards.
func without(t *testing.T, a Attack, guards []string, facts wire.Facts) (wire.Outcome, error) {
	t.Helper()
	r := newRig(t, maps.Clone(facts))
	for _, g := range guards {
		takeAway(t, g)(r)
	}
	r.spec.Process.Args = append([]string{pid1Path, "control", a.Name}, r.facts.Args()...)
	out, err := r.run(t)
	var ended *exec.ExitError
	if a.Name == "kill-pid1" && errors.As(err, &ended) && ended.ExitCode() > 128 {
		// Go takes all signals but some of libc's own, and one of those ended PID 1 before the attempt could say so.
		return wire.Outcome{Evidence: fmt.Sprintf("PID 1 ended by signal %d", ended.ExitCode()-128)}, nil
	}
	return out, err
}

// run runs the container to its end.
func (r *rig) run(t *testing.T) (wire.Outcome, error) {
	t.Helper()
	must(t, os.Chown(filepath.Join(r.dir, "user-data"), r.owner, r.owner))
	config, err := json.Marshal(r.spec)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(r.dir, "config.json"), config, 0o600))
	ctx, cancel := context.WithTimeout(context.Background(), controlTimeout)
	defer cancel()
	id := filepath.Base(r.dir)
	root := filepath.Join(r.dir, "runc")
	var out, complaints bytes.Buffer
	cmd := exec.CommandContext(ctx, "runc", "--root", root, "run", "--preserve-fds", fmt.Sprint(len(r.files)), "--bundle", r.dir, id)
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles, cmd.WaitDelay = &out, &complaints, r.files, time.Second
	err = cmd.Run()
	for _, f := range r.files {
		f.Close()
	}
	if gone := exec.Command("runc", "--root", root, "delete", "--force", id).Run(); gone != nil {
		err = errors.Join(err, fmt.Errorf("delete the container: %w", gone))
	}
	if err != nil {
		return wire.Outcome{}, fmt.Errorf("%w: %s%s", err, out.String(), complaints.String())
	}
	return readOutcome(t, out.String(), complaints.String()), nil
}

// newRig makes a container just as a driver does.
func newRig(t *testing.T, facts wire.Facts) *rig {
	t.Helper()
	dir := openDir(t)
	r := &rig{t: t, dir: dir, facts: facts}
	for _, point := range append(hardening.MountPoints(), "/opt/skerry", "/usr/bin", "/run") {
		must(t, os.MkdirAll(filepath.Join(dir, "rootfs", point), 0o755))
	}
	must(t, os.Chmod(filepath.Join(dir, "rootfs"), 0o755))                                     //nolint:gosec // a root file system
	must(t, os.Chmod(filepath.Join(dir, "rootfs/tmp"), 0o777|os.ModeSticky))                   //nolint:gosec // runc copies the mode of what a tmpfs covers
	must(t, os.WriteFile(filepath.Join(dir, "rootfs/opt/skerry/skerry-sandboxd"), nil, 0o755)) //nolint:gosec // a mount point
	for _, own := range []string{"user-data/workspace", "user-data/uploads", "user-data/outputs"} {
		must(t, os.MkdirAll(filepath.Join(dir, own), 0o755))
		must(t, os.Chown(filepath.Join(dir, own), controlUID, controlUID))
	}
	plant(t, filepath.Join(dir, "user-data"), facts)
	for _, shown := range []string{"skills", "code-api", "run"} {
		must(t, os.MkdirAll(filepath.Join(dir, shown), 0o755))
	}
	for _, name := range []string{"bridge.sock", "control.sock"} {
		must(t, os.WriteFile(filepath.Join(dir, "run", name), nil, 0o600))
	}
	for _, used := range []string{"rootfs/usr/bin/used", "skills/used"} {
		must(t, os.WriteFile(filepath.Join(dir, used), []byte("its own"), 0o644)) //nolint:gosec // all may read it
	}
	daemon := filepath.Join(dir, "daemon")
	data, err := os.ReadFile(filepath.Join(bin, "probe"))
	must(t, err)
	// A program that runs is busy and cannot be written for that alone: PID 1 runs from another copy.
	for _, program := range []string{daemon, filepath.Join(dir, "rootfs", pid1Path)} {
		must(t, os.WriteFile(program, data, 0o755)) //nolint:gosec // a program
	}
	seccomp, err := hardening.SeccompOCI(hardening.Runtime{Name: "runc"})
	must(t, err)
	r.spec = ociconfig.New(ociconfig.Input{
		Spec: sandbox.Spec{
			UID: controlUID, Daemon: daemon, Hostname: "control",
			Limits: sandbox.Limits{MemoryBytes: 256 << 20, CPUMillis: 2000, PIDs: 128, OpenFiles: 1024, FileBytes: 64 << 20, TmpBytes: 16 << 20, DiskBytes: 1 << 20},
			Mounts: []sandbox.Mount{
				{Source: filepath.Join(dir, "user-data"), Target: sandbox.UserDataDir},
				{Source: filepath.Join(dir, "skills"), Target: sandbox.SkillsDir, ReadOnly: true},
				{Source: filepath.Join(dir, "code-api"), Target: sandbox.CodeAPIDir, ReadOnly: true},
				{Source: filepath.Join(dir, "run"), Target: sandbox.RunDir, ReadOnly: true},
			},
		},
		Runtime: hardening.Runtime{Name: "runc"}, Rootfs: filepath.Join(dir, "rootfs"),
		Cgroup: controlCgroup + "/" + filepath.Base(dir), Binding: ociconfig.BindAlone, Seccomp: seccomp,
	})
	return r
}

// takeAway returns what takes a guard away.
func takeAway(t testing.TB, guard string) func(*rig) {
	t.Helper()
	if name, ok := strings.CutPrefix(guard, capabilityGuard); ok {
		return func(r *rig) { r.give("CAP_" + name) }
	}
	if f := removals[guard]; f != nil {
		return f
	}
	t.Fatalf("no control knows how to take away the guard %q", guard)
	return nil
}

// removals says for each guard how a container is made without it.
var removals = map[string]func(*rig){
	guardSeccomp:  func(r *rig) { r.spec.Linux.Seccomp = nil },
	guardFilter:   func(r *rig) { r.facts["without-filter"] = "1" },
	guardDumpable: func(r *rig) { r.facts["without-dumpable"] = "1" },
	guardNotRoot:  func(r *rig) { r.spec.Process.User = specs.User{} },
	guardUID:      func(r *rig) { r.spec.Process.User = specs.User{UID: victimUID, GID: victimUID} },
	guardOwner:    func(r *rig) { r.owner = controlUID },
	guardPIDs:     func(r *rig) { r.share(specs.PIDNamespace) },
	guardNet:      func(r *rig) { r.share(specs.NetworkNamespace) },
	guardIPC:      func(r *rig) { r.share(specs.IPCNamespace) },
	guardCgroupNS: func(r *rig) { r.share(specs.CgroupNamespace) },
	guardMasks:    func(r *rig) { r.spec.Linux.MaskedPaths = nil },
	guardReadonly: func(r *rig) { r.spec.Linux.ReadonlyPaths = nil },
	guardRORoot:   func(r *rig) { r.spec.Root.Readonly = false },
	guardROMounts: func(r *rig) { r.drop("ro") },
	guardNosuid:   func(r *rig) { r.drop("nosuid") },
	guardNodev:    func(r *rig) { r.drop("nodev") },
	// The filter of execs cannot be without it.
	guardNoNewPrivs: func(r *rig) { r.spec.Process.NoNewPrivileges, r.facts["without-filter"] = false, "1" },
	guardCoreLimit:  func(r *rig) { r.spec.Process.Rlimits = withoutCore(r.spec.Process.Rlimits) },
	guardRoot:       func(r *rig) { r.bind(filepath.Dir(r.facts["canary"])); r.bind(filepath.Dir(r.facts["file"])) },
	guardLoopback:   func(r *rig) { r.join(specs.NetworkNamespace, "/proc/"+r.facts["outside"]+"/ns/net") },
	guardNoSocket:   func(r *rig) { r.mount("/var/run/docker.sock", "/run/docker.sock") },
	guardDevices:    func(r *rig) { r.spec.Linux.Resources.Devices = []specs.LinuxDeviceCgroup{{Allow: true, Access: "rwm"}} },
	guardNoNodes:    addNode,
	guardBounding: func(r *rig) {
		r.spec.Process.Capabilities.Bounding = append(r.spec.Process.Capabilities.Bounding, "CAP_NET_RAW")
	},
	guardDescriptors: leaveOpen,
	guardInodes: func(r *rig) {
		r.mount(r.facts["used-image"], r.facts["image-file"])
		r.mount(r.facts["used-skill"], r.facts["skill-file"])
	},
}

func (r *rig) give(name string) {
	c := r.spec.Process.Capabilities
	for _, set := range []*[]string{&c.Bounding, &c.Effective, &c.Permitted, &c.Inheritable, &c.Ambient} {
		*set = append(*set, name)
	}
}

// share takes a namespace of its own away: it is the host's.
func (r *rig) share(kind specs.LinuxNamespaceType) {
	r.spec.Linux.Namespaces = slices.DeleteFunc(r.spec.Linux.Namespaces, func(n specs.LinuxNamespace) bool { return n.Type == kind })
}

// drop takes an option away from all mounts.
func (r *rig) drop(option string) {
	for i, m := range r.spec.Mounts {
		r.spec.Mounts[i].Options = slices.DeleteFunc(slices.Clone(m.Options), func(o string) bool { return o == option })
	}
}

// bind shows a folder of the host under its own path.
func (r *rig) bind(path string) { r.mount(path, path) }

func (r *rig) mount(source, target string) {
	r.spec.Mounts = append(r.spec.Mounts, specs.Mount{Type: "bind", Source: source, Destination: target, Options: []string{"bind", "ro"}})
}

// join puts the container into a namespace that is there.
func (r *rig) join(kind specs.LinuxNamespaceType, path string) {
	for i, n := range r.spec.Linux.Namespaces {
		if n.Type == kind {
			r.spec.Linux.Namespaces[i].Path = path
		}
	}
}

// addNode makes the node of the kernel's log.
func addNode(r *rig) {
	mode := os.FileMode(0o666)
	r.spec.Linux.Devices = append(r.spec.Linux.Devices, specs.LinuxDevice{Path: "/dev/kmsg", Type: "c", Major: 1, Minor: 11, FileMode: &mode})
}

func withoutCore(limits []specs.POSIXRlimit) []specs.POSIXRlimit {
	return slices.DeleteFunc(limits, func(l specs.POSIXRlimit) bool { return l.Type == "RLIMIT_CORE" })
}

// leaveOpen leaves a folder of the host and a socket open, as a careless runtime would.
func leaveOpen(r *rig) {
	dir, err := os.Open("/")
	must(r.t, err)
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(r.t, err)
	r.files = append(r.files, dir, os.NewFile(uintptr(pair[0]), "socket"), os.NewFile(uintptr(pair[1]), "socket"))
}
