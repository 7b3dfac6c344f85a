package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// hierarchy is one mounted cgroup file system.
type hierarchy struct {
	mount       string
	controllers []string // of version 1; none for version 2
}

// hierarchies are the cgroup file systems of this host. They do not change while it runs.
var hierarchies = sync.OnceValue(func() []hierarchy {
	mounts, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup", "cgroup2"))
	if err != nil {
		return nil
	}
	var out []hierarchy
	for _, m := range mounts {
		h := hierarchy{mount: m.Mountpoint}
		if m.FSType == "cgroup" {
			h.controllers = strings.Split(m.VFSOptions, ",")
		}
		out = append(out, h)
	}
	return out
})

// mountOf returns where a controller is mounted, and whether that is a hierarchy of version 1.
func mountOf(controller string) (mount string, v1 bool) {
	unified := ""
	for _, h := range hierarchies() {
		if len(h.controllers) == 0 && unified == "" {
			unified = h.mount
		}
		if slices.Contains(h.controllers, controller) {
			return h.mount, true
		}
	}
	return unified, false
}

// SwapIsAccounted reports whether the kernel can limit swap. A kernel that cannot refuses the setting.
func SwapIsAccounted() bool {
	mount, v1 := mountOf("memory")
	if !v1 {
		return true // version 2 always can, unless there is no swap at all
	}
	_, err := os.Stat(mount + "/memory.memsw.limit_in_bytes")
	return err == nil
}

// OOMKilled reports whether the kernel ended a process of the group for lack of memory. The group is
// there until its sandbox is removed, also after its end.
func OOMKilled(group string) bool {
	mount, v1 := mountOf("memory")
	file := "memory.events"
	if v1 {
		file = "memory.oom_control"
	}
	kills, err := count(filepath.Join(mount, group, file), "oom_kill")
	return err == nil && kills > 0
}

// maxParent bounds the name of a parent, in bytes.
const maxParent = 255

// CheckParent checks the name of a cgroup that is to hold those of sandboxes: "skerry.slice/a", or "" for the root.
func CheckParent(parent string) error {
	for part := range strings.SplitSeq(parent, "/") {
		ok := part != "" && part != "." && part != ".." && strings.Trim(part, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.@-") == ""
		if parent != "" && !ok || len(parent) > maxParent {
			return fmt.Errorf("cgroup parent %.300q: use letters, digits and _ . @ -, and / between names", parent)
		}
	}
	return nil
}

// Parent is the cgroup that holds those of sandboxes; "" is the root, where each weighs among the host's services.
type Parent string

// Of returns the group of a sandbox. A sandbox that was made before the server had a parent has its
// group at the root, and keeps it.
func (p Parent) Of(id string) string {
	group := path.Join("/", string(p), id)
	if root := path.Join("/", id); root != group && !Exists(group) && Exists(root) {
		return root
	}
	return group
}

// Exists reports whether this process sees the group.
func Exists(group string) bool {
	mount, _ := mountOf("cpu")
	info, err := os.Stat(filepath.Join(mount, group))
	return mount != "" && err == nil && info.IsDir()
}

// Used is the usage of a group's processes, including ended ones.
type Used struct {
	CPU     time.Duration // how long they ran
	Refused uint64        // new processes that the group's limit did not let be
	Memory  int64         // bytes that they have now, with the cache of their files; 0 where no controller counts them
	PIDs    int64         // processes and threads that it has now
}

// Usage reads it. fs.ErrNotExist: this process does not see the group.
func Usage(group string) (u Used, err error) {
	if u.CPU, err = cpuTime(group); err != nil {
		return u, err
	}
	mount, _ := mountOf("pids")
	if u.Refused, err = count(filepath.Join(mount, group, "pids.events"), "max"); err != nil {
		return u, err
	}
	if u.PIDs, err = number(filepath.Join(mount, group, "pids.current")); err != nil {
		return u, err
	}
	mount, v1 := mountOf("memory")
	file := "memory.current"
	if v1 {
		file = "memory.usage_in_bytes"
	}
	if u.Memory, err = number(filepath.Join(mount, group, file)); errors.Is(err, fs.ErrNotExist) {
		err = nil // the group is there, as was seen above
	}
	return u, err
}

func cpuTime(group string) (time.Duration, error) {
	mount, v1 := mountOf("cpuacct")
	if v1 {
		nanos, err := number(filepath.Join(mount, group, "cpuacct.usage"))
		return time.Duration(nanos), err
	}
	micros, err := count(filepath.Join(mount, group, "cpu.stat"), "usage_usec")
	return time.Duration(micros) * time.Microsecond, err //nolint:gosec // of 300,000 years
}

// number reads a file that holds one.
func number(file string) (int64, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
}

// count reads one line of a file of names and numbers.
func count(file, name string) (uint64, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), name+" "); ok {
			return strconv.ParseUint(value, 10, 64)
		}
	}
	return 0, fmt.Errorf("%s has no line %q", file, name)
}

