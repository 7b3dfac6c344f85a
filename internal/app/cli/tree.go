package cli

import (
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skerry-sandbox/skerry/internal/app/cli/client"
	"github.com/skerry-sandbox/skerry/internal/app/cli/exit"
	"github.com/skerry-sandbox/skerry/internal/app/cli/output"
	"github.com/skerry-sandbox/skerry/internal/platform/editdistance"
)

// finish makes all commands below cmd alike. cobra takes an unknown word below a group for a wish to see its help, and
// calls that success.
func finish(cmd *cobra.Command, api *client.Client) {
	for _, sub := range cmd.Commands() {
		finish(sub, api)
	}
	if cmd.RunE != nil {
		cmd.RunE = answered(cmd.RunE, api)
	}
	if cmd.Args != nil {
		cmd.Args = exit.Arguments(cmd.Args)
	}
	if !cmd.HasSubCommands() || cmd.Run != nil || cmd.RunE != nil {
		return
	}
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		return unknown(cmd, args[0])
	}
}

// answered runs a command. With --json one that has nothing to tell says that it is done: a program reads JSON in any case.
func answered(run func(*cobra.Command, []string) error, api *client.Client) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if !api.JSON {
			return run(cmd, args)
		}
		out := &written{w: cmd.OutOrStdout()}
		cmd.SetOut(out)
		if err := run(cmd, args); err != nil || out.any {
			return err
		}
		return output.JSON(out, map[string]bool{"ok": true})
	}
}

// written is a writer that notes whether anything was written.
type written struct {
	w   io.Writer
	any bool
}

func (o *written) Write(p []byte) (int, error) {
	o.any = true
	return o.w.Write(p)
}

// unknown says which commands there are, or which one was meant.
func unknown(cmd *cobra.Command, word string) error {
	var names []string
	best, least := "", max(2, len(word)/3)+1
	for _, sub := range cmd.Commands() {
		if !sub.IsAvailableCommand() {
			continue
		}
		names = append(names, sub.Name())
		for _, name := range append(slices.Clone(sub.Aliases), sub.Name()) {
			if d := editdistance.Of(strings.ToLower(word), name); d < least {
				best, least = sub.Name(), d
			}
		}
	}
	if best != "" {
		return exit.With(exit.Usage, "there is no command %q below %s; did you mean %s?", word, cmd.CommandPath(), best)
	}
	return exit.With(exit.Usage, "there is no command %q below %s; there are: %s", word, cmd.CommandPath(), strings.Join(names, ", "))
}
