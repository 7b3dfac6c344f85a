package process

import (
	"maps"
	"testing"
	"time"
)

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
