package e2b

import (
	"path"
	"slices"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// homeDir is where E2B's sandboxes keep their user's files. It is a link to the workspace (sandbox.WorkspaceLinks).
const homeDir = "/home/user"

const maxPath = 4096

// virtual is the path of ours that a path of E2B means: relative ones, ~ and what leads to the workspace are below it.
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
	return sandbox.InWorkspace(path.Clean(name)), nil
}

// shown is the path of E2B for one of ours: the workspace is its home.
func shown(name string) string {
	if below(name, sandbox.WorkspaceDir) {
		return homeDir + strings.TrimPrefix(name, sandbox.WorkspaceDir)
	}
	return name
}

func below(name, dir string) bool { return name == dir || strings.HasPrefix(name, dir+"/") }

// ofThread reports whether a path is one of the thread's files. Others are those of its sandbox alone.
func ofThread(name string) bool {
	return slices.ContainsFunc([]string{sandbox.UserDataDir, sandbox.SkillsDir, sandbox.PluginsDir, sandbox.CodeAPIDir}, func(dir string) bool {
		return below(name, dir)
	})
}

// workingDir is the folder in which a process begins.
func workingDir(name string) (string, error) {
	if name == "" {
		return homeDir, nil
	}
	at, err := virtual(name)
	return shown(at), err
}

// checkUser refuses all user names but the sandbox's only user.
func checkUser(name string) error {
	if name != "" && name != "user" {
		return notSupported("user " + strings.ToValidUTF8(name[:min(len(name), 64)], "?") + ": a sandbox has one unprivileged user")
	}
	return nil
}
