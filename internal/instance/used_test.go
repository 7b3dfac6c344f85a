package instance

import (
	"testing"
	"time"
)

// TestUsed: what was taken is taken again until it is known to be written, and what runs meanwhile is in the next batch.
func TestUsed(t *testing.T) {
	t.Parallel()
	var u Used
	if ran, _ := u.Take(); ran != (Ran{}) {
		t.Errorf("%+v before anything ran", ran)
	}
	u.Count(time.Second)
	u.Count(time.Second)
	first, _ := u.Take()
	if first != (Ran{Batch: 1, Execs: 2, Time: 2 * time.Second}) {
		t.Errorf("%+v", first)
	}
	u.Count(time.Minute)
	if again, _ := u.Take(); again != first {
		t.Errorf("%+v after %+v, which may not be written", again, first)
	}
	at := time.Now()
	u.Written(first, at)
	second, sized := u.Take()
	if second != (Ran{Batch: 2, Execs: 1, Time: time.Minute}) || !sized.Equal(at) {
		t.Errorf("%+v, %v", second, sized)
	}
	u.Written(first, at.Add(-time.Hour)) // late: another writer had the same
	if rests, tried := u.Rests(); !rests || tried.Before(at) {
		t.Errorf("rests %v, tried %v", rests, tried)
	}
	u.Written(second, time.Time{})
	if rests, _ := u.Rests(); rests {
		t.Error("something rests though all is written")
	}
	if _, sized := u.Take(); !sized.Equal(at) {
		t.Errorf("sized %v, want %v", sized, at)
	}
}
