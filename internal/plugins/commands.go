package plugins

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"unicode"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/skills"
)

// commandLoader reads the commands of a plugin.
type commandLoader struct{ *loader }

// Command is a command of a plugin: /plugin:name.
type Command struct {
	Name         string
	Description  string
	ArgumentHint string
	AllowedTools []string // a pre-approval, never a restriction by itself
	Model        string
	Arguments    []string // names of the arguments, for $name
	Hidden       bool     // "disable-model-invocation"
	File         string   // relative to the plugin's folder; "" for a command that the manifest spells out
	Body         string   // Markdown, nothing put in
}

// commandDepth is how many folders there may be between commands/ and a command.
const commandDepth = 3

// openRegular opens a file for reading that is one: a pipe in its place must not stop the server, nor a
// device do something.
func openRegular(root *os.Root, name string) (*os.File, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil, sandbox.Errorf(sandbox.NotFound, "there is no file %.200q", name)
	}
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Invalid, err, "%.200q cannot be opened, or leaves the folder", name)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = sandbox.Errorf(sandbox.Invalid, "%.200q is not a regular file", name)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// loadCommands reads commands/, or what the manifest names in its place.
func (l commandLoader) loadCommands() {
	if l.p.Format == FormatAgent {
		return
	}
	raw, ok := l.fields["commands"]
	if !ok || string(raw) == "null" {
		if l.isDir("commands") && !l.listed {
			l.commandsBelow("commands", "", 0)
		}
		return
	}
	if all, err := object(raw); err == nil {
		l.commandMap(all)
		return
	}
	for _, p := range l.paths("commands") {
		switch {
		case l.isDir(p):
			l.commandsBelow(p, "", 0)
		case l.isFile(p):
			l.command(commandName(p), p, nil)
		default:
			l.add("missing", sandbox.SeverityError, l.manifest, "commands: there is nothing at %.200q", p)
		}
	}
}

func commandName(file string) string { return strings.TrimSuffix(path.Base(file), ".md") }

// commandsBelow reads all .md files in dir and in folders within it, whose names come before, with a colon.
func (l commandLoader) commandsBelow(dir, prefix string, depth int) {
	for _, e := range l.entries(dir) {
		name, p := e.Name(), path.Join(dir, e.Name())
		switch {
		case name[0] == '.':
		case l.isDir(p) && depth < commandDepth:
			l.commandsBelow(p, prefix+name+":", depth+1)
		case strings.HasSuffix(name, ".md") && !strings.EqualFold(name, "README.md"):
			if !l.command(prefix+commandName(name), p, nil) {
				return
			}
		}
	}
}

// commandMap reads commands that the manifest spells out: {name: {source | content, description, …}}.
func (l commandLoader) commandMap(all fields) {
	for _, name := range sorted(all) {
		var c struct {
			Source       string   `json:"source"`
			Content      string   `json:"content"`
			Description  string   `json:"description"`
			ArgumentHint string   `json:"argumentHint"`
			Model        string   `json:"model"`
			AllowedTools []string `json:"allowedTools"`
		}
		if json.Unmarshal(all[name], &c) != nil || (c.Source == "") == (c.Content == "") {
			l.add("command", sandbox.SeverityError, l.manifest, "commands: %.80q should be an object with source or content; it is ignored", name)
			continue
		}
		set := func(to *Command) {
			to.Description = cmp.Or(shown(c.Description, maxText), to.Description)
			to.ArgumentHint = cmp.Or(shown(c.ArgumentHint, maxDescriptor), to.ArgumentHint)
			to.Model = cmp.Or(shown(c.Model, maxDescriptor), to.Model)
			if c.AllowedTools != nil {
				to.AllowedTools = c.AllowedTools[:min(len(c.AllowedTools), maxPaths)]
			}
		}
		if c.Content != "" {
			l.addCommand(name, l.manifest, []byte(c.Content), set)
			continue
		}
		if file, ok := l.inside("commands", c.Source); ok && !l.command(name, file, set) {
			return
		}
	}
}

// command reads one file. It reports false when there are too many.
func (l commandLoader) command(name, file string, set func(*Command)) bool {
	text, err := l.read(file, skills.MaxTextBytes)
	if err != nil {
		l.add("unreadable", sandbox.SeverityError, file, "%s", detail(err))
		return true
	}
	return l.addCommand(name, file, text, set)
}

func (l commandLoader) addCommand(name, file string, text []byte, set func(*Command)) bool {
	if len(l.p.Commands) == maxCommands {
		l.add("too-many", sandbox.SeverityError, file, "more than %d commands; the rest is ignored", maxCommands)
		return false
	}
	if bad := checkCommandName(name); bad != "" {
		l.add("command-name", sandbox.SeverityError, file, "the command %.80q %s; it is ignored", name, bad)
		return true
	}
	if slices.ContainsFunc(l.p.Commands, func(c Command) bool { return c.Name == name }) {
		l.add("command-twice", sandbox.SeverityWarning, file, "there is a command %.80q already; this one is ignored", name)
		return true
	}
	if slices.ContainsFunc(l.p.Skills, func(s Skill) bool { return s.Name == name && !s.Broken }) {
		l.add("command-shadowed", sandbox.SeverityWarning, file, "a skill has the name %.80q, too, and counts", name)
		return true
	}
	c, findings, err := ParseCommand(name, text)
	for _, f := range findings {
		f.File = file
		l.found(f)
	}
	if err != nil {
		return true
	}
	c.File = file
	if set != nil {
		set(&c)
	}
	l.p.Commands = append(l.p.Commands, c)
	return true
}

