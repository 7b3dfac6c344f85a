package mcp

import (
	"context"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// activationTools are those of ownTools that are there only where tools are deferred.
var activationTools = map[string]bool{"activate_tool": true, "put_away_tool": true}

func (m *tools) addActivation(srv *sdk.Server) {
	addTool(srv, m.scoped, "activate_tool", "Add a deferred tool to your tools by its name, server__tool. A search with detail full adds those that it shows.", m.activateTool)
	addTool(srv, m.scoped, "put_away_tool", "Take a tool out of your tools again.", m.putAwayTool)
}

type activeToolIn struct {
	Name string `json:"name"`
}

func (m *tools) activateTool(ctx context.Context, in activeToolIn) (any, error) {
	t, err := m.o.ActiveTools.ActivateTool(ctx, m.caller(ctx), m.scope.Thread, in.Name)
	if err != nil {
		return nil, err
	}
	return sandbox.ToolFound{Name: t.Printed, ShortName: t.Name, Server: t.Server, Description: t.Description, Parameters: t.Input, WrapperPath: t.WrapperPath}, nil
}

func (m *tools) putAwayTool(ctx context.Context, in activeToolIn) (any, error) {
	if err := m.o.ActiveTools.PutAwayTool(ctx, m.caller(ctx), m.scope.Thread, in.Name); err != nil {
		return nil, err
	}
	return in.Name + " is put away", nil
}
