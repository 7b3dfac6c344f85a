package rest

import (
	"bytes"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/skerry-sandbox/skerry/internal/e2e/docblock"
)

// TestDocuments: bodies that documents show fit the schemas of the OpenAPI document.
func TestDocuments(t *testing.T) {
	t.Parallel()
	schemas := map[string]string{"docs/limits.md": "Problem", "docs/secrets.md": "ExecBody"}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(send(handler(t, newWorld(t)), "GET", "/openapi.json", "").Body.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	if err := c.AddResource("urn:openapi", document); err != nil {
		t.Fatal(err)
	}
	for _, b := range docblock.Marked(t) {
		schema, err := c.Compile("urn:openapi#/components/schemas/" + schemas[b.Page])
		if err != nil {
			t.Fatal(err)
		}
		value, err := jsonschema.UnmarshalJSON(strings.NewReader(b.Text))
		if err == nil {
			err = schema.Validate(value)
		}
		if err != nil {
			t.Errorf("%s: %v", b, err)
		}
	}
}
