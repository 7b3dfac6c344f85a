package store

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store/journal"
	"github.com/skerry-sandbox/skerry/internal/store/threadscripts"
)

// ThreadUse is what a thread used since it was last written.
type ThreadUse struct {
	// Writer and Batch name what is added: written again, it is not added again. Batches of one writer have rising numbers
	// from 1 on.
	Writer   string
	Batch    uint64
	Execs    int64
	ExecTime time.Duration
	// DiskBytes is the size of the thread's files at MeasuredAt; zero: they were not measured.
	DiskBytes  int64
	MeasuredAt time.Time
}

func touchedKeys(t sandbox.Thread) []string {
	return []string{
		threadsKey(t.Owner), activeKey(t.Owner), tenantActiveKey(t.Tenant),
		threadUsageKey(t.Owner), diskKey(t.Owner), tenantDiskKey(t.Tenant),
	}
}

var errNoThread = errors.New("there is no such thread")

// UseThread adds to what a thread used, and notes that it was active at a time, unless that is zero. It is one round trip, and
// durable. A thread that is not there stays away.
func (s threadRecords) UseThread(ctx context.Context, t sandbox.Thread, at time.Time, u ThreadUse) error {
	if err := checkThread(t); err != nil {
		return err
	}
	active, disk, measured := any(""), any(""), int64(0)
	if !at.IsZero() {
		active = at.UnixMilli()
	}
	if !u.MeasuredAt.IsZero() {
		disk, measured = u.DiskBytes, u.MeasuredAt.UnixMilli()
	}
	err := s.change(ctx, func(ctx context.Context) (journal.Entry, error) {
		text, err := threadscripts.Touch.Run(ctx, s.rdb, touchedKeys(t), t.ID, activeMember(t), active, "",
			u.Writer, u.Batch, u.Execs, u.ExecTime.Milliseconds(), disk, measured).Text()
		if err == nil && text == "" {
			return journal.Entry{}, errNoThread
		}
		return journal.Entry{Key: threadUsageKey(t.Owner), Field: t.ID, Value: json.RawMessage(text)}, failure(err)
	})
	if errors.Is(err, errNoThread) {
		return nil
	}
	return err
}

// loadDisk lists a thread of the journal by its size.
func (e *embedded) loadDisk(en journal.Entry) {
	rest, ok := strings.CutPrefix(en.Key, "skerry:{")
	tenant, user, ok2 := strings.Cut(rest, threadUsageInfix)
	t := sandbox.Thread{Owner: sandbox.Owner{Tenant: tenant, User: user}, ID: en.Field}
	if !ok || !ok2 || checkThread(t) != nil {
		return
	}
	used := threadscripts.Usage(string(en.Value))
	if used == nil || used.DiskBytes == nil {
		return
	}
	_, _ = e.mini.ZAdd(diskKey(t.Owner), float64(*used.DiskBytes), t.ID) // fails only on a key of another type
	_, _ = e.mini.ZAdd(tenantDiskKey(tenant), float64(*used.DiskBytes), activeMember(t))
}
