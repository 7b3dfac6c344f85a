package paths

import (
	"path"
	"strings"
	"unicode/utf8"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Limits of a path. maxDepth bounds how many folders are held open at once as well.
const (
	maxPathBytes = 4096
	maxNameBytes = 255
	maxDepth     = 128
	maxLinks     = 40
)

// StageDir is the folder in a thread's folder where the server makes files before they take their place. Code
// in a sandbox can neither look into it nor make it. So all in it is the server's, whatever its name.
const StageDir = ".stage"

// keptDir holds what the server keeps in a workspace (spilled output). It is readable by path and left out of
// Snapshot and archives.
const keptDir = sandbox.WorkspaceDir + "/.skerry"

// roots are the only folders that a path may lie in.
var roots = []string{sandbox.UserDataDir, sandbox.SkillsDir, sandbox.PluginsDir, sandbox.CodeAPIDir}

// Clean checks a virtual path as it came from a caller and returns its one spelling: absolute, no
// empty and no "." elements, no slash at the end. Invalid says what is wrong with it; Forbidden
// says that it lies outside of the thread's folders.
func Clean(name string) (string, error) {
	switch {
	case name == "":
		return "", sandbox.Errorf(sandbox.Invalid, "path is empty")
	case len(name) > maxPathBytes:
		return "", sandbox.Errorf(sandbox.Invalid, "path is longer than %d bytes", maxPathBytes)
	case strings.IndexByte(name, 0) >= 0:
		return "", sandbox.Errorf(sandbox.Invalid, "path has a NUL character in it")
	case !utf8.ValidString(name):
		return "", sandbox.Errorf(sandbox.Invalid, "path is not valid UTF-8")
	case name[0] != '/':
		return "", sandbox.Errorf(sandbox.Invalid, "path %.200q is not absolute: begin with %s/", name, sandbox.UserDataDir)
	}
	depth := 0
	for elem := range strings.SplitSeq(name, "/") {
		switch {
		case elem == "" || elem == ".":
			continue
		case elem == "..":
			return "", sandbox.Errorf(sandbox.Invalid, "path %.200q has \"..\" in it", name)
		case len(elem) > maxNameBytes:
			return "", sandbox.Errorf(sandbox.Invalid, "path has a name longer than %d bytes in it", maxNameBytes)
		}
		depth++
	}
	if depth > maxDepth {
		return "", sandbox.Errorf(sandbox.Invalid, "path has more than %d elements", maxDepth)
	}
	clean := path.Clean(name)
	if !inRoots(clean) {
		return "", sandbox.Errorf(sandbox.Forbidden, "path %.200q: only %s can be reached", name, strings.Join(roots, ", "))
	}
	return clean, nil
}

// inRoots reports whether a clean absolute path is one of roots or below one.
func inRoots(clean string) bool {
	for _, r := range roots {
		if below(clean, r) {
			return true
		}
	}
	return false
}

// Within reports whether name is a path that Clean takes and that is dir or lies in it. It says
// nothing of symbolic links on the way.
func Within(name, dir string) bool {
	clean, err := Clean(name)
	return err == nil && below(clean, dir)
}

// below reports whether name is dir or lies in it. Both are clean and absolute.
func below(name, dir string) bool {
	return strings.HasPrefix(name, dir) && (len(name) == len(dir) || name[len(dir)] == '/')
}

func elements(clean string) []string {
	return strings.FieldsFunc(clean, func(r rune) bool { return r == '/' })
}
