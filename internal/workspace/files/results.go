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
