package service

import "github.com/skerry-sandbox/skerry/internal/sandbox"

// ServersAnswer lists the MCP servers that a thread may use.
type ServersAnswer struct {
	Servers    []sandbox.ToolServer `json:"servers"`
	TotalTools int                  `json:"total_tools"`
}

// ListServers counts the tools of servers.
func ListServers(servers []sandbox.ToolServer) ServersAnswer {
	a := ServersAnswer{Servers: servers}
	if a.Servers == nil {
		a.Servers = []sandbox.ToolServer{}
	}
	for _, srv := range servers {
		a.TotalTools += srv.ToolCount
	}
	return a
}
