package audit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Do does something between the record of the attempt and that of its result, which is durable when Do returns, also
// when ctx ended meanwhile. What cannot be recorded is not begun. do may fill in what only the result knows. The error of do
// comes back; when there is none, one of the result's record.
func (l *Log) Do(ctx context.Context, r Record, do func(*Record) error) error {
	r.Phase = PhaseAttempt
	attempt, err := l.Append(ctx, r)
	if err != nil {
		return err
	}
	began := time.Now()
	err = do(&r)
	r.Phase, r.Parent, r.Millis = PhaseResult, attempt.ID, time.Since(began).Milliseconds()
	r.Outcome = "ok"
	switch kind := sandbox.KindOf(err); {
	case errors.Is(err, sandbox.Forbidden):
		r.Outcome, r.Detail = "denied", string(kind)
	case err != nil:
		r.Outcome, r.Detail = "error", string(kind)
	}
	if _, e := l.AppendSync(context.WithoutCancel(ctx), r); err == nil {
		err = e
	}
	return err
}

// Sum is the sha256 of a result, as OutHash has it; "" of an empty one.
func Sum(text []byte) string {
	if len(text) == 0 {
		return ""
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
