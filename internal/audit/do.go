package audit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Do calls do between the record of the attempt and that of its result. An attempt that cannot be recorded is not
// begun. The record of the result is durable when Do returns, also when ctx has ended meanwhile. In do, r.Parent
// is the id of the attempt. do may fill in what only the result knows; an Outcome that it sets stays.
//
// Do returns the error of do. When do succeeds and its result cannot be recorded, Do returns the error of the record.
func (l *Log) Do(ctx context.Context, r Record, do func(r *Record) error) error {
	return Do(ctx, l, r, do)
}

// Appender is the part of a Log that Do needs.
type Appender interface {
	Append(ctx context.Context, r Record) (Record, error)
	AppendSync(ctx context.Context, r Record) (Record, error)
}

// Do is the method Do of any Appender, for parts whose tests keep records in memory.
func Do(ctx context.Context, l Appender, r Record, do func(r *Record) error) error {
	r.Phase = PhaseAttempt
	attempt, err := l.Append(ctx, r)
	if err != nil {
		return err
	}
	began := time.Now()
	r.Phase, r.Parent = PhaseResult, attempt.ID
	err = do(&r)
	r.Millis = time.Since(began).Milliseconds()
	if r.Outcome == "" {
		r.Outcome, r.Detail = outcome(err, r.Detail)
	}
	if _, e := l.AppendSync(context.WithoutCancel(ctx), r); err == nil {
		err = e
	}
	return err
}

// outcome returns what a record says of err: the kind of an error in place of the detail.
func outcome(err error, detail string) (string, string) {
	switch kind := sandbox.KindOf(err); {
	case errors.Is(err, sandbox.Forbidden):
		return "denied", string(kind)
	case err != nil:
		return "error", string(kind)
	}
	return "ok", detail
}

// Sum is the sha256 of a result, as OutHash has it; "" of an empty one.
func Sum(text []byte) string {
	if len(text) == 0 {
		return ""
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
