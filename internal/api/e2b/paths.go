package e2b

import (
	"path"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// homeDir is where E2B's sandboxes keep their user's files. Ours keep them in the workspace, and nothing is at
// homeDir itself.
const homeDir = "/home/user"

const maxPath = 4096

// virtual is the path of ours that a path of E2B means: relative ones, ~ and /home/user are below the workspace.
func virtual(name string) (string, error) {
	if name == "" || len(name) > maxPath || strings.ContainsRune(name, 0) {
		return "", sandbox.Errorf(sandbox.Invalid, "path: want 1 to %d bytes without NUL", maxPath)
	}
	switch {
	case name == "~" || strings.HasPrefix(name, "~/"):
		name = homeDir + name[1:]
	case !strings.HasPrefix(name, "/"):
		name = homeDir + "/" + name
	}
	name = path.Clean(name)
	if rest, ok := strings.CutPrefix(name, homeDir); ok && (rest == "" || rest[0] == '/') {
		name = sandbox.WorkspaceDir + rest
	}
	return name, nil
}

// workingDir is the same for the folder of a process; "" is the workspace.
func workingDir(name string) (string, error) {
	if name == "" {
		return "", nil
	}
	return virtual(name)
}

// checkUser refuses all user names but the sandbox's only user.
func checkUser(name string) error {
	if name != "" && name != "user" {
		return notSupported("user " + strings.ToValidUTF8(name[:min(len(name), 64)], "?") + ": a sandbox has one unprivileged user")
	}
	return nil
}
