package hub

import (
	"regexp"
	"slices"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/platform/editdistance"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/excerpt"
)

// WrapperPath is where internal/tools/codeapi writes the TypeScript wrapper of a tool:
// /mnt/code-api/servers/<server>/<tool>.ts, both as names of files. Every character outside of
// [A-Za-z0-9_.-] is written "_", and so is a leading dot.
func WrapperPath(server, tool string) string {
	return sandbox.CodeAPIDir + "/servers/" + fileName(server) + "/" + fileName(tool) + ".ts"
}

const maxFileName = 200

var declarationFile = regexp.MustCompile(`\.d(\.|$)`)

// placeWrappers sets the WrapperPath of tools, which are in order. internal/tools/codeapi makes names that
// differ in the case of letters alone one file, that of the first.
func placeWrappers(tools []sandbox.Tool) {
	first := map[string]string{}
	place := func(path string) string {
		low := strings.ToLower(path)
		if first[low] == "" {
			first[low] = path
		}
		return first[low]
	}
	for i := range tools {
		t := &tools[i]
		folder := place(sandbox.CodeAPIDir + "/servers/" + fileName(t.Server))
		if strings.EqualFold(fileName(t.Name), "index") {
			t.WrapperPath = folder + "/index.ts"
		} else {
			t.WrapperPath = place(folder + "/" + fileName(t.Name) + ".ts")
		}
	}
}

// fileName follows codeapi.FileName; a test holds the two together.
func fileName(name string) string {
	var b strings.Builder
	for _, r := range name {
		if b.Len() == maxFileName {
			break
		}
		ok := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' || r == '.' && b.Len() > 0
		if !ok {
			r = '_'
		}
		b.WriteByte(byte(r))
	}
	s := b.String()
	for declarationFile.MatchString(s) { // one match may take the dot of the next: x.d.d
		s = declarationFile.ReplaceAllString(s, "_d$1")
	}
	switch s {
	case "":
		return "_"
	case "__init__.py":
		return "__init___py"
	default:
		return s
	}
}

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
