// Package wrapperpath names the files of wrappers: those that package codeapi writes, and that lists of tools
// tell agents of.
package wrapperpath

import (
	"regexp"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// MaxFileName leaves room for the endings within the 255 bytes of a file name.
const MaxFileName = 200

// declaration makes a name that of a TypeScript declaration file.
var declaration = regexp.MustCompile(`\.(d(?:\.|$))`)

// FileName is how the name of a server or a tool is written as a file or folder. Every character outside of
// [A-Za-z0-9_.-] becomes "_". So do a leading dot and the dot of ".d" before a dot or the end (x.d.ts holds
// no code). Two names may become one file name, in whatever case; what they name then shares the file of the
// first.
func FileName(name string) string {
	var b strings.Builder
	for _, r := range name {
		if b.Len() == MaxFileName {
			break
		}
		ok := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' || r == '.' && b.Len() > 0
		if !ok {
			r = '_'
		}
		b.WriteByte(byte(r))
	}
	s := b.String()
	for declaration.MatchString(s) { // one match may take the dot of the next: x.d.d
		s = declaration.ReplaceAllString(s, "_$1")
	}
	switch s {
	case "":
		return "_"
	case "__init__.py": // a file that is already there
		return "__init___py"
	default:
		return s
	}
}

// Of is where the wrapper of a tool is: /mnt/code-api/servers/<server>/<tool>.ts, both as names of files.
func Of(server, tool string) string { return folder(server) + "/" + FileName(tool) + ".ts" }

func folder(server string) string { return sandbox.CodeAPIDir + "/servers/" + FileName(server) }

// Place sets the WrapperPath of tools, which are in order. Names that differ in the case of letters alone are
// one file, that of the first.
func Place(tools []sandbox.Tool) {
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
		at := place(folder(t.Server))
		if strings.EqualFold(FileName(t.Name), "index") {
			t.WrapperPath = at + "/index.ts"
		} else {
			t.WrapperPath = place(at + "/" + FileName(t.Name) + ".ts")
		}
	}
}
