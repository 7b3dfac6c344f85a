// Package result reads results of tool calls as MCP has them: what a caller sees of them, and whether they are what their
// tool has promised.
package result

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/excerpt"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/schema"
)

// InputRequired is the type of a result that asks the client for input.
const InputRequired = "input_required"

// rawResult is the result of a call as the server writes it.
type rawResult struct {
	Content           []json.RawMessage `json:"content"`
	StructuredContent json.RawMessage   `json:"structuredContent"`
	IsError           bool              `json:"isError"`
	ResultType        string            `json:"resultType"`
}

// wrongResult is a result that cannot be passed on. Its text is for callers.
type wrongResult string

func (w wrongResult) Error() string { return string(w) }

// Reason is why a result cannot be passed on, for callers.
func Reason(err error) string {
	var w wrongResult
	if errors.As(err, &w) {
		return string(w)
	}
	return "the answer cannot be read"
}

// Of returns what a call's caller sees of a result: the structured content when there is some, else the text, parsed when
// it is JSON, else the blocks of content. Of an error, Reason is for the caller.
func Of(raw json.RawMessage, limit int) (sandbox.ToolResult, error) {
	var r rawResult
	if err := json.Unmarshal(raw, &r); err != nil {
		return sandbox.ToolResult{}, err
	}
	out := sandbox.ToolResult{IsError: r.IsError, Raw: raw}
	text, plain := textOf(r.Content)
	structured := bytes.TrimSpace(r.StructuredContent)
	hasStructure := len(structured) > 0 && string(structured) != "null"
	switch {
	case r.IsError && (plain && text != "" || !hasStructure):
		if text == "" {
			text = "the tool failed and does not say why"
		}
		out.Result = excerpt.JSON(text)
	case hasStructure:
		out.Result = structured
	case !plain:
		blocks, err := json.Marshal(r.Content)
		if err != nil {
			return sandbox.ToolResult{}, err
		}
		out.Result = blocks
	default:
		out.Result = jsonOr(text)
	}
	if len(out.Result) > limit {
		return sandbox.ToolResult{}, wrongResult(fmt.Sprintf("the result has %d bytes, the limit is %d", len(out.Result), limit))
	}
	return out, nil
}

// Promised checks a result against the output schema of its tool; nil: there is none. A tool that fails promises nothing.
// Of an error, Reason is for the caller.
func Promised(output *schema.Validator, tool string, res sandbox.ToolResult, log *slog.Logger) error {
	if output == nil || res.IsError {
		return nil
	}
	var r rawResult
	if err := json.Unmarshal(res.Raw, &r); err != nil {
		return err
	}
	if r.ResultType == InputRequired {
		return nil
	}
	if s := bytes.TrimSpace(r.StructuredContent); len(s) == 0 || string(s) == "null" {
		return wrongResult("the result has no structured content, which the tool's output schema promises")
	}
	wrong, problem := output.Fields(r.StructuredContent)
	if problem != nil {
		log.Debug("MCP server: result not checked, the schema is of no use", "tool", tool, "error", problem)
	}
	if len(wrong) == 0 {
		return nil
	}
	var parts []string
	for _, f := range wrong {
		parts = append(parts, f.Name+" "+f.Detail)
	}
	return wrongResult("the result breaks the tool's own output schema: " + strings.Join(parts, "; "))
}

// textOf joins the text of the blocks. plain is false when one of them is something else.
func textOf(blocks []json.RawMessage) (text string, plain bool) {
	plain = true
	var parts []string
	for _, b := range blocks {
		var block struct {
			Type string `json:"type"`
			Text string `json:"text"`
		}
		if json.Unmarshal(b, &block) != nil || block.Type != "text" {
			plain = false
			continue
		}
		parts = append(parts, block.Text)
	}
	return strings.Join(parts, "\n"), plain
}

// jsonOr returns text itself when it is JSON, else as a JSON string.
func jsonOr(text string) json.RawMessage {
	if t := strings.TrimSpace(text); t != "" && json.Valid([]byte(t)) {
		return json.RawMessage(t)
	}
	return excerpt.JSON(text)
}
