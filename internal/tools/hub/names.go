package hub

import (
	"slices"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/platform/editdistance"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/excerpt"
)

// nearest returns up to three of names that look most like want.
func nearest(want string, names []string) []string {
	type candidate struct {
		name     string
		distance int
	}
	var list []candidate
	low := strings.ToLower(want)
	if len(low) > 200 {
		low = low[:200]
	}
	for _, n := range names {
		l := strings.ToLower(n)
		d := editdistance.Of(low, l)
		if _, short, ok := strings.Cut(l, "__"); ok {
			d = min(d, editdistance.Of(low, short)+1)
		}
		if d <= max(2, len(low)/3) {
			list = append(list, candidate{n, d})
		}
	}
	slices.SortStableFunc(list, func(a, b candidate) int { return a.distance - b.distance })
	var near []string
	for _, c := range list[:min(len(list), 3)] {
		near = append(near, c.name)
	}
	return near
}

// configError makes what is wrong with a server's configuration the error of a call.
func configError(server string, err error) error {
	return sandbox.Errorf(sandbox.Unavailable, "the MCP server %q is not usable: %s", server, excerpt.Detail(err))
}
