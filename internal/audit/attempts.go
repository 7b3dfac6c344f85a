package audit

import (
	"encoding/json"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
)

// maxAttempts bounds how many open attempts are remembered. A server has far fewer at once.
const maxAttempts = 100_000

// attempts are the attempts that have no result yet, by ID.
type attempts map[string]Record

// add takes a record into account. The result of an attempt has the same action: a tool call of an
// exec has the exec's attempt as its parent too, and does not end it.
func (a attempts) add(r Record) {
	switch {
	case r.Phase == PhaseAttempt && len(a) < maxAttempts:
		a[r.ID] = r
	case r.Phase == PhaseResult && r.Parent != "":
		if open, ok := a[r.Parent]; ok && open.Action == r.Action {
			delete(a, r.Parent)
		}
	}
}

// list returns the attempts in the order in which they were written.
func (a attempts) list() []Record {
	return slices.SortedFunc(maps.Values(a), func(x, y Record) int {
		switch {
		case x.Seq < y.Seq:
			return -1
		case x.Seq > y.Seq:
			return 1
		}
		return 0
	})
}

// Beside a segment lies a file with the attempts that were open when it was begun, so that a start
// reads one segment and not all. It is a help only: without it the segments before are read.

func attemptsPath(segmentPath string) string {
	return strings.TrimSuffix(segmentPath, segmentSuffix) + attemptsSuffix
}

func (a attempts) save(segmentPath string) error {
	text, err := json.Marshal(a.list())
	if err != nil {
		return err
	}
	return writeFile(attemptsPath(segmentPath), text)
}

// openBefore finds the attempts that were open when the last of segs was begun.
func openBefore(segs []segment, log *slog.Logger) (attempts, error) {
	a := attempts{}
	from := len(segs) - 1
	for ; from > 0; from-- {
		text, err := os.ReadFile(attemptsPath(segs[from].path))
		var list []Record
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
		if _, err := scan(seg.path, a.add); err != nil {
			return nil, err
		}
	}
	return a, nil
}
