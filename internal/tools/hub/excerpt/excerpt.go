// Package excerpt prepares texts of MCP servers, and of errors, for people and logs: short, valid UTF-8, on one line.
package excerpt

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// maxErrText is how many bytes of a server's message an error passes on.
const maxErrText = 500

// Of shortens a text for a log or an error.
func Of(s string, most int) string {
	if len(s) <= most {
		return strings.ToValidUTF8(s, "\uFFFD")
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// Line makes the text of an MCP server fit into an error.
func Line(s string) string {
	return Of(strings.Join(strings.Fields(Of(s, 8*maxErrText)), " "), maxErrText)
}

// JSON is a text as a JSON string. HTML in it stays readable.
func JSON(text string) json.RawMessage {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(text); err != nil {
		return json.RawMessage(`""`) // no string fails
	}
	return bytes.TrimSpace(b.Bytes())
}

// Detail is the text of an error that was written for callers.
func Detail(err error) string {
	var e *sandbox.Error
	if errors.As(err, &e) {
		return e.Detail
	}
	return "it failed"
}
