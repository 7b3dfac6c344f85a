package codeapi

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// maxTools bounds a set. The largest known server has a few hundred.
const maxTools = 20_000

//go:embed all:static/helpers
var static embed.FS

// Generate returns the tree of a set of tools: file contents by slash-separated path relative to
// /mnt/code-api. It depends on the tools alone, not on their order; the same set makes the same bytes.
// A schema that is not understood makes an untyped wrapper, never an error. An error is Invalid (a set
// that is too large) or Internal.
func Generate(set sandbox.ToolSet) (map[string][]byte, error) {
	if len(set.Tools) > maxTools {
		return nil, sandbox.Errorf(sandbox.Invalid, "%d tools: at most %d can have wrappers", len(set.Tools), maxTools)
	}
	tree := map[string][]byte{}
	if err := addHelpers(tree); err != nil {
		return nil, sandbox.Wrap(sandbox.Internal, err, "the helpers of the code API cannot be read")
	}
	tools := sorted(set.Tools)
	addTypeScript(tree, tools)
	addPython(tree, tools)
	return tree, nil
}

func addHelpers(tree map[string][]byte) error {
	return fs.WalkDir(static, "static", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := static.ReadFile(path)
		tree[strings.TrimPrefix(path, "static/")] = text
		return err
	})
}

// sorted returns the tools by server and name, each pair once.
func sorted(tools []sandbox.Tool) []sandbox.Tool {
	list := slices.Clone(tools)
	slices.SortStableFunc(list, func(a, b sandbox.Tool) int {
		if c := strings.Compare(a.Server, b.Server); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	return slices.CompactFunc(list, func(a, b sandbox.Tool) bool { return a.Server == b.Server && a.Name == b.Name })
}

// printed is the name by which the bridge knows the tool.
func printed(t sandbox.Tool) string {
	if t.Printed != "" {
		return t.Printed
	}
	return strings.Map(func(r rune) rune {
		if r < 0x80 && (isLetter(byte(r)) || isDigit(byte(r))) {
			return r
		}
		return '_'
	}, t.Server) + "__" + t.Name
}

// writer collects lines of code.
type writer struct{ bytes.Buffer }

func (w *writer) line(format string, args ...any) {
	fmt.Fprintf(&w.Buffer, format, args...)
	w.WriteByte('\n')
}
