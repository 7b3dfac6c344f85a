package cli

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/skerry-sandbox/skerry/internal/app/cli/client"
	"github.com/skerry-sandbox/skerry/internal/app/cli/output"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

func newUsage(api *client.Client) *cobra.Command {
	q := map[string]*string{"from": new(string), "to": new(string), "by": new(string), "user": new(string)}
	cmd := &cobra.Command{
		Use: "usage", Short: "What was used, and what is left of the limits",
		Long: "Prints what was used on some days (UTC): your own, or with an administrator's key the tenant's, by day, user or key; then the limits that you have.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := url.Values{}
			for name, value := range q {
				if *value != "" {
					v.Set(name, *value)
				}
			}
			var r sandbox.UsageReport
			if err := api.Call(cmd.Context(), http.MethodGet, "/api/usage?"+v.Encode(), nil, &r); err != nil {
				return err
			}
			if api.JSON {
				return output.JSON(cmd.OutOrStdout(), r)
			}
			return writeUsage(cmd.OutOrStdout(), r)
		},
	}
	today := time.Now().UTC().Format(time.DateOnly)
	cmd.Flags().StringVar(q["from"], "from", "", "first day, such as "+today+" (default: today)")
	cmd.Flags().StringVar(q["to"], "to", "", "last day (default: today)")
	cmd.Flags().StringVar(q["by"], "by", "", "day, user or key (default: day)")
	cmd.Flags().StringVar(q["user"], "user", "", "only this one's")
	return cmd
}

// share is a part of all, in percent.
func share(part, all int64) string {
	if all == 0 {
		return "-"
	}
	return fmt.Sprintf("%d%%", 100*part/all)
}

func writeUsage(w io.Writer, r sandbox.UsageReport) error {
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(tw, "OF\tREQUESTS\tREFUSED\tEXECS\tEXEC S\tCPU S\tTOOL CALLS\tBY CODE\tRESULTS KB\tRETURNED KB\tSTARTS\tSANDBOX S")
	row := func(of string, u sandbox.UsageAmounts) {
		fmt.Fprintf(tw, "%s\t%d\t%d\t%d\t%.1f\t%.1f\t%d\t%s\t%.1f\t%.1f\t%d\t%.0f\n", of, u.Requests, u.Refused, u.Execs, u.ExecSeconds, u.CPUSeconds,
			u.ToolCalls, share(u.CodeToolCalls, u.ToolCalls), float64(u.ToolResultBytes)/1000, float64(u.ReturnedBytes)/1000, u.SandboxStarts, u.SandboxSeconds)
	}
	for _, i := range r.Items {
		row(i.Day+i.User+i.KeyID, i.UsageAmounts)
	}
	row("all", r.Total)
	if len(r.Limits) > 0 {
		fmt.Fprintln(tw, "\nLIMIT\tOF\t\tMOST\tUSED")
	}
	for _, l := range r.Limits {
		used := "-"
		if l.Used != nil {
			used = fmt.Sprint(*l.Used)
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%d\t%s\n", l.Limit, l.Scope, l.Who, l.Max, used)
	}
	return tw.Flush()
}
