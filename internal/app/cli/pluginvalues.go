package cli

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/skerry-sandbox/skerry/internal/app/cli/client"
	"github.com/skerry-sandbox/skerry/internal/app/cli/exit"
	"github.com/skerry-sandbox/skerry/internal/app/cli/output"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/argform"
)

func newPluginsValues(api *client.Client) *cobra.Command {
	var fromSecret, unset []string
	cmd := &cobra.Command{
		Use: "values PLUGIN [KEY | KEY=VALUE]…", Short: "Show or set what a plugin asks you for: names in its MCP servers, and options of its own", Args: cobra.MinimumNArgs(1),
		Long: "Without a KEY, lists what the plugin asks for and what is set. A KEY alone is asked for without echo, or read from\n" +
			"standard input: arguments can be seen by others. Values of MCP servers are stored encrypted, and are not shown again.",
		Example: "  skerry plugins values github\n  skerry plugins values github GITHUB_TOKEN\n  skerry plugins values github --secret GITHUB_TOKEN=MY_TOKEN\n" +
			"  skerry plugins values jira SITE=example.atlassian.net --unset TOKEN",
		RunE: func(cmd *cobra.Command, args []string) error {
			values, err := givenValues(cmd, args[1:], fromSecret, unset)
			if err != nil {
				return err
			}
			var p sandbox.Plugin
			path := "/api/plugins/" + url.PathEscape(args[0])
			if len(values) == 0 {
				err = api.Call(cmd.Context(), http.MethodGet, path, nil, &p)
			} else {
				err = api.Call(cmd.Context(), http.MethodPut, path+"/values", map[string]any{"values": values}, &p)
			}
			if err != nil {
				return err
			}
			if api.JSON {
				return output.JSON(cmd.OutOrStdout(), p.Options)
			}
			return showOptions(cmd.OutOrStdout(), p)
		},
	}
	cmd.Flags().StringArrayVar(&fromSecret, "secret", nil, "KEY=NAME: the value of your secret NAME, whatever it is by then")
	cmd.Flags().StringArrayVar(&unset, "unset", nil, "KEY whose value is forgotten")
	return cmd
}

func givenValues(cmd *cobra.Command, words, fromSecret, unset []string) (map[string]any, error) {
	values := map[string]any{}
	for _, w := range words {
		key, value, given := strings.Cut(w, "=")
		if !given {
			text, err := readSecret(cmd)
			if err != nil {
				return nil, err
			}
			value = text
		}
		values[key] = value
	}
	for _, w := range fromSecret {
		key, name, ok := strings.Cut(w, "=")
		if !ok || name == "" {
			return nil, exit.With(exit.Usage, "--secret %q: write KEY=NAME, with the name of a secret", w)
		}
		values[key] = "${secret:" + name + "}"
	}
	for _, key := range unset {
		values[key] = nil
	}
	return values, nil
}

// showOptions lists what a plugin asks for. Texts of a plugin are hostile.
func showOptions(w io.Writer, p sandbox.Plugin) error {
	if len(p.Options) == 0 {
		_, err := fmt.Fprintf(w, "%s asks for no values\n", p.Name)
		return err
	}
	for _, o := range p.Options {
		state := "not set"
		switch {
		case o.Set && o.Value != nil:
			state = argform.Line(fmt.Sprint(o.Value), 100)
		case o.Set:
			state = "set"
		case o.Default != nil:
			state = argform.Line(fmt.Sprint(o.Default), 100) + " (default)"
		case o.Required:
			state = "not set, and needed"
		}
		if _, err := fmt.Fprintf(w, "%-24s %-28s %s\n", argform.Line(o.Key, 64), state, argform.Line(o.Description, 200)); err != nil {
			return err
		}
	}
	return nil
}

// lacking are the values that a plugin cannot do without and does not have.
func lacking(p sandbox.Plugin) (keys []string) {
	for _, o := range p.Options {
		if o.Required && !o.Set && o.Default == nil {
			keys = append(keys, o.Key)
		}
	}
	return keys
}

// askForValues asks for what an installed plugin lacks, when a person is there to be asked. What is left empty is for later.
func askForValues(cmd *cobra.Command, api *client.Client, p sandbox.Plugin) error {
	keys := lacking(p)
	if len(keys) == 0 {
		return nil
	}
	w := cmd.ErrOrStderr()
	in, ok := cmd.InOrStdin().(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) || api.JSON {
		_, err := fmt.Fprintf(w, "It needs values that are not set: %s. Set them: skerry plugins values %s %s\n", argform.Line(strings.Join(keys, ", "), 500), p.Name, argform.Line(strings.Join(keys, " "), 500))
		return err
	}
	fmt.Fprintf(w, "It needs values; leave one empty to set it later with skerry plugins values %s.\n", p.Name)
	values := map[string]any{}
	for _, key := range keys {
		i := slices.IndexFunc(p.Options, func(o sandbox.PluginOption) bool { return o.Key == key })
		fmt.Fprintf(w, "%s, %s\n", argform.Line(key, 64), argform.Line(p.Options[i].Description, 200))
		value, err := readSecret(cmd)
		if err != nil {
			return err
		}
		if value != "" {
			values[key] = value
		}
	}
	if len(values) == 0 {
		return nil
	}
	return api.Call(cmd.Context(), http.MethodPut, "/api/plugins/"+url.PathEscape(p.Name)+"/values", map[string]any{"values": values}, nil)
}
