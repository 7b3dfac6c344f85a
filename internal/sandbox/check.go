package sandbox

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Bounds of what is asked to run. The OpenAPI document states them, and every way to an exec is held to them by Validate.
const (
	MaxArgs       = 1024        // words of a command
	MaxScriptArgs = 1000        // of a script, behind the words by which its skill is run
	MaxWordBytes  = 128<<10 - 1 // Linux: MAX_ARG_STRLEN, less the NUL at the end; also of a variable, with its name and "="
	MaxArgvBytes  = 2 << 20     // of all words of a command together, as sandboxd counts them
	MaxEnv        = 256
	MaxEnvBytes   = 1 << 20 // of all variables with their names and "="; sandboxd counts those of the server, too
	// MaxSandboxEnvBytes bounds the variables of a sandbox, which are kept for its thread, and which every
	// exec has besides its own.
	MaxSandboxEnvBytes = 256 << 10
	MaxCwdBytes        = 4096
	MaxModuleBytes     = 256 // of the name of a Python module
	MaxDescription     = 500 // characters, of what a caller says of a program
)

var moduleName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$`)

// InvalidField refuses one field of a request, by its name in the API.
func InvalidField(field, format string, args ...any) error {
	detail := fmt.Sprintf(format, args...)
	return &Error{Kind: Invalid, Detail: field + ": " + detail, Fields: []Field{{Name: field, Detail: detail}}}
}

// Validate refuses a command that cannot be right. What is zero has a default.
func (c *Command) Validate() error {
	switch {
	case (c.Shell == "") == (len(c.Argv) == 0):
		return InvalidField("command", "give exactly one of command, for the shell, and argv, without one")
	case len(c.Argv) > 0 && c.Argv[0] == "":
		return InvalidField("argv", "the first element is the program: it cannot be empty")
	case len(c.Argv) > MaxArgs:
		return InvalidField("argv", "%d words, at most %d", len(c.Argv), MaxArgs)
	case c.Timeout < 0 || c.Timeout > MaxExecTimeout:
		return InvalidField("timeout_s", "want 0 to %d", int(MaxExecTimeout.Seconds()))
	case c.MaxOutputBytes < 0 || c.MaxOutputBytes > MaxOutputBytes:
		return InvalidField("max_output_bytes", "want 0 to %d", MaxOutputBytes)
	case c.Terminal != nil && !c.Terminal.Valid():
		return InvalidField("pty", "want 1 to %d columns and rows", MaxTerminalSide)
	case c.Terminal != nil && !c.Background:
		return InvalidField("pty", "a terminal needs background: true; GET …/pty?exec= joins it")
	}
	if c.Cwd != "" {
		if err := checkCwd(c.Cwd); err != nil {
			return err
		}
	}
	if err := checkWords("command", c.Shell); err != nil {
		return err
	}
	if err := checkWords("argv", c.Argv...); err != nil {
		return err
	}
	if size := sizeOf(c.Argv); size > MaxArgvBytes {
		return InvalidField("argv", "%d bytes, at most %d", size, MaxArgvBytes)
	}
	return checkInput(c.Stdin, c.Env, c.EnvSecrets)
}

// Validate refuses a run of a script that cannot be right. Its arguments follow words of the skill's own.
func (s *Script) Validate() error {
	switch {
	case (s.Path == "") == (s.Module == ""):
		return InvalidField("script", "give exactly one of script, a path in the skill's folder, and module, a Python module there")
	case s.Module != "" && (len(s.Module) > MaxModuleBytes || !moduleName.MatchString(s.Module)):
		return InvalidField("module", "%.100q is no name of a module: write scripts.report for scripts/report.py", s.Module)
	case len(s.Args) > MaxScriptArgs:
		return InvalidField("args", "%d words, at most %d", len(s.Args), MaxScriptArgs)
	case s.Timeout < 0 || s.Timeout > MaxExecTimeout:
		return InvalidField("timeout_s", "want 0 to %d", int(MaxExecTimeout.Seconds()))
	}
	if s.Cwd != "" {
		if err := checkCwd(s.Cwd); err != nil {
			return err
		}
	}
	if err := checkWords("script", s.Path); err != nil {
		return err
	}
	if err := checkWords("args", s.Args...); err != nil {
		return err
	}
	if size := sizeOf(s.Args); size > MaxArgvBytes {
		return InvalidField("args", "%d bytes, at most %d", size, MaxArgvBytes)
	}
	return checkInput(s.Stdin, s.Env, s.EnvSecrets)
}

// SetDefaults fills in what a command leaves out.
func (c *Command) SetDefaults() {
	c.Timeout = cmp.Or(c.Timeout, DefaultExecTimeout)
	c.MaxOutputBytes = cmp.Or(c.MaxOutputBytes, DefaultOutputBytes)
}

// Validate refuses a context that cannot be right.
func (r *ContextRequest) Validate() error {
	switch {
	case !slices.Contains(ContextLanguages, r.Language):
		return InvalidField("language", "%.40q is none of %s; a shell that lives on is an exec with a pty", r.Language, strings.Join(ContextLanguages, ", "))
	case r.Cwd == "":
		return nil
	}
	return checkCwd(r.Cwd)
}

func checkCwd(dir string) error {
	switch {
	case !path.IsAbs(dir):
		return InvalidField("cwd", "%.200q is not an absolute path such as %s", dir, WorkspaceDir)
	case len(dir) > MaxCwdBytes || strings.ContainsRune(dir, 0):
		return InvalidField("cwd", "has a NUL or more than %d bytes", MaxCwdBytes)
	}
	return nil
}

// ContextLanguages are those of contexts.
var ContextLanguages = []string{"python", "typescript", "javascript"}

// Languages are those of a Code.
var Languages = []string{"typescript", "javascript", "python", "bash", wasmLanguage}

// shortLanguages are the other names of languages: the endings of their files.
var shortLanguages = map[string]string{"ts": "typescript", "js": "javascript", "py": "python", "sh": "bash"}

// LanguageOf returns the language that a short name stands for. Any other name is its own.
func LanguageOf(name string) string { return cmp.Or(shortLanguages[name], name) }

// Validate refuses a program that cannot be right. The language of one without a context is known by now.
func (c *Code) Validate() error {
	switch {
	case c.ContextID == "" && !slices.Contains(Languages, c.Language):
		return InvalidField("language", "%.40q is none of %s; ts, js, py and sh stand for them", c.Language, strings.Join(Languages, ", "))
	case utf8.RuneCountInString(c.Description) > MaxDescription:
		return InvalidField("description", "has more than %d characters", MaxDescription)
	case strings.TrimSpace(c.Text) == "":
		return InvalidField("code", "is empty")
	case len(c.Text) > MaxCodeBytes:
		return InvalidField("code", "%d bytes, at most %d", len(c.Text), MaxCodeBytes)
	case c.Timeout < 0 || c.Timeout > MaxCodeTimeout:
		return InvalidField("timeout", "want 0 to %d seconds", int(MaxCodeTimeout.Seconds()))
	case c.MaxOutputChars < 0 || c.MaxOutputChars > MaxOutputChars:
		return InvalidField("max_output_chars", "want 0 to %d", MaxOutputChars)
	case c.ContextID != "" && len(c.EnvSecrets) > 0:
		return InvalidField("env_secrets", "a context would keep them after this run; run the code without context_id")
	}
	if c.ContextID == "" && c.Language == wasmLanguage {
		if err := checkWasm(c.Text); err != nil {
			return err
		}
	}
	return checkInput("", c.Env, c.EnvSecrets)
}

func checkWords(field string, words ...string) error {
	for _, word := range words {
		if len(word) > MaxWordBytes || strings.ContainsRune(word, 0) {
			return InvalidField(field, "a word has a NUL or more than %d bytes; put it into a file or stdin", MaxWordBytes)
		}
	}
	return nil
}

// sizeOf is the size of words together.
func sizeOf(words []string) int {
	size := 0
	for _, word := range words {
		size += len(word)
	}
	return size
}

func checkInput(stdin string, env, secrets map[string]string) error {
	if len(stdin) > MaxStdinBytes {
		return InvalidField("stdin", "%d bytes, at most %d", len(stdin), MaxStdinBytes)
	}
	if err := CheckEnv("env", env); err != nil {
		return err
	}
	if err := CheckEnv("env_secrets", secrets); err != nil {
		return err
	}
	for name := range secrets {
		if _, twice := env[name]; twice {
			return InvalidField("env_secrets", "%.80q is in env, too", name)
		}
	}
	return nil
}

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// CheckSandboxEnv refuses variables that no sandbox may have for all of its execs.
func CheckSandboxEnv(env map[string]string) error {
	if err := CheckEnv("env", env); err != nil {
		return err
	}
	size := 0
	for name, value := range env {
		size += len(name) + 1 + len(value)
	}
	if size > MaxSandboxEnvBytes {
		return InvalidField("env", "%d bytes, at most %d for a sandbox: an exec may have more of its own", size, MaxSandboxEnvBytes)
	}
	return nil
}

// CheckEnv refuses variables that no exec may have. field is what the API calls them.
func CheckEnv(field string, env map[string]string) error {
	if len(env) > MaxEnv {
		return InvalidField(field, "%d variables, at most %d", len(env), MaxEnv)
	}
	size := 0
	for name, value := range env {
		if size += len(name) + 1 + len(value); size > MaxEnvBytes {
			return InvalidField(field, "more than %d bytes", MaxEnvBytes)
		}
		of := field + "." + strings.ToValidUTF8(name[:min(len(name), 64)], "?")
		switch {
		case !envName.MatchString(name):
			return InvalidField(of, "a name matches %s", envName)
		case strings.HasPrefix(name, "SKERRY_") || strings.HasPrefix(name, "MCP_"):
			return InvalidField(of, "Skerry sets it; choose a name that does not begin with SKERRY_ or MCP_")
		case len(name)+1+len(value) > MaxWordBytes || strings.ContainsRune(value, 0):
			return InvalidField(of, "the value has a NUL, or more than %d bytes with its name", MaxWordBytes)
		}
	}
	return nil
}
