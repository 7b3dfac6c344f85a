package app

import (
	"context"
	"encoding/json"

	"github.com/skerry-sandbox/skerry/internal/api/rest/exchange"
	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/drift"
	"github.com/skerry-sandbox/skerry/internal/tools/hub"
)

// mcpAdmin is the hub's servers and logins with each change on the record.
type mcpAdmin struct {
	*hub.Servers
	*hub.Logins
	access *access
	// packages are the hosts that packages come from.
	packages []string
}

// PutServer adds or replaces a server.
func (m mcpAdmin) PutServer(ctx context.Context, name string, config json.RawMessage) error {
	return m.recorded(ctx, "put "+name, func() error { return m.Servers.PutServer(ctx, name, config) })
}

// DeleteServer removes a server.
func (m mcpAdmin) DeleteServer(ctx context.Context, name string) error {
	return m.recorded(ctx, "delete "+name, func() error { return m.Servers.DeleteServer(ctx, name) })
}

// InstallServer fetches the packages of a server.
func (m mcpAdmin) InstallServer(ctx context.Context, c sandbox.Caller, name string) (tools int, err error) {
	err = m.recorded(ctx, "install "+name, func() (err error) {
		tools, err = m.Servers.InstallServer(ctx, c, name, m.packages)
		return err
	})
	return tools, err
}

// FinishLogin ends a login at a server.
func (m mcpAdmin) FinishLogin(ctx context.Context, c sandbox.Caller, name, redirected string) error {
	return m.recorded(ctx, "login "+name, func() error { return m.Logins.FinishLogin(ctx, c, name, redirected) })
}

// Logout forgets one.
func (m mcpAdmin) Logout(ctx context.Context, c sandbox.Caller, name string) error {
	return m.recorded(ctx, "logout "+name, func() error { return m.Logins.Logout(ctx, c, name) })
}

// recorded does it between two records.
func (m mcpAdmin) recorded(ctx context.Context, subject string, do func() error) error {
	c, _ := exchange.CallerFrom(ctx)
	return m.access.recorded(ctx, c, audit.ActionMCPConfig, subject, func(*audit.Record) error { return do() })
}

// driftAdmin is the memory of tools, with approvals in force at once.
type driftAdmin struct {
	*drift.Service
	hub *hub.Hub
}

// Approve takes tools as they are now.
func (d driftAdmin) Approve(ctx context.Context, c sandbox.Caller, server, tool, hash string) ([]string, error) {
	approved, err := d.Service.Approve(ctx, c, server, tool, hash)
	if len(approved) > 0 {
		d.hub.Recheck(server)
	}
	return approved, err
}
