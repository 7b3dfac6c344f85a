package files

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/workspace/paths"
)

// resultsDir holds results of tools that are too large for an answer.
const resultsDir = sandbox.WorkspaceDir + "/.skerry/results"

// SaveResult writes a tool's result into the thread's files. name is fit for a file name.
func (f *Files) SaveResult(ctx context.Context, t sandbox.Thread, name string, result json.RawMessage) (sandbox.ResultFile, error) {
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
	return file, f.Change(ctx, t, uid, func(fs *paths.FS) error {
		_, err := fs.Write(ctx, file.Path, bytes.NewReader(content), false)
		return err
	})
}

// SaveToolFile writes a file that a tool returned. It replaces none: another tool may have written it.
func (f *Files) SaveToolFile(ctx context.Context, t sandbox.Thread, path string, content []byte) error {
	uid, err := f.threads.Ensure(ctx, t)
	if err != nil {
		return err
	}
	return f.Change(ctx, t, uid, func(fs *paths.FS) error {
		if _, err := fs.Stat(path); err == nil {
			return sandbox.Errorf(sandbox.ToolFailed, "the tool returned the file %s, which exists: it has to name another one", path)
		} else if sandbox.KindOf(err) != sandbox.NotFound {
			return err
		}
		_, err := fs.Write(ctx, path, bytes.NewReader(content), false)
		return err
	})
}