func checkCommandName(name string) string {
	bad := func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("-_.:", r)
	}
	switch {
	case name == "" || len(name) > 2*MaxName:
		return fmt.Sprintf("has to have 1 to %d characters", 2*MaxName)
	case strings.ContainsFunc(name, bad) || name[0] == '.' || strings.Contains(name, ".."):
		return "has characters beside letters, digits, - _ . and :"
	}
	return ""
}

// ParseCommand reads the Markdown of a command. Frontmatter may be missing; unknown keys and wrong types are
// findings. The error, which is one of them, too, is Invalid when the frontmatter cannot be read.
func ParseCommand(name string, text []byte) (Command, []sandbox.Finding, error) {
	front, findings, err := skills.ReadFront(text)
	if errors.Is(err, skills.ErrNoFront) {
		findings, err = slices.DeleteFunc(findings, func(f sandbox.Finding) bool { return f.Severity == sandbox.SeverityError }), nil
	}
	c := Command{Name: name, Body: strings.TrimSpace(string(front.Body))}
	if err != nil {
		return c, findings, err
	}
	r := frontReader{front: front, findings: findings}
	c.Description = shown(r.text("description"), maxText)
	if c.Description == "" {
		c.Description = shown(firstLine(c.Body), maxDescriptor)
		r.add("description-missing", sandbox.SeverityWarning, 0, "there is no description; the first line is taken")
	}
	c.ArgumentHint = shown(r.text("argument-hint"), maxDescriptor)
	c.Model = shown(r.text("model"), maxDescriptor)
	c.AllowedTools = r.words("allowed-tools", true)
	c.Arguments = r.words("arguments", false)
	c.Hidden = r.flag("disable-model-invocation")
	for _, key := range sorted(front.Fields) {
		if !slices.Contains(commandKeys, key) {
			r.add("unknown-key", sandbox.SeverityInfo, front.Lines[key], "%.80q means nothing for a command here", key)
		}
	}
	if c.Body == "" {
		r.add("body-empty", sandbox.SeverityWarning, 0, "the command has no text")
	}
	return c, r.findings, nil
}

var commandKeys = []string{"description", "argument-hint", "allowed-tools", "model", "arguments", "disable-model-invocation", "user-invocable", "hide-from-slash-command-tool", "effort", "context", "agent", "shell", "name"}

func firstLine(body string) string {
	for line := range strings.Lines(body) {
		if line = strings.TrimSpace(strings.TrimLeft(line, "#> \t")); line != "" {
			return line
		}
	}
	return ""
}

// frontReader reads the fields of a command's frontmatter.
type frontReader struct {
	front    skills.Front
	findings []sandbox.Finding
}

func (r *frontReader) add(rule, severity string, line int, format string, args ...any) {
	if len(r.findings) < maxFindings {
		r.findings = append(r.findings, sandbox.Finding{Rule: rule, Severity: severity, Line: line, Message: fmt.Sprintf(format, args...)})
	}
}

// text returns a field that should be text. [file] without quotes, which is a list in YAML, is what authors
// mean by it.
func (r *frontReader) text(key string) string {
	switch v := r.front.Fields[key].(type) {
	case nil:
		return ""
	case string:
		return v
	case []any:
		parts := make([]string, 0, len(v))
		for _, one := range v {
			parts = append(parts, fmt.Sprint(one))
		}
		r.add("wrong-type", sandbox.SeverityWarning, r.front.Lines[key], "%s should be text; put it in quotes", key)
		return "[" + strings.Join(parts, ", ") + "]"
	case map[string]any:
		r.add("wrong-type", sandbox.SeverityWarning, r.front.Lines[key], "%s should be text; it is ignored", key)
		return ""
	default:
		return fmt.Sprint(v)
	}
}

// words returns a field that is a list, or text with commas or blanks between; what is in brackets belongs
// together when brackets says so.
func (r *frontReader) words(key string, brackets bool) []string {
	var list []string
	switch v := r.front.Fields[key].(type) {
	case nil:
		return nil
	case string:
		depth := 0
		list = strings.FieldsFunc(v, func(c rune) bool {
			switch {
			case brackets && c == '(':
				depth++
			case brackets && c == ')':
				depth = max(depth-1, 0)
			}
			return depth == 0 && (c == ',' || unicode.IsSpace(c))
		})
	case []any:
		for _, one := range v {
			list = append(list, strings.TrimSpace(fmt.Sprint(one)))
		}
	default:
		r.add("wrong-type", sandbox.SeverityWarning, r.front.Lines[key], "%s should be text or a list; it is ignored", key)
	}
	if len(list) > maxPaths {
		r.add("too-many", sandbox.SeverityWarning, r.front.Lines[key], "%s: more than %d entries; the rest is ignored", key, maxPaths)
		list = list[:maxPaths]
	}
	return list
}

// flag reads a boolean, also one in words.
func (r *frontReader) flag(key string) bool {
	switch strings.ToLower(fmt.Sprint(r.front.Fields[key])) {
	case "true", "yes", "on", "1":
		return true
	case "false", "no", "off", "0", "<nil>":
	default:
		r.add("wrong-type", sandbox.SeverityWarning, r.front.Lines[key], "%s should be true or false; it is ignored", key)
	}
	return false
}
