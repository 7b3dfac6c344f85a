package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store/threadscripts"
)

// threadRecords are the threads of owners.
type threadRecords struct{ *conn }

func threadPlace(t sandbox.Thread) place {
	return place{key: threadsKey(t.Owner), field: t.ID, index: threadIndexKey(t.Owner)}
}

// ChangeThread changes what is remembered of a thread, and returns it. change is given it as it is; with found false
// there is nothing but the thread's name. It may be called again when another change was faster; its error ends the
// call. The change is durable.
func (s threadRecords) ChangeThread(ctx context.Context, t sandbox.Thread, change func(info *sandbox.ThreadInfo, found bool) error) (info sandbox.ThreadInfo, err error) {
	if err := checkThread(t); err != nil {
		return sandbox.ThreadInfo{}, err
	}
	made := false
	err = s.changeRecord(ctx, threadPlace(t), func(before string) (any, error) {
		info, made = sandbox.ThreadInfo{}, before == ""
		if !made {
			if info, err = threadInfo(before, 0); err != nil {
				return nil, err
			}
		}
		info.Thread = t
		return &info, change(&info, !made)
	})
	if err == nil && made {
		err = s.noteActivity(ctx, t, info.LastActiveAt, true)
	}
	return info, err
}

// Thread returns what is remembered of a thread, or NotFound.
func (s threadRecords) Thread(ctx context.Context, t sandbox.Thread) (sandbox.ThreadInfo, error) {
	l, err := s.UsedThread(ctx, t)
	return l.ThreadInfo, err
}

// UsedThread returns what is remembered of a thread, with what it used, or NotFound.
func (s threadRecords) UsedThread(ctx context.Context, t sandbox.Thread) (l ListedThread, err error) {
	if err := checkThread(t); err != nil {
		return l, err
	}
	ctx, cancel := deadline(ctx)
	defer cancel()
	var record, usage *redis.StringCmd
	var active *redis.FloatCmd
	_, err = s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		record, usage = p.HGet(ctx, threadsKey(t.Owner), t.ID), p.HGet(ctx, threadUsageKey(t.Owner), t.ID)
		active = p.ZScore(ctx, activeKey(t.Owner), t.ID)
		return nil
	})
	switch {
	case isNil(record.Err()):
		return l, sandbox.Errorf(sandbox.NotFound, "there is no thread %q", t.ID)
	case err != nil && !isNil(err):
		return l, failure(err)
	}
	l.Used = threadscripts.Usage(usage.Val())
	l.ThreadInfo, err = threadInfo(record.Val(), int64(active.Val()))
	return l, err
}

// DeleteThread forgets a thread with what it used. A missing one is no error. It is durable. The thread's
// sandbox record and lease stay.
func (s threadRecords) DeleteThread(ctx context.Context, t sandbox.Thread) error {
	if err := checkThread(t); err != nil {
		return err
	}
	for _, p := range []place{threadPlace(t), {key: threadUsageKey(t.Owner), field: t.ID}} { // in this order: a thread without a record uses nothing
		if err := s.remove(ctx, p); err != nil {
			return err
		}
	}
	ctx, cancel := deadline(ctx)
	defer cancel()
	_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, key := range []string{activeKey(t.Owner), diskKey(t.Owner)} {
			p.ZRem(ctx, key, t.ID)
		}
		for _, key := range []string{tenantActiveKey(t.Tenant), tenantDiskKey(t.Tenant)} {
			p.ZRem(ctx, key, activeMember(t))
		}
		return nil
	})
	return failure(err)
}

// TouchThread notes that the thread was active at a time. It is cheap, and forgotten by a restart in
// embedded mode. A thread that is not there stays away.
func (s threadRecords) TouchThread(ctx context.Context, t sandbox.Thread, at time.Time) error {
	if err := checkThread(t); err != nil {
		return err
	}
	return s.noteActivity(ctx, t, at, false)
}

// noteActivity notes when a thread was active. first: it was just made; a time that is known stays.
func (s threadRecords) noteActivity(ctx context.Context, t sandbox.Thread, at time.Time, first bool) error {
	ctx, cancel := deadline(ctx)
	defer cancel()
	mode := ""
	if first {
		mode = "new"
	}
	return failure(threadscripts.Touch.Run(ctx, s.rdb, touchedKeys(t), t.ID, activeMember(t), at.UnixMilli(), mode, "").Err())
}

var errShape = sandbox.Errorf(sandbox.Internal, "the state store sent an answer of the wrong shape")

func stringList(lists []any, i int) ([]string, error) {
	if i >= len(lists) {
		return nil, errShape
	}
	list, ok := lists[i].([]any)
	out := make([]string, 0, len(list))
	for _, v := range list {
		text, isText := v.(string)
		ok = ok && isText
		out = append(out, text)
	}
	if !ok {
		return nil, errShape
	}
	return out, nil
}

// threadInfo reads a record. active is when the thread was used last, in ms; 0: unknown.
func threadInfo(record string, active int64) (sandbox.ThreadInfo, error) {
	var info sandbox.ThreadInfo
	if err := json.Unmarshal([]byte(record), &info); err != nil {
		return sandbox.ThreadInfo{}, sandbox.Wrap(sandbox.Internal, err, "the thread's record cannot be read")
	}
	if at := time.UnixMilli(active).UTC(); active > 0 && at.After(info.LastActiveAt) {
		info.LastActiveAt = at
	}
	return info, nil
}
