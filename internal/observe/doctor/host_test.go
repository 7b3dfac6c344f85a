package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// said looks that the lines of a check are as wanted: "state name|part of the detail or fix".
func said(t *testing.T, what string, r *Report, want ...string) {
	t.Helper()
	lines := r.end()
	if len(lines) != len(want) {
		t.Errorf("%s: %d lines, want %d: %+v", what, len(lines), len(want), lines)
		return
	}
	for i, l := range lines {
		head, part, _ := strings.Cut(want[i], "|")
		if got := strings.TrimSpace(string(l.State) + " " + l.Name); got != head || !strings.Contains(l.Detail+" "+l.Fix, part) {
			t.Errorf("%s: line %d is %+v, want %s", what, i, l, want[i])
		}
		if (l.State == OK) == (l.Fix != "") {
			t.Errorf("%s: line %d is %s and says to do %q", what, i, l.State, l.Fix)
		}
	}
}

func TestKernel(t *testing.T) {
	r := &Report{}
	kernel(r, []feature{
		{name: "one", there: func() bool { return true }},
		{"two", "9.9", Problem, "nothing goes", func() bool { return false }},
	})
	said(t, "kernel", r, "ok|with one", "problem two|Linux 9.9")
	r = &Report{}
	Kernel(t.Context(), r) // where the tests run, sandboxes run
	if lines := r.end(); !Serves(lines) || !strings.Contains(lines[0].Detail, "seccomp") {
		t.Errorf("this kernel: %+v", lines)
	}
}

// TestWatchers: sandboxes with a user namespace share root's inotify instances, of which most hosts have 128.
func TestWatchers(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "max_user_instances")
	for content, want := range map[string][]string{
		"128\n": {"warning inotify|fs.inotify.max_user_instances="}, "1048576\n": nil, "": nil,
	} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		r := &Report{}
		watchers(r, file)
		said(t, content, r, want...)
	}
	r := &Report{}
	watchers(r, file+"-none")
	said(t, "no inotify", r)
}

func TestCgroups(t *testing.T) {
	for _, c := range []struct {
		version int
		names   string
		swap    bool
		want    []string
	}{
		{0, "", true, []string{"problem|/sys/fs/cgroup"}},
		{2, "cpu memory pids", true, []string{"ok|version 2"}},
		{1, "cpu pids", true, []string{"problem memory|cgroup_enable=memory"}},
		{1, "cpu memory pids", false, []string{"ok|version 1", "warning swap|swapaccount=1"}},
	} {
		r := &Report{}
		cgroups(r, c.version, strings.Fields(c.names), c.swap)
		said(t, c.names, r, c.want...)
	}
}

func TestFolder(t *testing.T) {
	dir := t.TempDir()
	check := func(what, path string, want ...string) {
		t.Helper()
		r := &Report{}
		Folder(r, path)
		var lines []Line
		for _, l := range r.end() { // how much is free is not this test's business, nor who may pass through its folders
			if l.Name != "space" && l.Name != "way" {
				lines = append(lines, l)
			}
		}
		said(t, what, &Report{lines: lines}, want...)
	}
	file := filepath.Join(dir, "file")
	good := filepath.Join(dir, "good")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(good, 0o711); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() != 0 { // then every folder made here is a stranger's
		check("mine", good, "warning owner|chown root")
		return
	}
	check("good", good, "ok|mode 0711")
	check("not there", filepath.Join(good, "a/b"), "ok|is not there yet")
	check("a file", file, "problem|is no folder")
	check("below a file", filepath.Join(file, "data"), "problem|cannot be reached")
	if err := os.Chmod(good, 0o777); err != nil {
		t.Fatal(err)
	}
	check("open", good, "warning mode|chmod 0711")
	if err := os.Chown(good, 1234, -1); err != nil {
		t.Fatal(err)
	}
	check("a stranger's", good, "warning owner|uid 1234")
	shut := filepath.Join(dir, "shut")
	if err := os.MkdirAll(filepath.Join(shut, "data"), 0o700); err != nil {
		t.Fatal(err)
	}
	r := &Report{}
	passage(r, filepath.Join(shut, "data"))
	if lines := r.end(); len(lines) == 0 || !strings.Contains(lines[0].Fix, "chmod o+x "+shut) {
		t.Errorf("no way: %+v", lines)
	}
}

func TestClock(t *testing.T) {
	now := time.Date(2031, 2, 3, 4, 5, 6, 0, time.UTC)
	for _, c := range []struct {
		now                 time.Time
		synchronised, known bool
		want                string
	}{
		{now, true, true, "ok|synchronised"},
		{now, false, true, "warning|is not synchronised"},
		{now, false, false, "warning|2031-02-03 04:05:06"},
		{time.Unix(0, 0), true, true, "problem|1970"},
	} {
		r := &Report{}
		clock(r, c.now, c.synchronised, c.known)
		said(t, c.want, r, c.want)
	}
	r := &Report{}
	Clock(t.Context(), r)
	if lines := r.end(); len(lines) != 1 {
		t.Error(lines)
	}
}
