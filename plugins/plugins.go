// Package plugins holds the plugins that are compiled into the program.
package plugins

import "embed"

// FS has one folder below installed/ for each plugin, and the marketplace that lists them.
//
//go:embed all:installed marketplace.json
var FS embed.FS
