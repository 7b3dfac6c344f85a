//go:build !linux

package mcp

import "github.com/skerry-sandbox/skerry/internal/app/cli/exit"

var errLocal = exit.With(exit.Usage, "MCP servers are started here on Linux only: name a Skerry server with --address or SKERRY_SERVER")

func defaultExtensions() (string, error) { return "", errLocal }

func openLocal(string) (toolSource, error) { return nil, errLocal }
