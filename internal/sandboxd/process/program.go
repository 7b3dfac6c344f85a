package process

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Exit codes of what failed to start, as shells and container engines use them.
const (
	CodeNoInterpreter = 125 // of Request.Refuse
	codeCannotExecute = 126
	codeNotFound      = 127
)

// failure is why a command could not be started.
type failure struct {
	code   int
	reason string
}

func notFound(format string, args ...any) *failure {
	return &failure{codeNotFound, fmt.Sprintf(format, args...)}
}

func cannotExecute(format string, args ...any) *failure {
	return &failure{codeCannotExecute, fmt.Sprintf(format, args...)}
}

// findProgram resolves argv[0] as a shell would: by PATH of the command's own environment when it
// has no slash, else relative to the command's folder.
func findProgram(m message) (path string, why *failure) {
	if len(m.Argv) == 0 || m.Argv[0] == "" {
		return "", notFound("no program is named")
	}
	name := m.Argv[0]
	if strings.Contains(name, "/") {
		return name, nil
	}
	for _, kv := range m.Env {
		list, ok := strings.CutPrefix(kv, "PATH=")
		if !ok {
			continue
		}
		if p := LookPath(name, list); p != "" {
			return p, nil
		}
	}
	if why := checkFolder(m.Cwd); why != nil {
		return "", why
	}
	return "", notFound("no such program: %.200q is not in PATH", name)
}

// LookPath returns the absolute path of a program in a list such as PATH, or "".
func LookPath(name, list string) string {
	for _, dir := range filepath.SplitList(list) {
		if !filepath.IsAbs(dir) {
			continue // neither "" nor "." is the folder that a caller would expect
		}
		p := filepath.Join(dir, name)
		var st unix.Stat_t
		if unix.Stat(p, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG && unix.Access(p, unix.X_OK) == nil {
			return p
		}
	}
	return ""
}

func checkFolder(dir string) *failure {
	var st unix.Stat_t
	switch err := unix.Stat(dir, &st); {
	case err != nil:
		return notFound("no such folder: %.200q (%v)", dir, err)
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return notFound("not a folder: %.200q", dir)
	case unix.Access(dir, unix.X_OK) != nil:
		return cannotExecute("folder %.200q: permission denied", dir)
	}
	return nil
}

// startFailure says in words why fork or exec failed.
func startFailure(m message, path string, err error) *failure {
	if why := checkFolder(m.Cwd); why != nil {
		return why
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(m.Cwd, path)
	}
	switch {
	case errors.Is(err, syscall.E2BIG):
		return cannotExecute("the arguments and environment are too long for the kernel (128 KiB each, about 2 MiB together): pass data by stdin or a file")
	case errors.Is(err, syscall.EAGAIN):
		return cannotExecute("the limit of processes is reached")
	case errors.Is(err, syscall.ENOMEM):
		return cannotExecute("out of memory")
	case errors.Is(err, syscall.ENOEXEC):
		return cannotExecute("%.200q is neither a program for this machine nor a script with a #! line", path)
	case errors.Is(err, syscall.ENOENT):
		var st unix.Stat_t
		if unix.Stat(path, &st) == nil {
			return notFound("the interpreter of %.200q does not exist%s", path, shebang(path))
		}
		return notFound("no such program: %.200q", path)
	case errors.Is(err, syscall.EACCES):
		return cannotExecute("%.200q is not executable", path)
	}
	return cannotExecute("cannot start %.200q: %v", path, err)
}

// shebang returns the interpreter that a script names, as " (#!…)", or "".
func shebang(path string) string {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	var b [128]byte
	n, err := unix.Read(fd, b[:])
	if err != nil || !bytes.HasPrefix(b[:n], []byte("#!")) {
		return ""
	}
	line, _, _ := bytes.Cut(b[:n], []byte("\n"))
	return fmt.Sprintf(" (%q)", line)
}
