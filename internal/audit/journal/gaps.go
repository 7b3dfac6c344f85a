package journal

import (
	"fmt"
	"time"
)

// refusalEvery bounds the records of refused attempts, which must not use up what is left.
const refusalEvery = time.Second

// gap is what was done while it could not be recorded (on_failure: open).
type gap struct {
	Count  uint64    `json:"count"`
	From   time.Time `json:"from"`
	To     time.Time `json:"to"`
	Reason string    `json:"reason"`
}

// gaps counts what is not recorded. The Journal's mutex guards it.
type gaps struct {
	missed     gap // since a record said so
	missedEver uint64
	refusals   uint64 // attempts that were refused since a record said so
	refusedAt  time.Time
}

// miss counts a record that is not written. first: the gap begins with it.
func (g *gaps) miss(now time.Time, err error) (first bool) {
	if first = g.missed.Count == 0; first {
		g.missed.From, g.missed.Reason = now, err.Error()
	}
	g.missed.Count++
	g.missed.To = now
	g.missedEver++
	return first
}

// refuse counts an attempt that is refused. due: it is time to record that, with this detail.
func (g *gaps) refuse(now time.Time) (detail string, due bool) {
	g.refusals++
	if now.Sub(g.refusedAt) < refusalEvery {
		return "", false
	}
	g.refusedAt = now
	detail = "the disk of the audit log is full"
	if g.refusals > 1 {
		detail += fmt.Sprintf("; %d more were refused before it", g.refusals-1)
	}
	return detail, true
}
