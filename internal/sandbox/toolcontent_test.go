package sandbox

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestWithContent(t *testing.T) {
	long := strings.Repeat("a", MaxContentText)
	picture := strings.Repeat("A", 1<<20)
	for name, c := range map[string]struct {
		raw        string
		blocks     int
		structured string
	}{
		"text":                  {`{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}`, 2, ""},
		"structured":            {`{"content":[],"structuredContent":{"a":1}}`, 0, `{"a":1}`},
		"structured null":       {`{"content":[{"type":"text","text":"a"}],"structuredContent":null}`, 1, ""},
		"a large picture":       {`{"content":[{"type":"image","mimeType":"image/png","data":"` + picture + `"}]}`, 1, ""},
		"a large file":          {`{"content":[{"type":"resource","resource":{"uri":"a:b","blob":"` + picture + `"}}]}`, 1, ""},
		"pictures over all":     {`{"content":[{"type":"image","data":"` + strings.Repeat("A", MaxContentBytes) + `"}]}`, 0, ""},
		"a long text":           {`{"content":[{"type":"text","text":"` + long + `"}]}`, 0, ""},
		"long structure":        {`{"content":[{"type":"text","text":"a"}],"structuredContent":"` + long + `"}`, 0, ""},
		"a text posing as data": {`{"content":[{"type":"text","text":"a","data":"` + long + `"}]}`, 0, ""},
		"no answer":             {``, 0, ""},
		"no object":             {`[1]`, 0, ""},
	} {
		got := ToolResult{Result: json.RawMessage(`"kept"`), Raw: json.RawMessage(c.raw)}.WithContent()
		if len(got.Content) != c.blocks || string(got.Structured) != c.structured || string(got.Result) != `"kept"` {
			t.Errorf("%s: %d blocks, structured %.50q, result %s", name, len(got.Content), got.Structured, got.Result)
		}
	}
}
