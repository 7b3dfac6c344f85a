package hub

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/excerpt"
)

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

func reasonOf(err error) string {
	var w wrongResult
	if errors.As(err, &w) {
		return string(w)
	}
	return "the answer cannot be read"
}

// resultOf returns what a call's caller sees: the structured content when there is some, else the text,
// parsed when it is JSON, else the blocks of content. raw is the result as the transport saw it, or
// nothing where it cannot see.
func resultOf(res *mcp.CallToolResult, raw json.RawMessage, limit int) (sandbox.ToolResult, error) {
	if len(raw) == 0 {
		text, err := json.Marshal(res)
		if err != nil {
			return sandbox.ToolResult{}, err
		}
		raw = text
	}
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

// promised checks a result against the output schema of its tool. A tool that fails promises nothing.
func (t *tool) promised(res sandbox.ToolResult, log *slog.Logger) error {
	if t.output == nil || res.IsError {
		return nil
	}
	var r rawResult
	if err := json.Unmarshal(res.Raw, &r); err != nil {
		return err
	}
	if r.ResultType == inputRequired {
		return nil
	}
	if s := bytes.TrimSpace(r.StructuredContent); len(s) == 0 || string(s) == "null" {
		return wrongResult("the result has no structured content, which the tool's output schema promises")
	}
	wrong, problem := t.output.Fields(r.StructuredContent)
	if problem != nil {
		log.Debug("MCP server: result not checked, the schema is of no use", "tool", t.Printed, "error", problem)
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
