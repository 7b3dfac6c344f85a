package packs

import (
	"encoding/base64"
	"encoding/json"

	"github.com/google/jsonschema-go/jsonschema"

	packsv1 "github.com/skerry-sandbox/skerry/sdk/packs/v1"
)

// resultsDir is the folder in a sandbox where the server puts the files of results.
const resultsDir = "/mnt/user-data/workspace/tool-results/"

// File is a block of content that becomes a file of the thread, and the path at which code finds it. A name has 1 to 128
// of the characters A-Z a-z 0-9 . _ -, and begins with a letter or a digit. A file that exists is not replaced, so a name
// should not come twice.
func File(name, mimeType string, content []byte) (block map[string]any, path string) {
	resource := map[string]any{"uri": "file://" + resultsDir + name, "mimeType": mimeType, "blob": base64.StdEncoding.EncodeToString(content)}
	return map[string]any{"type": "resource", "resource": resource}, resultsDir + name
}

// Output says that the structured content of a tool is a T, for a tool that returns a *Result.
func Output[T any]() Option {
	return func(d *packsv1.ToolDefinition) {
		schema, err := jsonschema.For[T](nil)
		if err == nil {
			d.OutputSchemaJson, _, err = resolved(schema)
		}
		if err != nil {
			d.OutputSchemaJson = err.Error() // no JSON, which Tool refuses
		}
	}
}

// wrongOutput says why a tool has no schema of results, or "".
func wrongOutput(d *packsv1.ToolDefinition) string {
	if s := d.GetOutputSchemaJson(); s != "" && !json.Valid([]byte(s)) {
		return s
	}
	return ""
}
