package run

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/execution"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/limits"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/workspace/paths"
)

// settle adds to the result what only the server knows: the tool calls, as the bridge counted them,
// and the files that changed; and cuts the output of code to what an agent can use.
func (x *Runner) settle(inst *instance.Instance, e *execution.Exec, res *sandbox.Result, calls []sandbox.ToolCall) {
	if e.Spec.Code != nil {
		res.ToolsCalled = append([]sandbox.ToolCall{}, calls...)
		for i := range res.ToolsCalled {
			res.ToolsCalled[i].Error = e.Secret.Hide.String(res.ToolsCalled[i].Error)
		}
	}
	ctx, cancel := context.WithTimeout(x.ctx, hideTimeout)
	defer cancel()
	res.StdoutPath, res.StderrPath = x.hideSpilled(ctx, e, inst.UID, res.StdoutPath), x.hideSpilled(ctx, e, inst.UID, res.StderrPath)
	if e.Spec.Report && !res.FilesTruncated {
		x.reportFiles(e, res)
	}
	if e.Spec.Code != nil && res.Encoding == "" {
		res.Stdout, res.StdoutPath = x.cut(e, inst.UID, "stdout", res.Stdout, e.Spec.Code.MaxOutputChars, res.StdoutPath)
		res.Stderr, res.StderrPath = x.cut(e, inst.UID, "stderr", res.Stderr, stderrOfCode, res.StderrPath)
		res.Truncated = res.Truncated || res.StdoutPath != nil || res.StderrPath != nil
	}
}

func (x *Runner) reportFiles(e *execution.Exec, res *sandbox.Result) {
	err := x.o.Files.With(e.Thread, nil, func(fs *paths.FS) error {
		changes, complete, err := fs.Changes(x.ctx, e.Before)
		if complete {
			res.Files = changes
		} else {
			res.FilesTruncated = true
		}
		return err
	})
	if err != nil {
		x.o.Log.Warn("changed files not listed", "exec", e.ID, "error", err)
		res.FilesTruncated = true
	}
}

// cut shortens text in the middle to limit characters. The whole is kept in a file of the thread,
// unless it already is.
func (x *Runner) cut(e *execution.Exec, uid int, name, text string, limit int, path *string) (string, *string) {
	n := utf8.RuneCountInString(text)
	if n <= limit {
		return text, path
	}
	where := "it could not be kept"
	if path == nil {
		p := spillDir(e.ID) + "/" + name
		err := x.o.Files.Change(x.ctx, e.Thread, uid, func(fs *paths.FS) error {
			_, err := fs.Write(x.ctx, p, strings.NewReader(text), false)
			return err
		})
		if err == nil {
			path = &p
		} else {
			x.o.Log.Warn("long output not kept", "exec", e.ID, "error", err)
		}
	}
	if path != nil {
		where = "the whole is in " + *path
	}
	head, tail := limit/2, limit-limit/2
	runes := []rune(text)
	return fmt.Sprintf("%s\n[… %d characters left out; %s …]\n%s", string(runes[:head]), n-head-tail, where, string(runes[n-tail:])), path
}

// recordEnd writes the terminal record of e and waits until it is durable. Without it no caller may see
// the result.
func (x *Runner) recordEnd(inst *instance.Instance, e *execution.Exec, res sandbox.Result) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(x.ctx), recordTimeout)
	defer cancel()
	if err := x.recordFiles(ctx, inst, e, res.Files); err != nil {
		return err
	}
	rec := audit.About(e.Caller, e.Thread, e.Spec.Action, audit.PhaseResult)
	rec.Sandbox, rec.Exec, rec.Subject, rec.Parent = string(inst.ID), e.ID, e.Attempt.Subject, e.Attempt.ID
	rec.Outcome, rec.Millis = string(res.Status), res.DurationMillis
	rec.BytesOut = int64(len(res.Stdout) + len(res.Stderr))
	sum := sha256.New()
	hidden := e.Secret.All                      // a hash of a value would let a reader of the log try guesses
	sum.Write(hidden.Bytes([]byte(res.Stdout))) //nolint:errcheck // a hash never fails
	sum.Write([]byte{0})                        //nolint:errcheck // a hash never fails
	sum.Write(hidden.Bytes([]byte(res.Stderr))) //nolint:errcheck // a hash never fails
	if res.Results != nil {
		for _, rich := range *res.Results {
			text, err := json.Marshal(rich) // sorted by key
			if err != nil {
				continue // it was read from JSON
			}
			rec.BytesOut += int64(len(text))
			sum.Write([]byte{1})          //nolint:errcheck // a hash never fails
			sum.Write(hidden.Bytes(text)) //nolint:errcheck // a hash never fails
		}
	}
	rec.OutHash = hex.EncodeToString(sum.Sum(nil))
	rec.Detail = e.Secret.Given.String(detail(res))
	if why := e.Reason(); why != "" {
		rec.Detail = strings.TrimPrefix(rec.Detail+", "+why, ", ")
	}
	return x.o.Audit.AppendResult(ctx, rec)
}

