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
