package orchestrator

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/workspace/paths"
)

// resultsDir holds results of tools that are too large for an answer.
const resultsDir = sandbox.WorkspaceDir + "/.skerry/results"

// callThreads are the threads of the orchestrator, as tool calls see them.
type callThreads struct{ *Orchestrator }

// MayCall implements call.Threads.
func (r callThreads) MayCall(t sandbox.Thread) error {
	if err := r.refuse(t); err != nil {
		return err
	}
	r.active(t, ActivityToolCall)
	return nil
}

// Kept implements call.Threads.
func (r callThreads) Kept(ctx context.Context, t sandbox.Thread) error {
	return r.threads.KeepChanged(ctx, t)
}

// KeepResult writes a tool's result into the thread's files. name is fit for a file name.
func (r *Orchestrator) KeepResult(ctx context.Context, t sandbox.Thread, name string, result json.RawMessage) (sandbox.ResultFile, error) {
	f := sandbox.ResultFile{Path: resultsDir + "/" + name + ".json", Format: "json"}
	content := []byte(result)
	var text string
	if json.Unmarshal(result, &text) == nil {
		f.Path, f.Format, content = resultsDir+"/"+name+".txt", "text", []byte(text)
	}
	f.Bytes = int64(len(content))
	uid, err := r.threads.Ensure(ctx, t)
	if err != nil {
		return f, err
	}
	return f, r.changeFiles(ctx, t, uid, func(fs *paths.FS) error {
		_, err := fs.Write(ctx, f.Path, bytes.NewReader(content), false)
		return err
	})
}
