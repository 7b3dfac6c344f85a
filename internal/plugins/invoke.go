package plugins

import (
	"context"
	"errors"
	"os"
	"path"
	"strings"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/plugins/slash"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/skills/format"
)

// Threads is what commands may reach of a thread.
type Threads interface {
	// ReadThreadFile returns at most limit bytes of a file, by its virtual path, and whether there is more. It starts no sandbox.
	ReadThreadFile(ctx context.Context, c sandbox.Caller, thread, path string, limit int64) (data []byte, more bool, err error)
	// RunInThread runs a command in the thread's sandbox and waits for its end.
	RunInThread(ctx context.Context, c sandbox.Caller, thread string, cmd sandbox.Command) (sandbox.Result, error)
}

// runTime bounds each command that a command runs.
const runTime = 30 * time.Second

// Commands lists the commands of an enabled plugin, with skills also the skills that people may call. NotFound.
func (s *Service) Commands(_ context.Context, c sandbox.Caller, name string, skills bool) ([]sandbox.PluginCommand, error) {
	m, err := s.enabled(c.Owner, name)
	if err != nil {
		return nil, err
	}
	return m.plugin.CommandViews(skills), nil
}

// AllCommands lists the commands of enabled plugins that an agent may know of, by their full names, "plugin:command".
func (s *Service) AllCommands(o sandbox.Owner) ([]sandbox.PluginCommand, error) {
	set, err := s.Set(o)
	if err != nil {
		return nil, err
	}
	var all []sandbox.PluginCommand
	for _, m := range set.list {
		if !m.enabled {
			continue
		}
		for _, c := range m.plugin.CommandViews(false) {
			if !c.Hidden {
				c.Name = m.name + ":" + c.Name
				all = append(all, c)
			}
		}
	}
	return all, nil
}

func (s *Service) enabled(o sandbox.Owner, name string) (*member, error) {
	set, err := s.Set(o)
	if err != nil {
		return nil, err
	}
	m, err := set.find(name)
	if err == nil && !m.enabled {
		err = sandbox.Errorf(sandbox.NotFound, "the plugin %q is not enabled", name)
	}
	return m, err
}

// Invoke makes the text of /plugin:command args for a thread. NotFound: the caller has no such plugin, or it no such
// command; Invalid: too much of something; what the sandbox answers.
func (s *Service) Invoke(ctx context.Context, c sandbox.Caller, t Threads, thread, name, command, args string) (sandbox.PluginMessage, error) {
	var done sandbox.PluginMessage
	err := s.recorded(ctx, c, audit.ActionPluginCommand, "/"+name+":"+command, thread, func(rec *audit.Record) error {
		m, err := s.enabled(c.Owner, name)
		if err != nil {
			return err
		}
		cmd, folder, err := m.command(command)
		if err != nil {
			return err
		}
		msg, err := slash.Render(ctx, cmd, args, contextOf(c, t, thread, name, folder, s.o.RunCommands))
		rec.BytesIn, rec.BytesOut = int64(len(args)), int64(len(msg.Text))
		done = sandbox.PluginMessage{Message: msg.Text, Findings: append([]sandbox.Finding{}, msg.Findings...)}
		return err
	})
	return done, err
}

// command finds a command, or a skill that people may call, with its folder in the sandbox.
func (m *member) command(name string) (slash.Command, string, error) {
	for _, c := range m.plugin.Commands {
		if c.Name == name {
			return c, Dir(m.name), nil
		}
	}
	for _, sk := range m.plugin.Skills {
		if sk.Name == name && !sk.Broken && !sk.NotCallable {
			c, err := m.skillCommand(sk)
			return c, path.Join(Dir(m.name), sk.Folder), err
		}
	}
	return slash.Command{}, "", sandbox.Errorf(sandbox.NotFound, "the plugin %q has no command %.80q", m.name, name)
}

// skillCommand makes a command of a skill: its instructions, and where its files are.
func (m *member) skillCommand(sk Skill) (slash.Command, error) {
	root, err := os.OpenRoot(m.dir)
	if err != nil {
		return slash.Command{}, sandbox.Wrap(sandbox.Internal, err, "the plugin's files cannot be read")
	}
	defer root.Close() //nolint:errcheck // it was read
	l := &loader{root: root, p: &Plugin{}}
	file := path.Join(sk.Folder, skillFile)
	text, err := l.read(file, format.MaxTextBytes)
	if err != nil {
		return slash.Command{}, err
	}
	c, _, err := slash.Parse(sk.Name, text)
	c.File = file
	c.Body = "Base folder of this skill: " + path.Join(Dir(m.name), sk.Folder) + "\n\n" + c.Body
	return c, err
}

// contextOf says what a command of the plugin name reaches of a thread. runs: it may run commands there.
func contextOf(c sandbox.Caller, t Threads, thread, name, folder string, runs bool) slash.Context {
	in := slash.Context{Values: map[string]string{
		"CLAUDE_PLUGIN_ROOT": Dir(name), "PLUGIN_ROOT": Dir(name), "CLAUDE_SKILL_DIR": folder,
		"CLAUDE_PROJECT_DIR": sandbox.WorkspaceDir, "CLAUDE_SESSION_ID": thread,
	}}
	if t == nil {
		return in
	}
	in.ReadFile = func(ctx context.Context, path string, limit int64) ([]byte, bool, error) {
		return t.ReadThreadFile(ctx, c, thread, path, limit)
	}
	if !runs {
		return in
	}
	in.Run = func(ctx context.Context, sh slash.Shell) (string, int, error) {
		env := map[string]string{}
		for _, kv := range sh.Env {
			k, v, _ := strings.Cut(kv, "=")
			env[k] = v
		}
		res, err := t.RunInThread(ctx, c, thread, sandbox.Command{
			Argv: append([]string{"/bin/sh", "-c", sh.Command}, sh.Args...), Env: env, Timeout: runTime, MaxOutputBytes: slash.MaxRunOutput + 1,
		})
		if err != nil {
			return "", 0, err
		}
		if res.ExitCode == nil {
			return "", 0, errors.Join(sandbox.Errorf(sandbox.Timeout, "a command of the plugin ended by %s", res.Status))
		}
		return res.Stdout + res.Stderr, *res.ExitCode, nil
	}
	return in
}
