package slash

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/skerry-sandbox/skerry/internal/platform/oneline"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/skills/format"
)

// Limits of a command.
const (
	maxName       = 128
	maxFindings   = 300
	maxListed     = 100  // entries of a list
	maxText       = 2000 // characters of a text that is shown
	maxDescriptor = 200  // characters of a hint or a name of a model
)

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

// CheckName says what is wrong with the name of a command, or "".
func CheckName(name string) string {
	bad := func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("-_.:", r)
	}
	switch {
	case name == "" || len(name) > maxName:
		return fmt.Sprintf("has to have 1 to %d characters", maxName)
	case strings.ContainsFunc(name, bad) || name[0] == '.' || strings.Contains(name, ".."):
		return "has characters beside letters, digits, - _ . and :"
	}
	return ""
}

// Parse reads the Markdown of a command. Frontmatter may be missing; unknown keys and wrong types are
// findings. The error, which is one of them, too, is Invalid when the frontmatter cannot be read.
func Parse(name string, text []byte) (Command, []sandbox.Finding, error) {
	front, findings, err := format.ReadFront(text)
	if errors.Is(err, format.ErrNoFront) {
		findings, err = slices.DeleteFunc(findings, func(f sandbox.Finding) bool { return f.Severity == sandbox.SeverityError }), nil
	}
	c := Command{Name: name, Body: strings.TrimSpace(string(front.Body))}
	if err != nil {
		return c, findings, err
	}
	r := frontReader{front: front, findings: findings}
	c.Description = oneline.Of(r.text("description"), maxText)
	if c.Description == "" {
		c.Description = oneline.Of(firstLine(c.Body), maxDescriptor)
		r.add("description-missing", sandbox.SeverityWarning, 0, "there is no description; the first line is taken")
	}
	c.ArgumentHint = oneline.Of(r.text("argument-hint"), maxDescriptor)
	c.Model = oneline.Of(r.text("model"), maxDescriptor)
	c.AllowedTools = r.words("allowed-tools", true)
	c.Arguments = r.words("arguments", false)
	c.Hidden = r.flag("disable-model-invocation")
	for _, key := range slices.Sorted(maps.Keys(front.Fields)) {
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
	front    format.Front
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
	if len(list) > maxListed {
		r.add("too-many", sandbox.SeverityWarning, r.front.Lines[key], "%s: more than %d entries; the rest is ignored", key, maxListed)
		list = list[:maxListed]
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
