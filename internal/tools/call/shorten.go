package call

import (
	"context"
	"encoding/json"
	"unicode/utf8"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

const (
	// inlineResult is the largest result that a call answers with: an agent reads it.
	inlineResult = 256 << 10
	// resultHead is what it gets of a larger one.
	resultHead = 2000
)

// shorten puts a large result of a direct call into a file and leaves its beginning.
func (x *Calls) shorten(ctx context.Context, c sandbox.Caller, t sandbox.Thread, name string, res sandbox.ToolResult) (sandbox.ToolResult, error) {
	if len(res.Result) <= inlineResult {
		return res, nil
	}
	f, err := x.o.Threads.SaveResult(ctx, t, name, res.Result)
	if err == nil {
		err = x.o.Threads.Kept(ctx, t)
	}
	if err == nil {
		err = x.o.Audit.AppendResult(context.WithoutCancel(ctx), keptRecord(c, t, "", res.CallID, f))
	}
	if err != nil {
		return res, err
	}
	head := res.Result
	var text string
	if json.Unmarshal(res.Result, &text) == nil {
		head = []byte(text)
	}
	for n := min(resultHead, len(head)); ; n-- { // at the beginning of a character
		if n == len(head) || utf8.RuneStart(head[n]) {
			head = head[:n]
			break
		}
	}
	res.File = &f
	res.Result, err = json.Marshal(string(head) + "\n[… cut; the whole is in " + f.Path + "]")
	return res, err
}
