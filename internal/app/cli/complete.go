package cli

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skerry-sandbox/skerry/internal/app/cli/client"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// completeTimeout bounds what a person waits for after the tab key.
const completeTimeout = 2 * time.Second

// completer says what a word of a command line can be.
type completer = cobra.CompletionFunc

// complete sets what the words of all commands complete to, by the names that their usage has for them.
func complete(root *cobra.Command, api *client.Client) {
	threads := fromServer(api, "/api/threads?limit=1000", "thread_id")
	templates := fromServer(api, "/api/templates", "name")
	tools := toolNames(api)
	roles := make([]string, 0, len(sandbox.Roles()))
	for _, r := range sandbox.Roles() {
		roles = append(roles, string(r))
	}
	flags := map[string]completer{
		"role": cobra.FixedCompletions(roles, cobra.ShellCompDirectiveNoFileComp), "template": templates, "thread": threads, "tool": tools,
		"lang": cobra.FixedCompletions([]string{"ts", "js", "py", "sh", "wasm"}, cobra.ShellCompDirectiveNoFileComp),
	}
	words := map[string]completer{"THREAD": threads, "TEMPLATE": templates, "TOOL": tools, "SERVER.TOOL": tools}
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for name, f := range flags {
			if cmd.Flags().Lookup(name) != nil {
				_ = cmd.RegisterFlagCompletionFunc(name, f) // an error: a group has registered it
			}
		}
		if cmd.ValidArgsFunction == nil && !cmd.HasSubCommands() {
			usage := strings.Fields(cmd.Use)[1:]
			if strings.HasPrefix(cmd.CommandPath(), "skerry templates") {
				for i := range usage {
					usage[i] = strings.Replace(usage[i], "NAME…", "TEMPLATE", 1)
				}
			}
			cmd.ValidArgsFunction = func(c *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
				if len(usage) == 0 {
					return nil, cobra.ShellCompDirectiveNoFileComp
				}
				if f := words[strings.TrimRight(usage[min(len(args), len(usage)-1)], "…")]; f != nil {
					return f(c, args, word)
				}
				return nil, cobra.ShellCompDirectiveDefault
			}
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(root)
}

// fromServer completes to a field of what a list of the API has.
func fromServer(api *client.Client, path, field string) completer {
	return func(cmd *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
		var list struct {
			Items []map[string]any `json:"items"`
		}
		if !ask(cmd, api, path, &list) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []string
		for _, item := range list.Items {
			if name, _ := item[field].(string); completes(word, name) {
				names = append(names, name)
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// toolNames completes to the tools of the thread that the command names, or of the one that `skerry mcp` uses.
func toolNames(api *client.Client) completer {
	return func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		thread := "cli"
		if f := cmd.Flags().Lookup("thread"); f != nil && f.Value.String() != "" {
			thread = f.Value.String()
		}
		var found struct {
			Tools []struct {
				Name string `json:"name"`
			} `json:"tools"`
		}
		if !ask(cmd, api, client.ThreadPath(thread, "tools")+"?detail=name", &found) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []string
		for _, t := range found.Tools {
			if completes(word, t.Name) {
				names = append(names, t.Name)
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// completes reports whether a word can become a name, which a terminal can show.
func completes(word, name string) bool {
	return name != "" && strings.HasPrefix(name, word) && !strings.ContainsAny(name, "\n\r\t\x1b")
}

// ask reports whether the server answered. Errors are no completions.
func ask(cmd *cobra.Command, api *client.Client, path string, out any) bool {
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, completeTimeout)
	defer cancel()
	return api.Resolve() == nil && api.Call(ctx, http.MethodGet, path, nil, out) == nil
}
