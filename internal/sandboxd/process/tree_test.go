package process

import (
	"os"
	"slices"
	"strconv"
	"testing"
)

// A process chooses its own name, which stands in the middle of the line.
func TestParseStat(t *testing.T) {
	for line, want := range map[string]procStat{
		"5 (bash) S 3 5 5 0":            {5, 3, false},
		"5 (a) S 1 1 (b) Z 42 5 5":      {5, 42, true},
		"5 ( ) ) R 7 ) D 9 8":           {5, 9, false},
		"5 (new\nline) X 2 1":           {5, 2, true},
		"5 (" + "x) T 1 (" + ") I 6 0 ": {5, 6, false},
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
