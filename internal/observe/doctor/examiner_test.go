package doctor

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestExaminer: checks run once for all who ask, again when their lines are old, and one that hangs keeps nobody waiting.
func TestExaminer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs, hang := 0, false
		e := NewExaminer(30*time.Second, []Check{{Name: "disk", Within: 3 * time.Second, Run: func(ctx context.Context, r *Report) {
			runs++
			if hang {
				<-ctx.Done()
				return
			}
			time.Sleep(time.Second)
			r.Warn("", "make room", "run %d", runs)
		}}})
		type answer struct {
			lines []Line
			at    time.Time
			err   error
		}
		ask := func(within time.Duration) answer {
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			lines, at, err := e.Lines(ctx)
			return answer{lines, at, err}
		}
		if a := ask(500 * time.Millisecond); a.err == nil {
			t.Errorf("lines before the first run has ended: %v", a)
		}
		answers := make(chan answer)
		for range 5 {
			go func() { answers <- ask(10 * time.Second) }()
		}
		for range 5 {
			if a := <-answers; a.err != nil || len(a.lines) != 1 || a.lines[0].Detail != "run 1" || a.lines[0].Check != "disk" || !a.at.Equal(time.Now()) {
				t.Errorf("%v", a)
			}
		}
		time.Sleep(29 * time.Second)
		if a := ask(time.Second); a.lines[0].Detail != "run 1" {
			t.Errorf("asked again too early: %v", a)
		}
		time.Sleep(time.Second)
		if a := ask(5 * time.Second); a.lines[0].Detail != "run 2" {
			t.Errorf("old lines: %v", a)
		}
		hang = true
		time.Sleep(time.Minute)
		began := time.Now()
		if a := ask(time.Second); a.err != nil || a.lines[0].Detail != "run 2" || time.Since(began) != time.Second {
			t.Errorf("while a check hangs: %v after %s", a, time.Since(began))
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		if a := ask(time.Second); runs != 3 || a.err != nil {
			t.Errorf("%d runs, %v", runs, a)
		}
	})
}
