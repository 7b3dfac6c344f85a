// Package manifest checks what a tool pack says that it offers, and puts it into the words of the hub: a list of tools as
// MCP has it, and a server's configuration with the terms of each tool. A manifest is refused as a whole, and the error
// names the tool and the place.
package manifest
