package rest

import (
	"context"
	"net/http"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// loginRoutes are the routes of logins at MCP servers.
type loginRoutes struct{ *server }

// loginIn begins a login.
type loginIn struct {
	ServerIn
	Body struct {
		RedirectURI string `json:"redirect_uri" minLength:"1" maxLength:"2048" doc:"The http URL of a loopback address to which the browser is sent back"`
	}
}

// loggedIn ends one.
type loggedIn struct {
	ServerIn
	Body struct {
		Redirected string `json:"redirected" minLength:"1" maxLength:"16384" doc:"The whole URL that the browser was sent back to"`
	}
}

// loginRoutes are for every caller: a login at an MCP server is the caller's own. That of a server that all
// share needs administration rights, which the hub checks, for it knows which one is shared.
func (s loginRoutes) add() {
	const path = "/api/mcp/servers/{name}/login"
	register(s.server, s.api, on(http.MethodPost, path, "beginMCPLogin", tagTools, developers, "Begin a login at an MCP server; the answer has the URL to open in a browser"), s.beginLogin)
	register(s.server, s.api, on(http.MethodPost, path+"/finish", "finishMCPLogin", tagTools, developers, "Finish a login at an MCP server"), s.finishLogin)
	register(s.server, s.api, on(http.MethodDelete, path, "endMCPLogin", tagTools, developers, "Forget a login at an MCP server"), s.logout)
}

func (s loginRoutes) beginLogin(ctx context.Context, in *loginIn) (*body[sandbox.ToolLogin], error) {
	l, err := s.o.MCPLogins.BeginLogin(ctx, callerOf(ctx), in.Name, in.Body.RedirectURI)
	if err != nil {
		return nil, err
	}
	return bodyOf(l), nil
}

func (s loginRoutes) finishLogin(ctx context.Context, in *loggedIn) (*struct{}, error) {
	return nil, s.o.MCPLogins.FinishLogin(ctx, callerOf(ctx), in.Name, in.Body.Redirected)
}

func (s loginRoutes) logout(ctx context.Context, in *ServerIn) (*struct{}, error) {
	return nil, s.o.MCPLogins.Logout(ctx, callerOf(ctx), in.Name)
}
