package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/skerry-sandbox/skerry/internal/app/cli/exit"
	"github.com/skerry-sandbox/skerry/internal/app/cli/output"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/argform"
)

func newMCPList(f *mcpFlags) *cobra.Command {
	var servers []string
	var detailed bool
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List MCP servers and their tools",
		Long:    "Lists MCP servers and their tools, with a line of description each.\n\n" + whereHelp + "\n\n" + exitCodesHelp,
		Example: "  skerry mcp ls\n  skerry mcp ls --server filesystem --detailed\n  skerry mcp ls --json | jq -r '.servers[].tools[].name'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			ctx, cancel := context.WithTimeout(cmd.Context(), f.timeout)
			defer cancel()
			source, names, err := f.open(cmd, servers)
			if err != nil {
				return exit.Of(err)
			}
			defer func() { err = joined(err, source.close()) }()
			chosen, err := selected(ctx, source, names)
			if err != nil {
				return exit.Of(err)
			}
			list, err := withTools(ctx, source, chosen)
			if err != nil {
				return exit.Of(err)
			}
			if err := showList(cmd.OutOrStdout(), list, detailed, f.api.JSON); err != nil {
				return err
			}
			return silent(list)
		},
	}
	cmd.Flags().StringArrayVar(&servers, "server", nil, "only this MCP server; may be given more than once")
	cmd.Flags().BoolVar(&detailed, "detailed", false, "whole descriptions and the parameters; with --json also the schemas")
	return cmd
}

// joined adds the error of closing to what there is.
func joined(err, closing error) error {
	if err == nil && closing != nil {
		return exit.Of(closing)
	}
	return err
}

// silent is the error that some servers did not answer.
func silent(list []listed) error {
	var lines []string
	for _, s := range list {
		if s.Error != "" {
			lines = append(lines, fmt.Sprintf("%s: %s", s.Name, s.Error))
		}
	}
	if len(lines) == 0 {
		return nil
	}
	return exit.With(exit.Partial, "%s did not answer:\n  %s", output.Count(len(lines), "server"), strings.Join(lines, "\n  "))
}

func showList(w io.Writer, list []listed, detailed, asJSON bool) error {
	if asJSON {
		return output.JSON(w, listJSON(list, detailed))
	}
	if len(list) == 0 {
		_, err := fmt.Fprintln(w, "No MCP server is configured. They go into extensions_config.json: {\"mcpServers\": {\"name\": {\"command\": …}}}")
		return err
	}
	tools := 0
	for _, s := range list {
		tools += len(s.full)
		fmt.Fprintf(w, "%s (%s, %s, %s)  %s\n", argform.Line(s.Name, 60), s.Transport, s.State, output.Count(len(s.full), "tool"), argform.Line(s.Description, 100))
		if s.Error != "" {
			fmt.Fprintf(w, "  %s\n", argform.Line(s.Error, 500))
		}
		show := showShort
		if detailed {
			show = showDetailed
		}
		if err := show(w, s.full); err != nil {
			return err
		}
		fmt.Fprintln(w)
	}
	_, err := fmt.Fprintf(w, "%s, %s\n", output.Count(len(list), "server"), output.Count(tools, "tool"))
	return err
}

// listJSON is {"servers":[{…, "tools":[…]}],"total_tools":n}.
func listJSON(list []listed, detailed bool) any {
	total := 0
	if list == nil {
		list = []listed{}
	}
	for i := range list {
		for _, t := range list[i].full {
			found := sandbox.ToolFound{Name: t.Printed, ShortName: t.Name, Server: t.Server, Description: t.Description}
			if detailed {
				found.Parameters, found.Output, found.WrapperPath = t.Input, t.Output, t.WrapperPath
			}
			list[i].Tools = append(list[i].Tools, found)
			total++
		}
	}
	return map[string]any{"servers": list, "total_tools": total}
}

func showShort(w io.Writer, tools []sandbox.Tool) error {
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	for _, t := range tools {
		fmt.Fprintf(tw, "  %s\t%s\n", argform.Line(t.Name, 60), argform.Line(t.Description, 80))
	}
	return tw.Flush()
}

func showDetailed(w io.Writer, tools []sandbox.Tool) error {
	for _, t := range tools {
		fmt.Fprintf(w, "\n  %s\n", argform.Line(t.Server+"."+t.Name, 200))
		for line := range strings.Lines(strings.TrimSpace(argform.Plain(t.Description))) {
			fmt.Fprintf(w, "    %s\n", strings.TrimRight(line, " \t\n"))
		}
		for _, p := range parameters(t.Input) {
			fmt.Fprintf(w, "    %s (%s)  %s\n", argform.Line(p.name, 60), p.note, argform.Line(p.description, 200))
		}
	}
	return nil
}

type parameter struct{ name, note, description string }

// parameters are the members of a tool's input, required ones first.
func parameters(schema json.RawMessage) []parameter {
	var s struct {
		Properties map[string]json.RawMessage `json:"properties"`
		Required   []string                   `json:"required"`
	}
	if json.Unmarshal(schema, &s) != nil {
		return nil
	}
	var list []parameter
	for name, raw := range s.Properties {
		var p struct {
			Type        any    `json:"type"`
			Enum        []any  `json:"enum"`
			Default     any    `json:"default"`
			Description string `json:"description"`
		}
		if json.Unmarshal(raw, &p) != nil {
			p.Type = "any"
		}
		note := "any"
		switch {
		case len(p.Enum) > 0:
			note = "one of " + argform.Line(strings.Trim(fmt.Sprint(p.Enum), "[]"), 100)
		case p.Type != nil:
			note = argform.Line(strings.Trim(fmt.Sprint(p.Type), "[]"), 60)
		}
		if slices.Contains(s.Required, name) {
			note += ", required"
		}
		if p.Default != nil {
			note += ", default " + argform.Line(fmt.Sprint(p.Default), 60)
		}
		list = append(list, parameter{name, note, p.Description})
	}
	slices.SortFunc(list, func(a, b parameter) int {
		x, y := slices.Contains(s.Required, a.name), slices.Contains(s.Required, b.name)
		if x != y {
			if x {
				return -1
			}
			return 1
		}
		return strings.Compare(a.name, b.name)
	})
	return list
}
