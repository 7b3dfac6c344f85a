package cli

import (
	"fmt"
	"net/http"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/skerry-sandbox/skerry/internal/app/cli/client"
	"github.com/skerry-sandbox/skerry/internal/app/cli/exit"
	"github.com/skerry-sandbox/skerry/internal/app/cli/output"
	"github.com/skerry-sandbox/skerry/internal/policy"
	"github.com/skerry-sandbox/skerry/internal/tools/argform"
)

func newPolicyReplay(api *client.Client) *cobra.Command {
	var since, until, user string
	var tenant bool
	cmd := &cobra.Command{
		Use: "replay FILE", Short: "Say which calls of the last week the rules of a file would have decided otherwise",
		Long: "Tries the rules of a file on the calls that the server's audit log has, and shows those that it would have allowed, denied, or put to a person, and now does not. " +
			"Arguments are tried as they were kept, which is redacted. Nothing changes on the server.",
		Example: "  skerry policy replay policy.yaml\n  skerry policy replay policy.yaml --since 30d --user ann --json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			rules, err := readRules(cmd.InOrStdin(), args[0])
			if err != nil {
				return err
			}
			body := map[string]any{"text": string(rules.Text), "user": user}
			for name, text := range map[string]string{"since": since, "until": until} {
				if text == "" {
					continue
				}
				at, err := output.ParseTime(text, time.Now())
				if err != nil {
					return exit.With(exit.Usage, "--%s: %w", name, err)
				}
				body[name] = at.UTC().Format(time.RFC3339Nano)
			}
			var r policy.PastReport
			if err := api.Call(cmd.Context(), http.MethodPost, policyPath("/api/policy/replay", tenant), body, &r); err != nil {
				return err
			}
			if api.JSON {
				return output.JSON(cmd.OutOrStdout(), r)
			}
			return showReplay(cmd, &r)
		},
	}
	cmd.Flags().StringVar(&since, "since", "", "only calls from this time on, a week when absent: "+output.TimeHelp)
	cmd.Flags().StringVar(&until, "until", "", "only calls before this time")
	cmd.Flags().StringVar(&user, "user", "", "only calls of this user")
	scopeFlag(cmd, &tenant)
	return cmd
}

func showReplay(cmd *cobra.Command, r *policy.PastReport) error {
	w := cmd.OutOrStdout()
	fmt.Fprintf(w, "%s since %s, %d decided otherwise\n", output.Count(r.Calls, "call"), output.Time(r.Since), r.Changed)
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(tw, "\tALLOW\tASK\tDENY")
	fmt.Fprintf(tw, "now\t%d\t%d\t%d\n", r.Now.Allow, r.Now.Approval, r.Now.Deny)
	fmt.Fprintf(tw, "then\t%d\t%d\t%d\n", r.Then.Allow, r.Then.Approval, r.Then.Deny)
	if len(r.Items) > 0 {
		fmt.Fprintln(tw, "\nWHEN\tUSER\tTHREAD\tCALL\tNOW\tTHEN\tBY")
	}
	for _, i := range r.Items {
		by := "the default"
		if len(i.Rules) > 0 {
			by = i.Rules[0].Rule
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", output.Time(i.Time), argform.Line(i.User, 40), argform.Line(i.Thread, 40), argform.Line(i.Subject, 60), i.Now, i.Then, argform.Line(by, 40))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	if n := r.Changed - len(r.Items); n > 0 {
		fmt.Fprintf(w, "… and %d more\n", n)
	}
	if r.Unread > 0 {
		fmt.Fprintf(w, "%s not tried: the arguments were not kept whole\n", output.Count(r.Unread, "call"))
	}
	if r.Partial {
		fmt.Fprintf(cmd.ErrOrStderr(), "skerry: the look stopped at its bound: it came back as far as %s\n", output.Time(r.Since)) //nolint:errcheck // nothing else can be told
	}
	return nil
}
