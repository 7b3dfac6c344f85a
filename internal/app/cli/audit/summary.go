package audit

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/skerry-sandbox/skerry/internal/app/cli/client"
	"github.com/skerry-sandbox/skerry/internal/app/cli/exit"
	"github.com/skerry-sandbox/skerry/internal/app/cli/output"
	"github.com/skerry-sandbox/skerry/internal/tools/argform"
	sdk "github.com/skerry-sandbox/skerry/sdk/go"
)

// summaryBar is how wide the longest bar of a summary is, in characters.
const summaryBar = 40

func newAuditSummary(api *client.Client) *cobra.Command {
	buckets := 24
	cmd := &cobra.Command{
		Use: "summary", Short: "Count records: in all, by time, and by user, action, tool and outcome", Args: cobra.NoArgs,
		Long: "Counts records of a filter: in all, by time, and by user, action, tool and outcome. An attempt and its result are two\n" +
			"records, of which the result has the outcome. The server counts the newest first, for about half a second, and the\n" +
			"answer says when it did not reach all.",
		Example: "  skerry audit summary --since 7d --user ann\n  skerry audit summary --since 24h --outcome denied --json",
	}
	query := auditFilters(cmd)
	cmd.Flags().IntVar(&buckets, "buckets", buckets, "the most spans of time, 1 to 500")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		q, err := query()
		if err != nil {
			return err
		}
		if buckets < 1 {
			return exit.With(exit.Usage, "--buckets %d: use 1 to 500", buckets)
		}
		q.Set("buckets", fmt.Sprint(buckets))
		var s sdk.AuditSummary
		if err := api.Call(cmd.Context(), http.MethodGet, "/api/audit/summary?"+q.Encode(), nil, &s); err != nil {
			return err
		}
		if api.JSON {
			return output.JSON(output.Writer(cmd.OutOrStdout(), false), s)
		}
		return showSummary(cmd.OutOrStdout(), s)
	}
	return cmd
}

func showSummary(w io.Writer, s sdk.AuditSummary) error {
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintf(tw, "%d records, %d denied, %d failed\n", s.Count, s.Denied, s.Failed) //nolint:errcheck // Flush reports it
	if s.Partial && s.CountedSince != nil {
		fmt.Fprintf(tw, "older records than %s are not counted: choose a shorter time\n", output.Time(*s.CountedSince)) //nolint:errcheck // likewise
	}
	highest := int64(1)
	for _, b := range s.Buckets {
		highest = max(highest, b.Count)
	}
	fmt.Fprintln(tw, "\nFROM\tRECORDS\tDENIED\tFAILED\t") //nolint:errcheck // likewise
	for _, b := range s.Buckets {
		bar := strings.Repeat("█", int((b.Count*summaryBar+highest-1)/highest))
		fmt.Fprintf(tw, "%s\t%d\t%d\t%d\t%s\n", output.Time(b.Start), b.Count, b.Denied, b.Failed, bar) //nolint:errcheck // likewise
	}
	for _, f := range []struct {
		name  string
		facet sdk.AuditFacet
	}{{"USER", s.Users}, {"ACTION", s.Actions}, {"TOOL", s.Tools}, {"OUTCOME", s.Outcomes}} {
		if len(f.facet.Values) == 0 && f.facet.Other == 0 {
			continue
		}
		fmt.Fprintf(tw, "\n%s\tRECORDS\tDENIED\tFAILED\t\n", f.name) //nolint:errcheck // likewise
		for _, v := range f.facet.Values {
			fmt.Fprintf(tw, "%s\t%d\t%d\t%d\t\n", argform.Line(v.Value, 60), v.Count, v.Denied, v.Failed) //nolint:errcheck // likewise
		}
		if f.facet.Other > 0 {
			fmt.Fprintf(tw, "(others)\t%d\t\t\t\n", f.facet.Other) //nolint:errcheck // likewise
		}
	}
	return tw.Flush()
}
