package codeapi

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
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
	if n := len(set.Tools) + len(set.Skills); n > maxTools {
		return nil, sandbox.Errorf(sandbox.Invalid, "%d tools: at most %d can have wrappers", n, maxTools)
	}
	tree := map[string][]byte{}
	if err := addHelpers(tree); err != nil {
		return nil, sandbox.Wrap(sandbox.Internal, err, "the helpers of the code API cannot be read")
	}
	tools := sorted(set.Tools)
	addTypeScript(tree, ofServers, tools)
	tree["servers/__init__.py"] = []byte("\"\"\"One package for each MCP server.\"\"\"\n")
	addPython(tree, ofServers, tools)
	// Without skills there is no package: a program's own one may have the name.
	tree["skills/README.md"] = []byte("Typed functions for the tools of active skills: one folder for each skill.\n")
	if skills := sorted(set.Skills); len(skills) > 0 {
		for i := range skills {
			skills[i].Server, _ = sandbox.SkillOfServer(skills[i].Server)
		}
		addTypeScript(tree, ofSkills, skills)
		tree["skills/__init__.py"] = []byte("\"\"\"One package for each active skill with tools.\"\"\"\n")
		addPython(tree, ofSkills, skills)
	}
	return tree, nil
}

// owners are those that tools are of.
type owners struct{ folder, title string }

var (
	ofServers = owners{"servers/", "the MCP server"}
	ofSkills  = owners{"skills/", "the skill"}
)

// WithSkills is the hash of a set with its tools of skills. Without any it is that of the set.
func WithSkills(set sandbox.ToolSet) string {
	if len(set.Skills) == 0 || set.Hash == "" {
		return set.Hash
	}
	sum, err := hashOf(set.Skills)
	if err != nil {
		return "" // it is computed when it is needed
	}
	return set.Hash + "+" + sum[:hashLen]
}

// hashLen is how many digits of a hash tell sets apart.
const hashLen = 32

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

func hashOf(tools []sandbox.Tool) (string, error) {
	h := sha256.New()
	if err := json.NewEncoder(h).Encode(sorted(tools)); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
