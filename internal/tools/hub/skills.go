package hub

import (
	"context"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Servers offer skills by an extension of the protocol (SEP-2640).
const (
	skillsExtension = "io.modelcontextprotocol/skills"
	skillsList      = "skills/list"
)

type skillsListParams struct {
	mcp.ParamsBase
	Cursor string `json:"cursor,omitempty"`
}

// skillsListResult is read from the answer as the server wrote it.
type skillsListResult struct{ mcp.ResultBase }

// listSkills asks for a page of skills. A server that does not claim to have any is not asked.
func listSkills(ctx context.Context, s *mcp.ClientSession, cursor string) (any, error) {
	if caps := s.InitializeResult().Capabilities; caps == nil || caps.Extensions[skillsExtension] == nil {
		return map[string]any{}, nil
	}
	return mcp.CallCustomMethod[*skillsListParams, *skillsListResult](ctx, s, skillsList, &skillsListParams{Cursor: cursor})
}
