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
type callThreads struct{ r *Orchestrator }

// MayCall implements call.Threads.
func (s callThreads) MayCall(t sandbox.Thread) error {
	if err := s.r.Shutdown.refuse(t); err != nil {
		return err
	}
	s.r.Lifecycle.active(t, ActivityToolCall)
	return nil
}

// Kept implements call.Threads.
func (s callThreads) Kept(ctx context.Context, t sandbox.Thread) error {
	return s.r.threads.KeepChanged(ctx, t)
}

// KeepResult implements call.Threads.
func (s callThreads) KeepResult(ctx context.Context, t sandbox.Thread, name string, result json.RawMessage) (sandbox.ResultFile, error) {
	return s.r.Files.KeepResult(ctx, t, name, result)
}

// keepResult writes a tool's result into the thread's files. name is fit for a file name.
func (f *Files) KeepResult(ctx context.Context, t sandbox.Thread, name string, result json.RawMessage) (sandbox.ResultFile, error) {
	file := sandbox.ResultFile{Path: resultsDir + "/" + name + ".json", Format: "json"}
	content := []byte(result)
	var text string
	if json.Unmarshal(result, &text) == nil {
		file.Path, file.Format, content = resultsDir+"/"+name+".txt", "text", []byte(text)
	}
	file.Bytes = int64(len(content))
	uid, err := f.threads.Ensure(ctx, t)
	if err != nil {
		return file, err
	}
	return file, f.changeFiles(ctx, t, uid, func(fs *paths.FS) error {
		_, err := fs.Write(ctx, file.Path, bytes.NewReader(content), false)
		return err
	})
}
