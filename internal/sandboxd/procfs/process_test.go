package procfs

import (
	"os"
	"slices"
	"strconv"
	"testing"
)

// A process chooses its own name, which stands in the middle of the line.
func TestParseStat(t *testing.T) {
	for line, want := range map[string]Process{
		"5 (bash) S 3 5 5 0":            {PID: 5, Parent: 3},
		"5 (a) S 1 1 (b) Z 42 5 5":      {PID: 5, Parent: 42, Zombie: true},
		"5 ( ) ) R 7 ) D 9 8":           {PID: 5, Parent: 9},
		"5 (new\nline) X 2 1":           {PID: 5, Parent: 2, Zombie: true},
		"5 (" + "x) T 1 (" + ") I 6 0 ": {PID: 5, Parent: 6},
		"5 (bun) S 1 5 5 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 17 0 99": {PID: 5, Parent: 1, Threads: 17},
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
	procs := []Process{{PID: 2, Parent: 1}, {PID: 3, Parent: 2}, {PID: 4, Parent: 3}, {PID: 5, Parent: 1}, {PID: 6, Parent: 5}}
	got := Descendants(procs, 2, 6)
	slices.Sort(got)
	if !slices.Equal(got, []int{3, 4}) {
		t.Errorf("%v", got)
	}
	all, err := Scan()
	if err != nil || !slices.ContainsFunc(all, func(p Process) bool { return p.PID == os.Getpid() && p.Parent == os.Getppid() }) {
		t.Errorf("%v, %s is not among %d", err, strconv.Itoa(os.Getpid()), len(all))
	}
}
