package plugins

import (
	"path"
	"slices"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// View returns the plugin as it is shown, without what is known only of an installed one. A server that
// is unusable has that state; the hub, which knows the other servers, reports duplicates.
func (p *Plugin) View() sandbox.Plugin {
	v := sandbox.Plugin{
		Name: p.Name, DisplayName: p.DisplayName, Version: p.Version, Description: p.Description, Author: p.Author, Homepage: p.Homepage,
		Repository: p.Repository, License: p.License, Keywords: p.Keywords, Format: p.Format, Location: Dir(p.Name),
		PluginContents: sandbox.PluginContents{
			Skills: []sandbox.PluginSkill{}, Commands: []sandbox.PluginCommand{}, Servers: []sandbox.PluginServer{},
			Options: slices.Clone(p.Options), Findings: append([]sandbox.Finding{}, p.Findings...),
		},
	}
	for _, s := range p.Skills {
		v.Skills = append(v.Skills, sandbox.PluginSkill{Name: s.Name, Description: s.Description, Location: path.Join(Dir(p.Name), s.Folder, skillFile), Broken: s.Broken})
	}
	v.Commands = append(v.Commands, p.CommandViews(false)...)
	for _, s := range p.Servers {
		shown := sandbox.PluginServer{Name: s.Name, Registered: Registered(p.Name, s.Name), Transport: s.Transport, State: "ok"}
		if s.Problem != "" {
			shown.State, shown.Reason = "unusable", s.Problem
		}
		v.Servers = append(v.Servers, shown)
	}
	return v
}

// Registered is the name of a plugin's MCP server in tool sets. It is never taken apart again.
func Registered(plugin, server string) string { return "plugin:" + plugin + ":" + server }

// CommandViews lists the commands, with skills also the skills that people may call.
func (p *Plugin) CommandViews(skills bool) []sandbox.PluginCommand {
	list := []sandbox.PluginCommand{}
	for _, c := range p.Commands {
		list = append(list, sandbox.PluginCommand{Name: c.Name, Description: c.Description, ArgumentHint: c.ArgumentHint, AllowedTools: c.AllowedTools, Model: c.Model, Kind: "command", Hidden: c.Hidden})
	}
	if skills {
		for _, s := range p.Skills {
			if !s.Broken && !s.NotCallable {
				list = append(list, sandbox.PluginCommand{Name: s.Name, Description: s.Description, ArgumentHint: s.ArgumentHint, AllowedTools: s.AllowedTools, Kind: "skill", Hidden: s.Hidden})
			}
		}
	}
	return list
}
