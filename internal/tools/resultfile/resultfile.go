package resultfile

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"regexp"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Dir is the folder of these files in a sandbox. Prefix is how a tool names it in the URI of a resource.
const (
	Dir    = sandbox.WorkspaceDir + "/tool-results"
	Prefix = "file://" + Dir + "/"
)

// maxFiles is how many files one result may have.
const maxFiles = 16

// name is that of a file: it is hidden from no list, and means nothing to a shell.
var name = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// Save writes a new file of a thread. An error says why it cannot: QuotaExceeded, or ToolFailed when the file exists.
type Save func(ctx context.Context, t sandbox.Thread, path string, content []byte) error

// resource is what a block of content embeds.
type resource struct {
	URI      string  `json:"uri"`
	MIMEType string  `json:"mimeType"`
	Blob     *string `json:"blob"`
	Text     *string `json:"text"`
}

// link takes the place of a resource that became a file.
type link struct {
	Type     string `json:"type"`
	URI      string `json:"uri"`
	Name     string `json:"name"`
	MIMEType string `json:"mimeType,omitempty"`
	Size     int    `json:"size"`
}

// pending is a file that is not written yet.
type pending struct {
	sandbox.ResultFile
	content []byte
}

// Move writes the files of a result, and returns the result with links in their place, and what it wrote. It writes
// nothing of a result that fails, or that has a file which cannot be one. An error is ToolFailed, or that of save.
func Move(ctx context.Context, t sandbox.Thread, res sandbox.ToolResult, save Save) (sandbox.ToolResult, []sandbox.ResultFile, error) {
	if res.IsError || save == nil || !bytes.Contains(res.Raw, []byte(`"resource"`)) {
		return res, nil, nil
	}
	var members map[string]json.RawMessage
	var blocks []json.RawMessage
	if json.Unmarshal(res.Raw, &members) != nil || json.Unmarshal(members["content"], &blocks) != nil {
		return res, nil, nil
	}
	files, err := find(blocks)
	if err != nil || len(files) == 0 {
		return res, nil, err
	}
	var written []sandbox.ResultFile
	for _, f := range files {
		if err := save(ctx, t, f.Path, f.content); err != nil {
			return res, written, err
		}
		written = append(written, f.ResultFile)
	}
	content, err := json.Marshal(blocks)
	if err != nil {
		return res, written, sandbox.Wrap(sandbox.Internal, err, "the result cannot be written")
	}
	members["content"] = content
	if res.Raw, err = json.Marshal(members); err != nil {
		return res, written, sandbox.Wrap(sandbox.Internal, err, "the result cannot be written")
	}
	if s := bytes.TrimSpace(members["structuredContent"]); len(s) == 0 || string(s) == "null" {
		res.Result = content // the blocks are the result
	}
	return res, written, nil
}

// find returns the files among the blocks, and puts links in their place.
func find(blocks []json.RawMessage) ([]pending, error) {
	var files []pending
	for i, raw := range blocks {
		var b struct {
			Type     string   `json:"type"`
			Resource resource `json:"resource"`
		}
		if json.Unmarshal(raw, &b) != nil || b.Type != "resource" || !strings.HasPrefix(b.Resource.URI, Prefix) {
			continue
		}
		f, err := b.Resource.file()
		if err != nil {
			return nil, err
		}
		if files = append(files, f); len(files) > maxFiles {
			return nil, sandbox.Errorf(sandbox.ToolFailed, "the result has more than %d files", maxFiles)
		}
		l := link{Type: "resource_link", URI: b.Resource.URI, Name: strings.TrimPrefix(b.Resource.URI, Prefix), MIMEType: b.Resource.MIMEType, Size: len(f.content)}
		if blocks[i], err = json.Marshal(l); err != nil {
			return nil, sandbox.Wrap(sandbox.Internal, err, "the result cannot be written")
		}
	}
	return files, nil
}

func (r resource) file() (pending, error) {
	f := pending{}
	base := strings.TrimPrefix(r.URI, Prefix)
	if !name.MatchString(base) {
		return f, sandbox.Errorf(sandbox.ToolFailed, "the result has a file with the URI %.200q: below %s a name has 1 to 128 of the characters A-Z a-z 0-9 . _ -, and begins with a letter or a digit", r.URI, Prefix)
	}
	switch {
	case r.Blob != nil:
		content, err := base64.StdEncoding.DecodeString(*r.Blob)
		if err != nil {
			return f, sandbox.Errorf(sandbox.ToolFailed, "the result's file %s is not in base64: %s", base, err)
		}
		f.content, f.Format = content, "bytes"
	case r.Text != nil:
		f.content, f.Format = []byte(*r.Text), "text"
	default:
		return f, sandbox.Errorf(sandbox.ToolFailed, "the result's file %s has neither blob nor text", base)
	}
	f.Path, f.Bytes = Dir+"/"+base, int64(len(f.content))
	return f, nil
}
