package sandboxd

import (
	"os"
	"path"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/sandboxd/interp"
)

// folder is where a program begins that is to begin in dir: the workspace, where the image lacks a link to it.
func folder(dir string) string {
	in := sandbox.InWorkspace(path.Clean(dir))
	if in == path.Clean(dir) {
		return dir
	}
	if _, err := os.Stat(strings.TrimSuffix(path.Clean(dir), strings.TrimPrefix(in, sandbox.WorkspaceDir))); err == nil {
		return dir
	}
	return in
}

func envValue(env []string, name string) string {
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			return v
		}
	}
	return ""
}

// mergeEnv returns the environment of an exec: the base, what the program needs (nil for none), then
// that of the request, each replacing what came before. Names without "=" are passed on, to be
// refused by package process.
func mergeEnv(base, request []string, cwd string, program *interp.Program) []string {
	env := make([]string, 0, len(base)+len(request)+4)
	at := make(map[string]int, cap(env))
	set := func(kv string) {
		name, _, _ := strings.Cut(kv, "=")
		if i, ok := at[name]; ok {
			env[i] = kv
			return
		}
		at[name] = len(env)
		env = append(env, kv)
	}
	for _, kv := range base {
		set(kv)
	}
	set("PWD=" + cwd)
	if program != nil {
		for _, kv := range program.Env {
			set(kv)
		}
	}
	for _, kv := range request {
		set(kv)
	}
	if program == nil || program.PathEnv == "" {
		return env
	}
	ours := envValue(program.Env, program.PathEnv)
	if theirs := envValue(env, program.PathEnv); theirs != ours && theirs != "" {
		ours += ":" + theirs
	}
	set(program.PathEnv + "=" + ours)
	return env
}
