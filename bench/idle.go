package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// settle is how long sandboxes are left alone before they are measured: garbage collectors and the
// kernel's own lists come to rest.
const settle = 10 * time.Second

// idle starts sandboxes, runs nothing in them, and says what each costs this machine beyond its image.
//
// The figure is a sum for all sandboxes, divided by their number. It adds up the proportional set size of
// their processes, that of their shims, kernel memory charged to their control groups, and the server's
// growth. The processes are sandboxd and its waiting supervisors; shared pages of the program count once.
// Beside the figure stands how much less memory the machine has. That includes memory that no control group
// is charged for, and all other programs that ran meanwhile.
func idle(_ context.Context, b *bench) error {
	server := b.cmd.Process.Pid
	before, err := takeStock(b.data, server)
	if err != nil {
		return err
	}
	for i := range b.sandboxes {
		thread := fmt.Sprintf("idle-%d", i)
		b.uses(thread)
		if _, err := b.post(http.MethodPut, "/api/threads/"+thread+"/sandbox", map[string]any{"wait_s": 60}); err != nil {
			return err
		}
	}
	time.Sleep(settle)
	after, err := takeStock(b.data, server)
	if err != nil {
		return err
	}
	n := after.sandboxes - before.sandboxes
	if n != b.sandboxes {
		return fmt.Errorf("%d sandboxes run, want %d", n, b.sandboxes)
	}
	each := func(now, then int64) float64 { return float64(now-then) / float64(n) / (1 << 20) }
	inside, shims := each(after.inside, before.inside), each(after.shims, before.shims)
	kernel, growth := each(after.kernel, before.kernel), each(after.server, before.server)
	row := func(name string, v float64) {
		b.row("MiB", sample{Name: name, N: n, P50: v, P99: v}, nil, middle, bar{}, "")
	}
	row("an idle sandbox, driver "+b.driver, inside+shims+kernel+growth)
	row("  sandboxd and its supervisors", inside)
	row("  shim", shims)
	row("  kernel", kernel)
	row("  server", growth)
	row("what the machine has less", each(before.available, after.available))
	return nil
}

// stock is what is in use, in bytes.
type stock struct {
	sandboxes                                int
	inside, shims, kernel, server, available int64
}

// takeStock counts the sandboxes that have something of the folder data mounted.
func takeStock(data string, server int) (stock, error) {
	var s stock
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return s, err
	}
	shims, groups := map[string]bool{}, map[string]bool{}
	for _, dir := range dirs {
		comm, err := os.ReadFile(dir + "/comm")
		if err != nil || strings.TrimSpace(string(comm)) != "skerry-sandboxd" {
			continue
		}
		mounts, err := os.ReadFile(dir + "/mountinfo")
		if err != nil || !strings.Contains(string(mounts), data) {
			continue // another server's, or gone
		}
		s.inside += pss(dir)
		if group := memoryGroup(dir); group != "" && !groups[group] {
			groups[group] = true
			s.sandboxes++
			s.kernel += kernelBytes(group)
		}
		parent := "/proc/" + field(dir+"/status", "PPid:")
		if comm, err := os.ReadFile(parent + "/comm"); err == nil && strings.HasPrefix(string(comm), "containerd-shim") {
			shims[parent] = true
		}
	}
	for shim := range shims {
		s.shims += pss(shim)
	}
	s.server = pss(fmt.Sprintf("/proc/%d", server))
	s.available = kilobytes(field("/proc/meminfo", "MemAvailable:"))
	if s.available == 0 || s.server == 0 {
		return s, errors.New("the kernel does not tell what is in use (run as root)")
	}
	return s, nil
}

func pss(dir string) int64 { return kilobytes(field(dir+"/smaps_rollup", "Pss:")) }

// field returns the first word behind a name in a file of lines, or "".
func field(file, name string) string {
	data, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == name {
			return f[1]
		}
	}
	return ""
}

func kilobytes(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0
	}
	return n << 10
}

// memoryGroup is the folder of a process's control group for memory.
func memoryGroup(dir string) string {
	data, err := os.ReadFile(dir + "/cgroup")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(data)) {
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		for _, root := range []string{"/sys/fs/cgroup/memory", "/sys/fs/cgroup"} {
			if len(part) == 3 && (part[1] == "memory" || part[1] == "") {
				if _, err := os.Stat(filepath.Join(root, part[2], "memory.stat")); err == nil {
					return filepath.Join(root, part[2])
				}
			}
		}
	}
	return ""
}

// kernelBytes is what a control group is charged for the kernel's own memory: stacks, page tables, sockets, inodes.
func kernelBytes(group string) int64 {
	if data, err := os.ReadFile(filepath.Join(group, "memory.kmem.usage_in_bytes")); err == nil { // version 1
		n, _ := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64) //nolint:errcheck // 0 then
		return n
	}
	n, _ := strconv.ParseInt(field(filepath.Join(group, "memory.stat"), "kernel"), 10, 64) //nolint:errcheck // 0 then
	return n
}
