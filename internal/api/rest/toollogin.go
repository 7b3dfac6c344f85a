package rest

import (
	"context"
	"net/http"

	"github.com/skerry-sandbox/skerry/internal/api/rest/exchange"
	"github.com/skerry-sandbox/skerry/internal/api/rest/route"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// loginRoutes are the routes of logins at MCP servers.
type loginRoutes struct {
	logins mcpLogins
}

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
func (s loginRoutes) add(api *route.API) {
	const path = "/api/mcp/servers/{name}/login"
	route.Register(api, route.On(http.MethodPost, path, "beginMCPLogin", route.TagTools, route.Developers, "Begin a login at an MCP server; the answer has the URL to open in a browser"), s.beginLogin)
	route.Register(api, route.On(http.MethodPost, path+"/finish", "finishMCPLogin", route.TagTools, route.Developers, "Finish a login at an MCP server"), s.finishLogin)
	route.Register(api, route.On(http.MethodDelete, path, "endMCPLogin", route.TagTools, route.Developers, "Forget a login at an MCP server"), s.logout)
}

func (s loginRoutes) beginLogin(ctx context.Context, in *loginIn) (*route.Body[sandbox.ToolLogin], error) {
	l, err := s.logins.BeginLogin(ctx, exchange.CallerOf(ctx), in.Name, in.Body.RedirectURI)
	if err != nil {
		return nil, err
	}
	return route.BodyOf(l), nil
}

func (s loginRoutes) finishLogin(ctx context.Context, in *loggedIn) (*struct{}, error) {
	return nil, s.logins.FinishLogin(ctx, exchange.CallerOf(ctx), in.Name, in.Body.Redirected)
}

func (s loginRoutes) logout(ctx context.Context, in *ServerIn) (*struct{}, error) {
	return nil, s.logins.Logout(ctx, exchange.CallerOf(ctx), in.Name)
}
