package main

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/httpserver"
	"github.com/skerry-sandbox/skerry/internal/mcphub"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tooldrift"
)

// mcpAdmin is the hub with each change of its servers on the record.
type mcpAdmin struct {
	*mcphub.Hub
	access *access
}

// PutServer adds or replaces a server.
func (m mcpAdmin) PutServer(ctx context.Context, name string, config json.RawMessage) error {
	return m.recorded(ctx, "put "+name, m.Hub.PutServer(ctx, name, config))
}

// DeleteServer removes a server.
func (m mcpAdmin) DeleteServer(ctx context.Context, name string) error {
	return m.recorded(ctx, "delete "+name, m.Hub.DeleteServer(ctx, name))
}

// FinishLogin ends a login at a server.
func (m mcpAdmin) FinishLogin(ctx context.Context, c sandbox.Caller, name, redirected string) error {
	return m.recorded(ctx, "login "+name, m.Hub.FinishLogin(ctx, c, name, redirected))
}

// Logout forgets one.
func (m mcpAdmin) Logout(ctx context.Context, c sandbox.Caller, name string) error {
	return m.recorded(ctx, "logout "+name, m.Hub.Logout(ctx, c, name))
}

// recorded writes what was done, and gives back the error of doing it.
func (m mcpAdmin) recorded(ctx context.Context, subject string, did error) error {
	c, _ := httpserver.CallerFrom(ctx)
	outcome := "ok"
	if did != nil {
		outcome = "error"
	}
	// The change is made by now, or refused: its record must not depend on the caller staying.
	return errors.Join(did, m.access.note(context.WithoutCancel(ctx), c, audit.ActionMCPConfig, subject, outcome))
}

// driftAdmin is the memory of tools, with approvals in force at once.
type driftAdmin struct {
	*tooldrift.Service
	hub *mcphub.Hub
}

// Approve takes tools as they are now.
func (d driftAdmin) Approve(ctx context.Context, c sandbox.Caller, server, tool, hash string) ([]string, error) {
	approved, err := d.Service.Approve(ctx, c, server, tool, hash)
	if len(approved) > 0 {
		d.hub.Recheck(server)
	}
	return approved, err
}
