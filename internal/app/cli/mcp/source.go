package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/app/cli/client"
	"github.com/skerry-sandbox/skerry/internal/app/cli/exit"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// remoteTools are the tools of a thread at a Skerry server.
type remoteTools struct {
	api    *client.Client
	thread string
}

func (r *remoteTools) servers(ctx context.Context) ([]sandbox.ToolServer, error) {
	var out struct {
		Servers []sandbox.ToolServer `json:"servers"`
	}
	err := r.get(ctx, "servers", &out)
	return out.Servers, err
}

func (r *remoteTools) toolsOf(ctx context.Context, server string) ([]sandbox.Tool, error) {
	var out struct {
		Items []sandbox.ToolFound `json:"items"`
	}
	if err := r.get(ctx, "servers/"+url.PathEscape(server)+"/tools", &out); err != nil {
		return nil, err
	}
	var list []sandbox.Tool
	for _, t := range out.Items {
		list = append(list, sandbox.Tool{Server: t.Server, Name: t.ShortName, Printed: t.Name, Description: t.Description, Input: t.Parameters, Output: t.Output, WrapperPath: t.WrapperPath})
	}
	return list, nil
}

func (r *remoteTools) get(ctx context.Context, path string, out any) error {
	return r.api.Call(ctx, http.MethodGet, client.ThreadPath(r.thread, path), nil, out)
}

func (r *remoteTools) call(ctx context.Context, tool string, input json.RawMessage) (sandbox.ToolResult, error) {
	var res sandbox.ToolResult
	err := r.api.CallOnce(ctx, http.MethodPost, client.ThreadPath(r.thread, "tools/call"), map[string]any{"tool": tool, "input": input}, &res)
	return res, err
}

func (r *remoteTools) beginLogin(ctx context.Context, server, redirect string) (sandbox.ToolLogin, error) {
	var l sandbox.ToolLogin
	err := r.api.Call(ctx, http.MethodPost, loginPath(server), map[string]string{"redirect_uri": redirect}, &l)
	return l, err
}

func (r *remoteTools) finishLogin(ctx context.Context, server, redirected string) error {
	return r.api.Call(ctx, http.MethodPost, loginPath(server)+"/finish", map[string]string{"redirected": redirected}, nil)
}

func (r *remoteTools) logout(ctx context.Context, server string) error {
	return r.api.Call(ctx, http.MethodDelete, loginPath(server), nil, nil)
}

func loginPath(server string) string { return "/api/mcp/servers/" + url.PathEscape(server) + "/login" }

func (r *remoteTools) config() string { return "" }
func (r *remoteTools) close() error   { return nil }

// selected returns the servers of these names, or all; a name that is none is an error.
func selected(ctx context.Context, s toolSource, names []string) ([]sandbox.ToolServer, error) {
	all, err := s.servers(ctx)
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return all, nil
	}
	var list []sandbox.ToolServer
	for _, n := range names {
		i := slices.IndexFunc(all, func(s sandbox.ToolServer) bool { return s.Name == n })
		if i < 0 {
			return nil, exit.With(exit.NoTool, "there is no MCP server %q; %s", n, known(all))
		}
		list = append(list, all[i])
	}
	return list, nil
}

func known(all []sandbox.ToolServer) string {
	if len(all) == 0 {
		return "none is configured"
	}
	names := make([]string, 0, len(all))
	for _, s := range all {
		names = append(names, s.Name)
	}
	return "there are: " + strings.Join(names, ", ")
}

// owner finds the tool that a person names, as SERVER.TOOL or by its printed name.
func owner(ctx context.Context, s toolSource, name string) (sandbox.Tool, error) {
	servers, err := s.servers(ctx)
	if err != nil {
		return sandbox.Tool{}, err
	}
	var near []string
	for _, srv := range servers {
		_, dotted := strings.CutPrefix(name, srv.Name+".")
		if !dotted && !strings.Contains(name, "__") {
			continue
		}
		tools, err := s.toolsOf(ctx, srv.Name)
		if err != nil && dotted {
			return sandbox.Tool{}, err
		}
		for _, t := range tools {
			if name == t.Printed || name == t.Server+"."+t.Name {
				return t, nil
			}
			if dotted {
				near = append(near, t.Name)
			}
		}
		if dotted && srv.Error != "" {
			return sandbox.Tool{}, exit.With(exit.Failed, "the MCP server %q does not answer: %s", srv.Name, srv.Error)
		}
	}
	hint := known(servers)
	if len(near) > 0 {
		hint = "its server has: " + strings.Join(near, ", ")
	}
	return sandbox.Tool{}, exit.With(exit.NoTool, "there is no tool %q; %s", name, hint)
}

// listed is a server with its tools.
type listed struct {
	sandbox.ToolServer
	Tools []sandbox.ToolFound `json:"tools"`
	full  []sandbox.Tool
}

// withTools asks each server for its tools. A server that does not answer has its error in place of tools.
func withTools(ctx context.Context, s toolSource, servers []sandbox.ToolServer) ([]listed, error) {
	var list []listed
	for _, srv := range servers {
		l := listed{ToolServer: srv, Tools: []sandbox.ToolFound{}}
		if srv.Error == "" {
			tools, err := s.toolsOf(ctx, srv.Name)
			switch {
			case ctx.Err() != nil:
				return nil, fmt.Errorf("the MCP server %q took too long: %w", srv.Name, ctx.Err())
			case err != nil:
				l.State, l.Error = "failed", err.Error()
			}
			l.full, l.ToolCount = tools, len(tools)
		}
		list = append(list, l)
	}
	return list, nil
}
