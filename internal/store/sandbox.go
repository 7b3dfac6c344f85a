package store

import (
	"context"
	"encoding/json"

	"github.com/redis/go-redis/v9"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// SandboxRecord is the live sandbox of a thread, for the replicas that did not start it.
type SandboxRecord struct {
	ID      sandbox.ID   `json:"id"`
	Info    sandbox.Info `json:"info"`
	Replica string       `json:"replica"` // who runs it
}

// PutSandbox records which sandbox a thread has, and replaces the former record.
func (s *Store) PutSandbox(ctx context.Context, t sandbox.Thread, r SandboxRecord) error {
	if err := checkThread(t); err != nil {
		return err
	}
	text, err := json.Marshal(r)
	if err != nil {
		return sandbox.Wrap(sandbox.Internal, err, "the record cannot be written")
	}
	ctx, cancel := deadline(ctx)
	defer cancel()
	return failure(s.rdb.HSet(ctx, sandboxKey(t), "id", string(r.ID), "record", text).Err())
}

// Sandbox returns the thread's sandbox, or NotFound.
func (s *Store) Sandbox(ctx context.Context, t sandbox.Thread) (SandboxRecord, error) {
	if err := checkThread(t); err != nil {
		return SandboxRecord{}, err
	}
	ctx, cancel := deadline(ctx)
	defer cancel()
	text, err := s.rdb.HGet(ctx, sandboxKey(t), "record").Bytes()
	if isNil(err) {
		return SandboxRecord{}, sandbox.Errorf(sandbox.NotFound, "thread %q has no sandbox", t.ID)
	}
	if err != nil {
		return SandboxRecord{}, failure(err)
	}
	var r SandboxRecord
	if err := json.Unmarshal(text, &r); err != nil {
		return SandboxRecord{}, sandbox.Wrap(sandbox.Internal, err, "the sandbox's record cannot be read")
	}
	return r, nil
}

// Sandboxes returns the sandboxes of the threads that have one, in one round trip. All threads have to be
// of one tenant.
func (s *Store) Sandboxes(ctx context.Context, threads []sandbox.Thread) (map[sandbox.Thread]SandboxRecord, error) {
	found := map[sandbox.Thread]SandboxRecord{}
	if len(threads) == 0 {
		return found, nil
	}
	for _, t := range threads {
		if err := checkThread(t); err != nil {
			return nil, err
		}
	}
	ctx, cancel := deadline(ctx)
	defer cancel()
	answers := make([]*redis.StringCmd, len(threads))
	_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, t := range threads {
			answers[i] = p.HGet(ctx, sandboxKey(t), "record")
		}
		return nil
	})
	if err != nil && !isNil(err) {
		return nil, failure(err)
	}
	for i, t := range threads {
		text, err := answers[i].Bytes()
		if isNil(err) {
			continue
		}
		var r SandboxRecord
		if err == nil {
			err = json.Unmarshal(text, &r)
		}
		if err != nil {
			return nil, sandbox.Wrap(sandbox.Internal, err, "the sandbox's record cannot be read")
		}
		found[t] = r
	}
	return found, nil
}

var deleteSandboxScript = redis.NewScript(`
if redis.call('HGET', KEYS[1], 'id') == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0`)

// ForgetSandbox deletes the record of the thread's sandbox, whatever it says. A missing one is no error.
func (s *Store) ForgetSandbox(ctx context.Context, t sandbox.Thread) error {
	if err := checkThread(t); err != nil {
		return err
	}
	ctx, cancel := deadline(ctx)
	defer cancel()
	return failure(s.rdb.Del(ctx, sandboxKey(t)).Err())
}

// DeleteSandbox deletes the record of the thread's sandbox if it has this id: a sandbox that another
// replica put there since stays. A missing record is no error.
func (s *Store) DeleteSandbox(ctx context.Context, t sandbox.Thread, id sandbox.ID) error {
	if err := checkThread(t); err != nil {
		return err
	}
	ctx, cancel := deadline(ctx)
	defer cancel()
	return failure(deleteSandboxScript.Run(ctx, s.rdb, []string{sandboxKey(t)}, string(id)).Err())
}
