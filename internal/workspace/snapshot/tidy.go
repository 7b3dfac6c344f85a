package snapshot

import (
	"context"
	"path"
	"slices"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// What no snapshot refers to is taken away: a pack that the last snapshot needed and this one does not after garbageGrace, for
// a server that restores just now; a pack that no snapshot ever referred to, because its writer died or was too late,
// after orphanGrace, for a snapshot that is being written: its packs are no older than its deadline.
const (
	garbageGrace = 10 * time.Minute
	orphanGrace  = 2 * time.Hour
	// sweepEvery is after how many snapshots of a thread it is looked for packs of the second kind.
	sweepEvery = 64
)

// tidy takes away what is due, and notes what is left. What fails is tried again with a later snapshot.
func (s *Snapshots) tidy(ctx context.Context, t sandbox.Thread, idx *index) {
	now := time.Now()
	idx.Garbage = slices.DeleteFunc(idx.Garbage, func(g garbage) bool {
		if now.Sub(g.Since) < garbageGrace {
			return false
		}
		if err := s.o.Objects.Remove(ctx, packName(t, g.Pack)); err != nil {
			s.o.Log.Warn("an unused pack is not removed; tried again", "thread", t.String(), "error", err)
			return false
		}
		return true
	})
	if idx.Count < sweepEvery {
		return
	}
	idx.Count = 0
	if err := s.sweep(ctx, t, idx, now.Add(-orphanGrace)); err != nil {
		s.o.Log.Warn("unused packs are not removed; tried again", "thread", t.String(), "error", err)
	}
}

// sweep removes the packs that idx does not refer to and that are older than a time. idx is the current
// snapshot: no server can refer to such a pack any more, because a snapshot refers only to its own packs
// and those of the former snapshot.
func (s *Snapshots) sweep(ctx context.Context, t sandbox.Thread, idx *index, before time.Time) error {
	var old []string
	err := s.o.Objects.List(ctx, place(t)+"/packs", func(o Object) error {
		_, used := idx.Head.Packs[o.Key]
		waits := slices.ContainsFunc(idx.Garbage, func(g garbage) bool { return g.Pack == o.Key })
		if !used && !waits && o.Changed.Before(before) {
			old = append(old, o.Key)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, id := range old {
		if err := s.o.Objects.Remove(ctx, path.Join(place(t), "packs", id)); err != nil {
			return err
		}
	}
	return nil
}
