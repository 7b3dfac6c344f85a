package template

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Bounds of what a template may say about runs.
const (
	maxEnv          = 64
	maxPreload      = 32
	maxSmoke        = 32
	maxSmokeSeconds = 120
	// smokeSeconds is the time of a smoke test that names none. The first start of a large program reads it from disk.
	smokeSeconds = 60
)

var (
	variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	moduleName   = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$`)
)

// anyKeys reads a mapping whose keys are names of the template's own.
func (p *parser) anyKeys(field string, n *yaml.Node, want string, read func(key, field string, n *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		p.bad(field, "want a mapping, such as %s", want)
		return
	}
	known := map[string]func(string, *yaml.Node){}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i].Value
		known[key] = func(field string, n *yaml.Node) { read(key, field, n) }
	}
	p.fields(n, field+".", known)
}

func (p *parser) variables(to *map[string]string) func(string, *yaml.Node) {
	return func(field string, n *yaml.Node) {
		*to = map[string]string{}
		p.anyKeys(field, n, "{NAME: value}", func(key, field string, n *yaml.Node) {
			p.scalar(func(_, value string) { (*to)[key] = value })(field, n)
		})
	}
}

func (p *parser) interpreters(to *map[string]sandbox.Interpreter) func(string, *yaml.Node) {
	return func(field string, n *yaml.Node) {
		*to = map[string]sandbox.Interpreter{}
		p.anyKeys(field, n, "{python: {warm: 1, preload: [numpy]}}", func(key, field string, n *yaml.Node) {
			i := sandbox.Interpreter{Warm: 1}
			p.fields(n, field+".", map[string]func(string, *yaml.Node){"warm": number(p, &i.Warm), "preload": p.list(&i.Preload)})
			(*to)[key] = i
		})
	}
}

func (p *parser) smoke(to *[]sandbox.SmokeTest) func(string, *yaml.Node) {
	return func(field string, n *yaml.Node) {
		if n.Kind != yaml.SequenceNode {
			p.bad(field, "want a list, such as [{name: starts, run: \"true\"}]")
			return
		}
		*to = nil
		for i, item := range n.Content {
			at := fmt.Sprintf("%s[%d]", field, i)
			p.seen[at] = item.Line
			s := sandbox.SmokeTest{TimeoutSeconds: smokeSeconds}
			p.fields(item, at+".", map[string]func(string, *yaml.Node){
				"name": p.text(&s.Name), "run": p.text(&s.Run), "argv": p.list(&s.Argv), "code": p.text(&s.Code), "language": p.text(&s.Language),
				"expect": p.text(&s.Expect), "exit_code": number(p, &s.ExitCode), "timeout_s": number(p, &s.TimeoutSeconds),
			})
			*to = append(*to, s)
		}
	}
}

// wrong reports a problem of a field that was read well.
func (p *parser) wrong(is bool, field, format string, args ...any) {
	if is && !p.broken[field] {
		p.bad(field, format, args...)
	}
}

func (p *parser) checkEnv(t *Template) {
	p.wrong(len(t.Env) > maxEnv, "env", "%d variables, at most %d", len(t.Env), maxEnv)
	for name, value := range t.Env {
		field := "env." + name
		p.wrong(!variableName.MatchString(name), field, "a name of a variable has only letters, digits and _, and begins with no digit")
		p.wrong(strings.HasPrefix(name, "SKERRY_") || strings.HasPrefix(name, "MCP_"), field, "is set by Skerry: choose a name without SKERRY_ or MCP_ in front")
		p.wrong(strings.ContainsRune(value, 0), field, "the value holds a NUL byte")
	}
}

func (p *parser) checkInterpreters(t *Template) {
	for language, i := range t.Interpreters {
		field := "interpreters." + language
		if !slices.Contains([]string{"python", "typescript", "javascript"}, language) {
			p.wrong(true, field, "no interpreter of that waits for its program; those of python, typescript and javascript do")
			continue
		}
		p.wrong(!slices.Contains(t.Languages, language), field, "is not among the languages")
		p.wrong(i.Warm < 0 || i.Warm > sandbox.MaxWarm, field+".warm", "%d: want 1 to %d, or 0 for none", i.Warm, sandbox.MaxWarm)
		p.wrong(language != "python" && len(i.Preload) > 0, field+".preload", "is for python: modules of JavaScript are imported by the program")
		p.wrong(t.Deno != nil && language != "python" && i.Warm > 0, field+".warm", "%d: with deno's own permissions none can wait: leave it away", i.Warm)
		p.wrong(i.Warm == 0 && len(i.Preload) > 0, field+".preload", "needs warm: 1, because it is loaded while one waits")
		p.wrong(len(i.Preload) > maxPreload, field+".preload", "%d modules, at most %d", len(i.Preload), maxPreload)
		for n, module := range i.Preload {
			p.wrong(!moduleName.MatchString(module), fmt.Sprintf("%s.preload[%d]", field, n), "%.80q: want the name of a module, such as numpy", module)
		}
	}
}

func (p *parser) checkSmoke(t *Template) {
	p.wrong(len(t.Smoke) > maxSmoke, "smoke", "%d tests, at most %d", len(t.Smoke), maxSmoke)
	names := map[string]bool{}
	for i, s := range t.Smoke {
		field := fmt.Sprintf("smoke[%d]", i)
		p.wrong(s.Name == "" || len(s.Name) > 100, field+".name", "want a name of at most 100 bytes")
		p.wrong(names[s.Name], field+".name", "%.100q is there twice", s.Name)
		names[s.Name] = true
		ways := 0
		for _, there := range []bool{s.Run != "", len(s.Argv) > 0, s.Code != ""} {
			if there {
				ways++
			}
		}
		p.wrong(ways != 1, field, "want exactly one of run (for the shell), argv (without one) and code")
		p.wrong((s.Code != "") != (s.Language != ""), field+".language", "goes with code, and only with it")
		p.wrong(s.Language != "" && !slices.Contains(t.Languages, s.Language), field+".language", "%.40q is not among the languages", s.Language)
		p.wrong(s.ExitCode < 0 || s.ExitCode > 255, field+".exit_code", "%d: want 0 to 255", s.ExitCode)
		p.wrong(s.TimeoutSeconds < 1 || s.TimeoutSeconds > maxSmokeSeconds, field+".timeout_s", "%d: want 1 to %d seconds", s.TimeoutSeconds, maxSmokeSeconds)
	}
}
