package main

import (
	"fmt"
	"os"
	"time"
)

const (
	// rounds is how often a thing is measured, unless it is slow.
	rounds = 200
	// caseTime bounds one case: who is slow is called less often, and the table says how often.
	caseTime = 25 * time.Second
	// fewest calls are made all the same.
	fewest = 10
	// rest lets one side finish what it leaves behind, such as the end of a container's process, before
	// the other is measured: else each would pay for the other.
	rest = 30 * time.Millisecond
)

// side is one way to do a thing.
type side struct {
	name  string
	do    func() error
	every int // it takes part in every so manieth round only
}

// alternate measures sides in turn, after one call of each that does not count. It ends after the
// rounds, or when the time of a case is over.
func (b *bench) alternate(name string, sides ...side) ([][]float64, error) {
	defer b.progress(name)()
	times := make([][]float64, len(sides))
	var end time.Time
	for i := -1; i < b.rounds; i++ {
		if i == 0 {
			end = time.Now().Add(b.caseTime)
		}
		if i >= fewest && time.Now().After(end) {
			break
		}
		for k, s := range sides {
			if b.ctx.Err() != nil {
				return nil, b.ctx.Err()
			}
			if i > 0 && s.every > 1 && i%s.every != 0 {
				continue
			}
			time.Sleep(rest)
			began := time.Now()
			if err := s.do(); err != nil {
				return nil, fmt.Errorf("%s: %w", s.name, err)
			}
			if i >= 0 {
				times[k] = append(times[k], since(began))
			}
		}
	}
	return times, nil
}

func since(t time.Time) float64 { return float64(time.Since(t).Microseconds()) / 1000 }

// progress says on stderr what is measured; the function that it returns ends the line.
func (b *bench) progress(name string) func() {
	began := time.Now()
	fmt.Fprintf(os.Stderr, "  %s  %s …", time.Since(b.began).Round(time.Second), name)
	return func() { fmt.Fprintf(os.Stderr, " %.0f s\n", time.Since(began).Seconds()) }
}

// rival is a side with what ours is measured by beside it.
type rival struct {
	side
	by    measure
	limit bar
}

// compare measures ours beside rivals and adds a row for each.
func (b *bench) compare(ours side, rivals ...rival) error {
	sides := []side{ours}
	for _, r := range rivals {
		sides = append(sides, r.side)
	}
	times, err := b.alternate(ours.name, sides...)
	if err != nil {
		return err
	}
	mine := sampled(ours.name, times[0])
	if len(rivals) == 0 {
		b.row("ms", mine, nil, middle, bar{}, "")
	}
	for i, r := range rivals {
		other := sampled(r.name, times[i+1])
		b.row("ms", mine, &other, r.by, r.limit, "")
	}
	return nil
}
