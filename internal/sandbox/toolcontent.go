package sandbox

import "encoding/json"

// What a model is shown of a result goes through its context. Images and other media count by themselves: they are
// large as text, and not as what the model sees.
const (
	MaxContentText  = 256 << 10 // bytes of all blocks without their media, and of the structured content
	MaxContentBytes = 8 << 20   // bytes of all
)

// WithContent returns the result with the blocks of content and the structured content that the MCP server wrote. A
// result that has too much of either keeps only what it has: Result, and File where Result is cut.
func (r ToolResult) WithContent() ToolResult {
	var raw struct {
		Content    []json.RawMessage `json:"content"`
		Structured json.RawMessage   `json:"structuredContent"`
	}
	if len(r.Raw) > MaxContentBytes || json.Unmarshal(r.Raw, &raw) != nil {
		return r
	}
	text := len(raw.Structured)
	for _, b := range raw.Content {
		text += len(b) - mediaBytes(b)
	}
	if text > MaxContentText {
		return r
	}
	r.Content = raw.Content
	if string(raw.Structured) != "null" {
		r.Structured = raw.Structured
	}
	return r
}

// mediaBytes is how many bytes of a block are the base64 of an image, a sound or a file.
func mediaBytes(block json.RawMessage) int {
	var b struct {
		Type     string `json:"type"`
		Data     string `json:"data"`
		Resource struct {
			Blob string `json:"blob"`
		} `json:"resource"`
	}
	if json.Unmarshal(block, &b) != nil {
		return 0
	}
	switch b.Type {
	case "image", "audio":
		return len(b.Data)
	case "resource":
		return len(b.Resource.Blob)
	}
	return 0
}
