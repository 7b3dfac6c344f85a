package process

import (
	"testing"
	"time"
)

// TestAnswerAfterKill: an answer that crosses the kill does not make an ended command one that still has its variables.
func TestAnswerAfterKill(t *testing.T) {
	t.Parallel()
	s := &Session{gone: make(chan struct{}), exit: Exit{Status: Exited, Code: 137}, stuck: time.NewTimer(time.Hour)}
	r := &sessionRun{answer: make(chan answer, 1)}
	r.answer <- answer{}
	time.AfterFunc(50*time.Millisecond, func() { close(s.gone) })
	if x := s.attend(&Exec{}, r); !x.Lost || x.Code != 137 {
		t.Errorf("%+v; want the end of the command", x)
	}
}
