package plugins

import (
	"cmp"
	"encoding/json"
	"path"
	"slices"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/platform/oneline"
	"github.com/skerry-sandbox/skerry/internal/plugins/slash"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/skills/format"
)

// commandLoader reads the commands of a plugin.
type commandLoader struct{ *loader }

// commandDepth is how many folders there may be between commands/ and a command.
const commandDepth = 3

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
		set := func(to *slash.Command) {
			to.Description = cmp.Or(oneline.Of(c.Description, maxText), to.Description)
			to.ArgumentHint = cmp.Or(oneline.Of(c.ArgumentHint, maxDescriptor), to.ArgumentHint)
			to.Model = cmp.Or(oneline.Of(c.Model, maxDescriptor), to.Model)
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
func (l commandLoader) command(name, file string, set func(*slash.Command)) bool {
	text, err := l.read(file, format.MaxTextBytes)
	if err != nil {
		l.add("unreadable", sandbox.SeverityError, file, "%s", detail(err))
		return true
	}
	return l.addCommand(name, file, text, set)
}

func (l commandLoader) addCommand(name, file string, text []byte, set func(*slash.Command)) bool {
	if len(l.p.Commands) == maxCommands {
		l.add("too-many", sandbox.SeverityError, file, "more than %d commands; the rest is ignored", maxCommands)
		return false
	}
	if bad := slash.CheckName(name); bad != "" {
		l.add("command-name", sandbox.SeverityError, file, "the command %.80q %s; it is ignored", name, bad)
		return true
	}
	if slices.ContainsFunc(l.p.Commands, func(c slash.Command) bool { return c.Name == name }) {
		l.add("command-twice", sandbox.SeverityWarning, file, "there is a command %.80q already; this one is ignored", name)
		return true
	}
	if slices.ContainsFunc(l.p.Skills, func(s Skill) bool { return s.Name == name && !s.Broken }) {
		l.add("command-shadowed", sandbox.SeverityWarning, file, "a skill has the name %.80q, too, and counts", name)
		return true
	}
	c, findings, err := slash.Parse(name, text)
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
