// Package typed recognises commands of plugins in what users type: "/sales:call-prep Acme". An agent's
// backend sends every message of a user through it, so a message that is no command is no error.
package typed

import (
	"context"
	"errors"
	"slices"
	"strings"
	"unicode"

	"github.com/skerry-sandbox/skerry/internal/platform/editdistance"
	"github.com/skerry-sandbox/skerry/internal/plugins/slash"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Plugins is the plugins of callers.
type Plugins interface {
	List(ctx context.Context, c sandbox.Caller) ([]sandbox.Plugin, error)
	Commands(ctx context.Context, c sandbox.Caller, name string, skills bool) ([]sandbox.PluginCommand, error)
	// Invoke makes the text of a command, and records that. NotFound: there is no such command, or a file of
	// it is missing.
	Invoke(ctx context.Context, c sandbox.Caller, thread, plugin, command, args string) (sandbox.PluginMessage, error)
}

// Messages reads what users type.
type Messages struct{ plugins Plugins }

// New makes Messages of the commands of plugins.
func New(p Plugins) Messages { return Messages{p} }

// ReadMessage returns the text of the command that a message is, or the message as it came. Errors: those of
// Invoke, but for a command that does not exist.
func (m Messages) ReadMessage(ctx context.Context, c sandbox.Caller, thread, text string) (sandbox.TypedCommand, error) {
	plain := sandbox.TypedCommand{Message: text, Findings: []sandbox.Finding{}}
	name, args, ok := parse(text)
	if !ok {
		return plain, nil
	}
	plugin, command, _ := strings.Cut(name, ":")
	var missing error
	if plugin != "" && command != "" {
		msg, err := m.plugins.Invoke(ctx, c, thread, plugin, command, args)
		if err == nil {
			return sandbox.TypedCommand{Recognised: true, Command: name, Args: args, Message: msg.Message, Findings: msg.Findings}, nil
		}
		if missing = err; !errors.Is(err, sandbox.NotFound) {
			return plain, err
		}
	}
	names, err := m.names(ctx, c)
	if err != nil {
		return plain, err
	}
	if slices.Contains(names, name) { // the command is there, and what it wants is not
		return plain, missing
	}
	plain.Unknown, plain.Near = name, editdistance.Nearest(name, names, ":")
	return plain, nil
}

// maxName is the length of the longest name of a command with that of its plugin.
const maxName = 200

// parse takes a message apart that has the form of a command: a slash, a name without blanks, arguments.
func parse(text string) (name, args string, ok bool) {
	rest, ok := strings.CutPrefix(strings.TrimLeftFunc(text, unicode.IsSpace), "/")
	if !ok {
		return "", "", false
	}
	name = rest
	if at := strings.IndexFunc(rest, unicode.IsSpace); at >= 0 {
		name, args = rest[:at], strings.TrimSpace(rest[at:])
	}
	if len(name) > maxName {
		return "", "", false
	}
	for part := range strings.SplitSeq(name, ":") {
		if part != "" && slash.CheckName(part) != "" {
			return "", "", false
		}
	}
	return name, args, strings.Trim(name, ":") != ""
}

// names lists what people may call, as "plugin:command".
func (m Messages) names(ctx context.Context, c sandbox.Caller) ([]string, error) {
	plugins, err := m.plugins.List(ctx, c)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, p := range plugins {
		if !p.Enabled {
			continue
		}
		commands, err := m.plugins.Commands(ctx, c, p.Name, true)
		if errors.Is(err, sandbox.NotFound) { // it was removed in between
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, cmd := range commands {
			names = append(names, p.Name+":"+cmd.Name)
		}
	}
	return names, nil
}
