package skills

import (
	"os"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/skills/format"
)

// TestGrowth: a user who replaces skills over and over fills no disk, and gets the same again an hour later.
func TestGrowth(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	now := time.Now().Add(time.Minute) // so that nothing comes back while the test runs
	for range maxGrowth / format.MaxBytes {
		if err := h.growth.take(anna, format.MaxBytes, now); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := h.Add(t.Context(), anna, "a", files("a"), AddOptions{}); sandbox.KindOf(err) != sandbox.QuotaExceeded {
		t.Errorf("more than the limit: %v", err)
	}
	if _, err := NewVirtuals(h.Library).Add(sandbox.Thread{Owner: anna, ID: "t"}, sandbox.VirtualSkill{Name: "v", Description: "d"}); sandbox.KindOf(err) != sandbox.QuotaExceeded {
		t.Errorf("a virtual skill: %v", err)
	}
	if left, err := os.ReadDir(h.store.dir); err != nil || len(left) > 0 {
		t.Errorf("what is refused leaves %v, %v", left, err)
	}
	if err := h.growth.take(anna, format.MaxBytes, now.Add(stageAge)); err != nil {
		t.Errorf("an hour later: %v", err)
	}
	if h.growth.forget(now.Add(3 * stageAge)); len(h.growth.of) > 0 {
		t.Errorf("remembered: %v", h.growth.of)
	}
}

// TestSweepKeepsVirtual: the sweep of any server leaves the skills that threads have.
func TestSweepKeepsVirtual(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	v := NewVirtuals(h.Library)
	thread := sandbox.Thread{Owner: anna, ID: "t"}
	if _, err := v.Add(thread, sandbox.VirtualSkill{Name: "kept", Description: "d"}); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-2 * stageAge)
	dir := v.Of(thread)[0].dir
	if err := os.Chtimes(dir, old, old); err != nil {
		t.Fatal(err)
	}
	if err := v.Keep(time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := h.Sweep(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Error(err)
	}
	v.Forget(thread)
	if err := os.Chtimes(dir, old, old); err != nil {
		t.Fatal(err)
	}
	if err := h.Sweep(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the files of a thread that was deleted stay")
	}
}
