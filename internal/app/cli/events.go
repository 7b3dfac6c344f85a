package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skerry-sandbox/skerry/internal/app/cli/client"
	"github.com/skerry-sandbox/skerry/internal/app/cli/output"
	"github.com/skerry-sandbox/skerry/internal/tools/argform"
	sdk "github.com/skerry-sandbox/skerry/sdk/go"
)

func newEvents(api *client.Client) *cobra.Command {
	var after string
	cmd := &cobra.Command{
		Use: "events THREAD", Short: "Show what happens in a thread, as it happens",
		Long: "Follows the events of a thread until it is deleted, or the command is interrupted: changes of its tools, skills and\n" +
			"prompt, calls that wait for approval, execs, files, and states of its sandbox. A connection that is lost is made again, and nothing is\n" +
			"missing between; where the server does not have all any more, an event reset says so.\n\n" +
			"With --json each event is one line of JSON. Its id goes into --after, to go on later.",
		Example: "  skerry events my-thread\n  skerry events my-thread --json | jq -c 'select(.kind == \"exec.ended\")'",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return followEvents(cmd.Context(), api, args[0], after, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&after, "after", "", "go on behind the event with this id")
	return cmd
}

func followEvents(ctx context.Context, api *client.Client, thread, after string, w io.Writer) error {
	for e, err := range api.SDK().Thread(thread).Events.Follow(ctx, after) {
		if err != nil {
			return client.Explain(err)
		}
		if api.JSON {
			err = json.NewEncoder(w).Encode(e)
		} else {
			_, err = fmt.Fprintln(w, eventLine(e))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// eventLine is an event on one line, for a person.
func eventLine(e sdk.ThreadEvent) string {
	parts := []string{output.Time(e.At), argform.Line(string(e.Kind), 40)}
	if x := e.Exec; x != nil {
		parts = append(parts, argform.Line(x.ExecID, 64), argform.Line(string(x.Status), 20), argform.Line(x.Subject, 120))
	}
	if a := e.Approval; a != nil {
		parts = append(parts, argform.Line(a.ID, 64), argform.Line(a.Tool, 120), argform.Line(string(a.State), 20))
	}
	if f := e.Files; f != nil {
		for _, path := range f.Paths {
			parts = append(parts, argform.Line(path, 200))
		}
		if f.More {
			parts = append(parts, "and maybe more")
		}
	}
	if b := e.Sandbox; b != nil {
		parts = append(parts, argform.Line(string(b.SandboxID), 64), argform.Line(b.Template, 40), argform.Line(b.Why, 120))
	}
	if v := e.Versions; v != nil {
		parts = append(parts, "prompt", argform.Line(v.Prompt, 40))
	}
	return strings.Join(parts, "  ")
}