// The weights that version 2 takes, and what one of usualWeight is called in version 1.
const (
	minWeight, usualWeight, maxWeight = 1, 100, 10_000
	usualShares                       = 1024
)

// Shares is what version 1 calls a weight of version 2.
func Shares(weight int) int { return max(2, weight*usualShares/usualWeight) }

// EngineShares is what to ask of an engine that knows the shares of version 1 alone, for a weight. With version 2 the
// runtime turns 2 to 262,144 shares into 1 to 10,000, so that 1,024 would be a weight of 39.
func EngineShares(weight int) int {
	if _, v1 := mountOf("cpu"); v1 {
		return Shares(weight)
	}
	return unifiedShares(weight)
}

// unifiedShares undoes runc's 1 + (shares-2)*9999/262142, which cuts off.
func unifiedShares(weight int) int { return 2 + ((weight-1)*262142+9998)/9999 }

// SetWeight changes what a group counts among those beside it when they want more CPU time than there is: 1 to
// 10,000, as in version 2. fs.ErrNotExist: it is not seen.
func SetWeight(group string, weight int) error {
	if weight < minWeight || weight > maxWeight {
		return fmt.Errorf("a weight of %d: want %d to %d", weight, minWeight, maxWeight)
	}
	mount, v1 := mountOf("cpu")
	file := "cpu.weight"
	if v1 {
		file, weight = "cpu.shares", Shares(weight)
	}
	// Not made when it is not there: only the kernel makes files of a cgroup.
	f, err := os.OpenFile(filepath.Join(mount, group, file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(strconv.Itoa(weight))
	return errors.Join(err, f.Close())
}

// Holds reports whether pid is a process of the group. It tells a pid that is in use by another
// process now from the recorded one.
func Holds(group string, pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(data)) {
		if strings.HasSuffix(strings.TrimSpace(line), group) {
			return true
		}
	}
	return false
}

// Thaw lets the processes of a frozen group run again: with cgroup version 1 not even SIGKILL reaches
// a frozen one.
func Thaw(group string) {
	mount, v1 := mountOf("freezer")
	if !v1 {
		return
	}
	// No such file: the sandbox is not there or not frozen, and then there is nothing to do.
	_ = os.WriteFile(filepath.Join(mount, group, "freezer.state"), []byte("THAWED"), 0)
}

// emptyWait bounds how long killed processes may take to leave their group. A process in an
// uninterruptible call can take long; then the group stays, and Remove says so.
const emptyWait = 5 * time.Second

// Remove ends what still runs in the group, in all hierarchies, and removes it. The runtime does so
// itself, unless it was killed at work. A group that is not there is no error.
//
// The root, which holds the whole machine, is refused.
func Remove(ctx context.Context, group string) error {
	if !named(group) {
		return errors.New("remove a cgroup: none is named")
	}
	ctx, cancel := context.WithTimeout(ctx, emptyWait)
	defer cancel()
	for {
		var left error
		for _, h := range hierarchies() {
			left = errors.Join(left, remove(filepath.Join(h.mount, group)))
		}
		if left == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return left
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// named reports whether a path is that of one cgroup, and not of them all.
func named(group string) bool { return path.Clean("/"+group) != "/" }

// remove kills the processes of a cgroup and of those below it, and removes them.
func remove(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := remove(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	procs, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for field := range strings.FieldsSeq(string(procs)) {
		if pid, err := strconv.Atoi(field); err == nil && pid > 1 {
			_ = unix.Kill(pid, unix.SIGKILL) // gone already is fine; still there shows at rmdir
		}
	}
	if err := unix.Rmdir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove a cgroup: %w", err)
	}
	return nil
}

// Controllers returns the version of control groups that limits are set in, and the controllers that are
// there, sorted. 0: this process sees none. A host with both has those of version 1.
func Controllers() (version int, names []string) {
	unified := ""
	for _, h := range hierarchies() {
		if len(h.controllers) == 0 {
			unified = h.mount
		}
		for _, c := range h.controllers {
			if mount, v1 := mountOf(c); v1 && mount == h.mount && isController(c) {
				names = append(names, c)
			}
		}
	}
	if slices.Contains(names, "memory") || unified == "" && len(names) > 0 {
		slices.Sort(names)
		return 1, slices.Compact(names)
	}
	if unified == "" {
		return 0, nil
	}
	data, err := os.ReadFile(filepath.Join(unified, "cgroup.controllers"))
	if err != nil {
		return 2, nil
	}
	names = strings.Fields(string(data))
	slices.Sort(names)
	return 2, names
}

// known are the controllers of version 1; the other options of its mounts are not controllers.
var known = []string{"blkio", "cpu", "cpuacct", "cpuset", "devices", "freezer", "hugetlb", "memory", "net_cls", "net_prio", "perf_event", "pids", "rdma"}

func isController(option string) bool { return slices.Contains(known, option) }