// filesRecorded bounds the records of one exec's files. A sandbox that changes more has one for the rest.
const filesRecorded = 200

// countReturned counts what tools answered to an exec, and what its caller gets of that: what the exec printed.
func (x *Runner) countReturned(e *execution.Exec, res *sandbox.Result, calls []sandbox.ToolCall) {
	if len(calls) == 0 {
		return
	}
	var answered int64
	for _, c := range calls {
		answered += c.Bytes
	}
	returned := int64(len(res.Stdout) + len(res.Stderr))
	if res.Results != nil {
		for _, rich := range *res.Results {
			if text, err := json.Marshal(rich); err == nil {
				returned += int64(len(text))
			}
		}
	}
	x.o.Metrics.Returned("bridge", returned)
	limits.CountResults(x.o.Limits, e.Caller, answered, returned)
}

// recordFiles writes what the exec changed, before its end and durable with it.
func (x *Runner) recordFiles(ctx context.Context, inst *instance.Instance, e *execution.Exec, files []sandbox.FileChange) error {
	for i, f := range files {
		rec := audit.About(e.Caller, e.Thread, audit.ActionFileChange, audit.PhaseResult)
		rec.Sandbox, rec.Exec, rec.Parent, rec.Outcome = string(inst.ID), e.ID, e.Attempt.ID, "ok"
		if i == filesRecorded {
			rest, err := json.Marshal(files[i:])
			if err != nil {
				return sandbox.Wrap(sandbox.Internal, err, "the changed files cannot be recorded")
			}
			rec.Subject, rec.OutHash = fmt.Sprintf("%d more files", len(files)-i), audit.Sum(rest)
		} else {
			rec.Subject, rec.Detail, rec.BytesOut, rec.OutHash = e.Secret.Given.String(f.Path), f.Change, f.Bytes, f.SHA256
		}
		if _, err := x.o.Audit.Append(ctx, rec); err != nil || i == filesRecorded {
			return err
		}
	}
	return nil
}

// detail says the rest of a result in a few words: its exit code, the processes that it left, and the files that it changed.
func detail(res sandbox.Result) string {
	var parts []string
	if res.ExitCode != nil {
		parts = append(parts, fmt.Sprintf("code %d", *res.ExitCode))
	}
	if res.LeftProcesses > 0 {
		parts = append(parts, fmt.Sprintf("left %d processes", res.LeftProcesses))
	} else if res.Status == sandbox.StatusExited && res.Detail != "" {
		parts = append(parts, res.Detail)
	}
	const most = 20
	for i, f := range res.Files {
		if i == most {
			parts = append(parts, fmt.Sprintf("and %d more files", len(res.Files)-most))
			break
		}
		parts = append(parts, f.Change+" "+f.Path)
	}
	return strings.Join(parts, ", ")
}

// saveFiles saves what an exec changed, before its end is acknowledged.
func (x *Runner) saveFiles(inst *instance.Instance, e *execution.Exec) error {
	err := x.o.Threads.Save(x.ctx, inst.Thread, inst.UID)
	if err == nil {
		return nil
	}
	x.o.Log.Error("files not kept after an exec", "exec", e.ID, "thread", inst.Thread.String(), "error", err)
	e.EndBecause("its files could not be kept")
	if errors.Is(err, sandbox.Conflict) {
		x.o.Threads.AbandonSuperseded(inst.Thread)
	}
	return sandbox.Wrap(sandbox.KindOf(err), err, "the exec ended, but what it changed could not be kept: %v", err)
}
