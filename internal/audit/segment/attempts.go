package segment

import (
	"encoding/json"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/audit/record"
	"github.com/skerry-sandbox/skerry/internal/platform/lockedfile"
)

// maxAttempts bounds how many open attempts are remembered. A server has far fewer at once.
const maxAttempts = 100_000

// Attempts are the attempts that have no result yet, by ID.
type Attempts map[string]record.Record

// Add takes a record into account. The result of an attempt has the same action: a tool call of an
// exec has the exec's attempt as its parent too, and does not end it.
func (a Attempts) Add(r record.Record) {
	switch {
	case r.Phase == record.PhaseAttempt && len(a) < maxAttempts:
		a[r.ID] = r
	case r.Phase == record.PhaseResult && r.Parent != "":
		if open, ok := a[r.Parent]; ok && open.Action == r.Action {
			delete(a, r.Parent)
		}
	}
}

// List returns the attempts in the order in which they were written.
func (a Attempts) List() []record.Record {
	return slices.SortedFunc(maps.Values(a), func(x, y record.Record) int {
		switch {
		case x.Seq < y.Seq:
			return -1
		case x.Seq > y.Seq:
			return 1
		}
		return 0
	})
}

// Beside a segment lies a file with the attempts that were open when the segment began. So a start reads one
// segment and not all. Without the file, a start reads the segments before.

// AttemptsPath is that file of a segment.
func AttemptsPath(segmentPath string) string {
	return strings.TrimSuffix(segmentPath, Suffix) + AttemptsSuffix
}

// Save writes it.
func (a Attempts) Save(segmentPath string) error {
	text, err := json.Marshal(a.List())
	if err != nil {
		return err
	}
	return lockedfile.Replace(AttemptsPath(segmentPath), text)
}

// OpenBefore finds the attempts that were open when the last of segs was begun.
func OpenBefore(segs []Segment, log *slog.Logger) (Attempts, error) {
	a := Attempts{}
	from := len(segs) - 1
	for ; from > 0; from-- {
		text, err := os.ReadFile(AttemptsPath(segs[from].Path))
		var list []record.Record
		if err == nil && json.Unmarshal(text, &list) == nil {
			for _, r := range list {
				a[r.ID] = r
			}
			break
		}
	}
	if from < 0 {
		return a, nil
	}
	if n := len(segs) - 1 - from; n > 0 {
		log.Info("looking for open attempts in the audit log", "segments", n)
	}
	for _, seg := range segs[from : len(segs)-1] {
		if _, err := Scan(seg.Path, a.Add); err != nil {
			return nil, err
		}
	}
	return a, nil
}
