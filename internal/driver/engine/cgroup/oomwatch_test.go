package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestOOMWatch: a kill is remembered when the group is gone, and is that of its sandbox alone.
func TestOOMWatch(t *testing.T) {
	t.Parallel()
	w, err := NewOOMWatch()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name string, kills int) string {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, fmt.Appendf(nil, "low 0\nhigh 0\nmax 7\noom 1\noom_kill %d\noom_group_kill 0\n", kills), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	w.add("a", write("a", 0))
	w.add("b", write("b", 0))
	w.add("before", write("before", 1))
	w.add("none", filepath.Join(dir, "none"))
	write("a", 2)
	for range 500 {
		if w.Killed("a") {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err := os.Remove(filepath.Join(dir, "a")); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]bool{"a": true, "b": false, "before": true, "none": false} {
		if w.Killed(id) != want {
			t.Errorf("%s: %v", id, !want)
		}
	}
	w.Forget("a")
	if w.Killed("a") {
		t.Error("a sandbox that is removed is remembered")
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	w.add("late", write("late", 0))
}
