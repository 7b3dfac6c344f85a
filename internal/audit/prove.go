package audit

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/redis/go-redis/v9"

	"github.com/skerry-sandbox/skerry/internal/audit/record"
	"github.com/skerry-sandbox/skerry/internal/audit/segment"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store"
)

// Verify checks the log in this one's folder, with those of other servers there, against its own files, its signatures,
// and the heads in Redis and where else Options.Trust finds some. One check runs at a time: Conflict says that there is
// one already.
func (l *Log) Verify(ctx context.Context) (VerifyResult, error) {
	if !l.verifying.TryLock() {
		return VerifyResult{}, sandbox.Errorf(sandbox.Conflict, "the audit log is being verified; wait for that")
	}
	defer l.verifying.Unlock()
	var o VerifyOptions
	if l.o.Trust != nil {
		var err error
		if o, err = l.o.Trust(); err != nil {
			return VerifyResult{}, sandbox.Wrap(sandbox.Unavailable, err, "the keys and heads of the audit log cannot be read")
		}
	}
	shipped, err := l.shippedHeads(ctx)
	if err != nil {
		return VerifyResult{}, err
	}
	o.Expect = append(o.Expect, shipped...)
	res, err := verify(ctx, l.o.Dir, o)
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

// SignedHeads returns the last signed head in the files of each writer of a folder, to be held elsewhere. It checks none.
func SignedHeads(dir string) ([]Head, error) {
	writers, err := segment.Writers(dir)
	if err != nil {
		return nil, fmt.Errorf("heads of the audit log: %w", err)
	}
	var heads []Head
	for _, w := range writers {
		segs, err := segment.List(filepath.Join(dir, w))
		if err != nil {
			return nil, fmt.Errorf("heads of the audit log: %w", err)
		}
		for i := len(segs) - 1; i >= 0; i-- {
			var last Head
			if _, err := segment.Scan(segs[i].Path, func(r Record) {
				if h, ok := record.HeadOf(r); ok {
					last = h
				}
			}); err != nil {
				return nil, fmt.Errorf("heads of the audit log: %w", err)
			}
			if last.Seq > 0 {
				heads = append(heads, last)
				break
			}
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
	heads, err := SignedHeads(l.o.Dir)
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
