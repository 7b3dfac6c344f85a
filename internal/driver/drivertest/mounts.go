package drivertest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/driver/drivertest/probewire"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// mountsBelow: a file system that is mounted below a mount's source is either not seen inside, or has
// the same flags: it must not stay writable under a read-only mount.
func (s *suite) mountsBelow(t *testing.T) {
	need(t, s.caps.Isolated, "Isolated")
	r := s.rig(t)
	for _, dir := range []string{r.skills + "/below", r.thread + "/workspace/below"} {
		must(t, os.Mkdir(dir, 0o755))
		must(t, unix.Mount("drivertest", dir, "tmpfs", 0, "size=1m,mode=0777"))
		t.Cleanup(func() { must(t, unix.Unmount(dir, unix.MNT_DETACH)) })
		must(t, os.WriteFile(dir+"/file", []byte("below"), 0o666))
		must(t, os.Chmod(dir+"/file", 0o666))
	}
	program, err := os.ReadFile(s.program)
	must(t, err)
	must(t, unix.Mount("", r.thread+"/workspace/below", "", unix.MS_REMOUNT, "size=32m"))
	rootly := filepath.Join(r.thread, "workspace", "below", "rootly")
	must(t, os.WriteFile(rootly, program, 0o755))
	must(t, os.Chmod(rootly, 0o755|os.ModeSetuid))
	r.create(t)
	for _, path := range []string{"/below/file", "/below/new"} {
		if got := r.ask(t, probewire.Request{Op: probewire.OpWrite, Path: sandbox.SkillsDir + path, Data: "x"}); got.Err == "" {
			t.Errorf("%s could be written under a read-only mount", path)
		}
	}
	got := r.ask(t, probewire.Request{Op: probewire.OpExec, Path: sandbox.WorkspaceDir + "/below/rootly", Data: `child {"op":"identity"}`})
	if got.Err == "" && strings.Contains(got.Text, `"0"`) {
		t.Errorf("a set-uid program below a mount ran as root: %s", got.Text)
	}
	mounts := r.ask(t, probewire.Request{Op: probewire.OpRead, Path: "/proc/self/mounts"}).Text
	for line := range strings.Lines(mounts) {
		f := strings.Fields(line)
		if len(f) < 4 || !strings.HasSuffix(f[1], "/below") {
			continue
		}
		flags := strings.Split(f[3], ",")
		if !slices.Contains(flags, "nosuid") || !slices.Contains(flags, "nodev") {
			t.Errorf("%s is mounted with %s, want nosuid and nodev", f[1], f[3])
		}
	}
}

// hostPrograms: with the host's /usr as root file system, programs that need shared libraries, links
// into /usr, names of users and of hosts work.
func (s *suite) hostPrograms(t *testing.T) {
	need(t, s.caps.HostRootfs && s.caps.Isolated, "HostRootfs")
	r := s.rig(t)
	if r.spec.Image != "" {
		t.Skip("capability HostRootfs: this run is about an image")
	}
	r.create(t)
	for script, want := range map[string]string{
		"/usr/bin/id -un":                                "agent",
		"/usr/bin/id -gn":                                "agent",
		"/bin/cat /etc/hostname":                         r.spec.Hostname,
		"/usr/bin/getent hosts " + r.spec.Hostname:       "127.0.1.1       " + r.spec.Hostname,
		"/usr/bin/getent hosts localhost":                "127.0.0.1       localhost",
		"/bin/sh /mnt/user-data/workspace/script.sh":     "ran in " + sandbox.WorkspaceDir,
		"/usr/bin/wc -c /etc/resolv.conf":                "0 /etc/resolv.conf",
		"/usr/bin/test ! -e /etc/shadow":                 "",
		"/usr/bin/test ! -e /root/.ssh":                  "",
		"/usr/bin/env -i /usr/bin/sort --version":        "sort (GNU coreutils)",
		"/usr/bin/find /usr/bin/env -newermt 1980-01-01": "/usr/bin/env",
	} {
		must(t, os.WriteFile(filepath.Join(r.thread, "workspace", "script.sh"), []byte("cd /mnt/user-data/workspace && echo ran in $PWD > /dev/stdout\n"), 0o644))
		program, args, _ := strings.Cut(script, " ")
		got := r.ask(t, probewire.Request{Op: probewire.OpExec, Path: program, Data: args})
		if got.Err != "" || !strings.HasPrefix(got.Text, want) {
			t.Errorf("%s: %q %s, want %q", script, got.Text, got.Err, want)
		}
	}
}
