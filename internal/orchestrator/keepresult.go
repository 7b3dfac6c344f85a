package orchestrator

import (
	"bytes"
	"context"
	"encoding/json"
	"unicode/utf8"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/workspace/paths"
)

const (
	// resultsDir holds results of tools that are too large for an answer.
	resultsDir = sandbox.WorkspaceDir + "/.skerry/results"
	// inlineResult is the largest result that a direct call answers with: an agent reads it.
	inlineResult = 256 << 10
	// resultHead is what it gets of a larger one.
	resultHead = 2000
)

// KeepResult writes a tool's result into the thread's files. name is fit for a file name.
func (r *Orchestrator) KeepResult(ctx context.Context, t sandbox.Thread, name string, result json.RawMessage) (sandbox.ResultFile, error) {
	f := sandbox.ResultFile{Path: resultsDir + "/" + name + ".json", Format: "json"}
	content := []byte(result)
	var text string
	if json.Unmarshal(result, &text) == nil {
		f.Path, f.Format, content = resultsDir+"/"+name+".txt", "text", []byte(text)
	}
	f.Bytes = int64(len(content))
	uid, err := r.ensureThread(ctx, t)
	if err != nil {
		return f, err
	}
	return f, r.changeFiles(ctx, t, uid, func(fs *paths.FS) error {
		_, err := fs.Write(ctx, f.Path, bytes.NewReader(content), false)
		return err
	})
}

// shorten puts a large result of a direct call into a file and leaves its beginning.
func (r *Orchestrator) shorten(ctx context.Context, c sandbox.Caller, t sandbox.Thread, name string, res sandbox.ToolResult) (sandbox.ToolResult, error) {
	if len(res.Result) <= inlineResult {
		return res, nil
	}
	f, err := r.KeepResult(ctx, t, name, res.Result)
	if err == nil {
		err = r.keepChanged(ctx, t)
	}
	if err == nil {
		err = r.o.Audit.AppendResult(context.WithoutCancel(ctx), keptRecord(c, t, "", res.CallID, f))
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
