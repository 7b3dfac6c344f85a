package hub

import (
	"github.com/skerry-sandbox/skerry/internal/platform/editdistance"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/excerpt"
)

// nearest returns up to three of names that look most like want; a tool is also known by its name without
// its server.
func nearest(want string, names []string) []string { return editdistance.Nearest(want, names, "__") }

// configError makes what is wrong with a server's configuration the error of a call.
func configError(server string, err error) error {
	return sandbox.Errorf(sandbox.Unavailable, "the MCP server %q is not usable: %s", server, excerpt.Detail(err))
}
