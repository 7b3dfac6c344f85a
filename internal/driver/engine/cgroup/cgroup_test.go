package cgroup

import "testing"

// TestNamed: what holds the whole machine is not removed. Remove itself is not tried with it: it would end the machine.
func TestNamed(t *testing.T) {
	for path, want := range map[string]bool{"": false, "/": false, ".": false, "/..": false, "a/..": false, "/skerry-1": true, "/skerry/skerry-1": true, "docker/1": true} {
		if got := named(path); got != want {
			t.Errorf("%q: %t, want %t", path, got, want)
		}
	}
}

// TestUnifiedShares: runc makes of the shares the weight that was asked for.
func TestUnifiedShares(t *testing.T) {
	t.Parallel()
	for weight := minWeight; weight <= maxWeight; weight++ {
		shares := unifiedShares(weight)
		if got := 1 + (shares-2)*9999/262142; got != weight || shares < 2 || shares > 262144 {
			t.Fatalf("%d: %d shares, which are a weight of %d", weight, shares, got)
		}
	}
}
