package process

import (
	"maps"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"
)

// A process chooses its own name, which stands in the middle of the line.
func TestParseStat(t *testing.T) {
	for line, want := range map[string]procStat{
		"5 (bash) S 3 5 5 0":            {pid: 5, parent: 3},
		"5 (a) S 1 1 (b) Z 42 5 5":      {pid: 5, parent: 42, zombie: true},
		"5 ( ) ) R 7 ) D 9 8":           {pid: 5, parent: 9},
		"5 (new\nline) X 2 1":           {pid: 5, parent: 2, zombie: true},
		"5 (" + "x) T 1 (" + ") I 6 0 ": {pid: 5, parent: 6},
		"5 (bun) S 1 5 5 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 17 0 99": {pid: 5, parent: 1, threads: 17},
	} {
		if got, ok := parseStat(5, []byte(line)); !ok || got != want {
			t.Errorf("%q: %+v, %v", line, got, ok)
		}
	}
	for _, line := range []string{"", "5", "5 (x", "5 (x)", "5 (x) S", "5 (x) S x 1"} {
		if got, ok := parseStat(5, []byte(line)); ok {
			t.Errorf("%q: %+v", line, got)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("5 (bash) S 3 5 5 0"))
	f.Fuzz(func(_ *testing.T, line []byte) { parseStat(1, line) })
}

func TestDescendants(t *testing.T) {
	procs := []procStat{{pid: 2, parent: 1}, {pid: 3, parent: 2}, {pid: 4, parent: 3}, {pid: 5, parent: 1}, {pid: 6, parent: 5}}
	got := descendants(procs, 2, 6)
	slices.Sort(got)
	if !slices.Equal(got, []int{3, 4}) {
		t.Errorf("%v", got)
	}
	all, err := scanProc()
	if err != nil || !slices.ContainsFunc(all, func(p procStat) bool { return p.pid == os.Getpid() && p.parent == os.Getppid() }) {
		t.Errorf("%v, %s is not among %d", err, strconv.Itoa(os.Getpid()), len(all))
	}
}

// TestTasks: threads count as processes do, and what has ended does not.
func TestTasks(t *testing.T) {
	b := newBed(t)
	few := b.start(shell("sleep 100 & sleep 100 & wait"))
	many := b.start(request("python3", "-c", `
import threading, time
for _ in range(9): threading.Thread(target=time.sleep, args=(100,), daemon=True).start()
time.sleep(100)`))
	want := map[string]int{few.ID(): 3, many.ID(): 10}
	tasks := func() map[string]int {
		got, err := b.m.Tasks()
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	got := tasks()
	for deadline := time.Now().Add(30 * time.Second); !maps.Equal(got, want) && time.Now().Before(deadline); got = tasks() {
		time.Sleep(10 * time.Millisecond)
	}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for _, e := range []*Exec{few, many} {
		if err := e.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := tasks(); len(got) != 0 {
		t.Errorf("after their end: %v", got)
	}
}
