package audit

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/skerry-sandbox/skerry/internal/audit/record"
	"github.com/skerry-sandbox/skerry/internal/audit/segment"
	"github.com/skerry-sandbox/skerry/internal/audit/verify"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store"
)

// Verify checks the log in this one's folder, with those of other servers there. It checks them against
// their own files, their signatures, and the heads in Redis and elsewhere (Options.Trust). One check runs at
// a time: Conflict says that there is one already.
func (l *Log) Verify(ctx context.Context) (verify.Result, error) {
	if !l.verifying.TryLock() {
		return verify.Result{}, sandbox.Errorf(sandbox.Conflict, "the audit log is being verified; wait for that")
	}
	defer l.verifying.Unlock()
	var o verify.Options
	if l.o.Trust != nil {
		var err error
		if o, err = l.o.Trust(); err != nil {
			return verify.Result{}, sandbox.Wrap(sandbox.Unavailable, err, "the keys and heads of the audit log cannot be read")
		}
	}
	shipped, err := l.shippedHeads(ctx)
	if err != nil {
		return verify.Result{}, err
	}
	o.Expect = append(o.Expect, shipped...)
	res, err := verify.Verify(ctx, l.o.Dir, o)
	if err != nil {
		return res, sandbox.Wrap(sandbox.Unavailable, err, "the audit log cannot be read")
	}
	return res, nil
}

// shippedHeads asks Redis for the heads of the writers of this folder.
func (l *Log) shippedHeads(ctx context.Context) ([]Head, error) {
	if l.o.Redis == nil {
		return nil, nil
	}
	writers, err := segment.Writers(l.o.Dir)
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Unavailable, err, "the audit log cannot be read")
	}
	var heads []Head
	for _, w := range writers {
		ctx, cancel := context.WithTimeout(ctx, redisTimeout)
		text, err := l.o.Redis.Get(ctx, store.AuditHeadKey(w)).Result()
		cancel()
		if errors.Is(err, redis.Nil) {
			continue
		}
		if err != nil {
			return nil, sandbox.Wrap(sandbox.Unavailable, err, "Redis does not say which head it has")
		}
		if h, err := record.ParseHead(text); err == nil {
			heads = append(heads, h)
		}
	}
	return heads, nil
}

// Checkpoints are heads to be held elsewhere: of this log as it is now, of the others in its folder as they were signed
// last.
func (l *Log) Checkpoints(ctx context.Context) ([]Head, error) {
	own, err := l.Checkpoint(ctx)
	if err != nil {
		return nil, err
	}
	heads, err := verify.SignedHeads(l.o.Dir)
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Unavailable, err, "the audit log cannot be read")
	}
	all := []Head{}
	if own.Seq > 0 {
		all = append(all, own)
	}
	for _, h := range heads {
		if h.Writer != own.Writer {
			all = append(all, h)
		}
	}
	return all, nil
}
