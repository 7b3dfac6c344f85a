package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/skerry-sandbox/skerry/internal/app/cli/client"
	"github.com/skerry-sandbox/skerry/internal/app/cli/exit"
	"github.com/skerry-sandbox/skerry/internal/app/cli/output"
	"github.com/skerry-sandbox/skerry/internal/tools/argform"
)

// entry is a record, as far as these commands show it.
type entry struct {
	ID      string          `json:"id"`
	Time    time.Time       `json:"time"`
	User    string          `json:"user"`
	Actor   string          `json:"actor"`
	Thread  string          `json:"thread"`
	Exec    string          `json:"exec"`
	Parent  string          `json:"parent"`
	Phase   string          `json:"phase"`
	Action  string          `json:"action"`
	Subject string          `json:"subject"`
	Args    json.RawMessage `json:"args"`
	Outcome string          `json:"outcome"`
	Detail  string          `json:"detail"`
	Millis  int64           `json:"ms"`
}

const (
	actionCall   = "tool_call"
	phaseAttempt = "attempt"
	denied       = "denied"
	// maxRead bounds how many records one command reads.
	maxRead = 100_000
)

// call is one tool call: what its attempt and its result say.
type call struct {
	ID        string          `json:"id"` // of the attempt, for `skerry audit show`
	Time      time.Time       `json:"time"`
	User      string          `json:"user"`
	Actor     string          `json:"actor,omitempty"` // who acted for the user
	Thread    string          `json:"thread"`
	Exec      string          `json:"exec,omitempty"`
	Tool      string          `json:"tool"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
	Outcome   string          `json:"outcome"` // "" while it goes on
	Reason    string          `json:"reason,omitempty"`
	Millis    int64           `json:"ms"`
}

// who names the user, and who acted for it.
func (c call) who() string {
	if c.Actor == "" {
		return c.User
	}
	return c.User + " by " + c.Actor
}

// joined makes one call of each attempt and its result, newest first. Of a call of which only one is there, it is what
// that says.
func joined(records []entry) []call {
	byID := map[string]int{}
	calls := []call{}
	at := func(id string, e entry) *call {
		i, ok := byID[id]
		if !ok {
			i = len(calls)
			byID[id] = i
			calls = append(calls, call{ID: id, Time: e.Time, User: e.User, Actor: e.Actor, Thread: e.Thread, Exec: e.Exec, Tool: e.Subject})
		}
		return &calls[i]
	}
	for _, e := range records {
		if e.Action != actionCall {
			continue
		}
		if e.Phase == phaseAttempt {
			c := at(e.ID, e)
			c.Time, c.Arguments = e.Time, e.Args
			continue
		}
		id := e.Parent
		if id == "" {
			id = e.ID
		}
		c := at(id, e)
		c.Outcome, c.Reason, c.Millis = e.Outcome, e.Detail, e.Millis
		if len(c.Arguments) == 0 {
			c.Arguments = e.Args
		}
	}
	slices.SortStableFunc(calls, func(a, b call) int { return b.Time.Compare(a.Time) })
	return calls
}

func newAuditCalls(api *client.Client) *cobra.Command {
	limit, format := 100, "table"
	var onlyDenied bool
	cmd := &cobra.Command{
		Use: "calls", Short: "List tool calls, newest first: when, who, which tool, with what, and what became of it", Args: cobra.NoArgs,
		Long: "Lists tool calls, newest first. Each is one row, which joins the record of the attempt with that of the result.\n" +
			"`skerry audit show ID` shows what such a call belongs to, and what it did.",
		Example: "  skerry audit calls --user ann --since 7d --denied\n  skerry audit calls --since 2026-11-01 --format csv > calls.csv",
	}
	query := auditFilters(cmd)
	cmd.Flags().BoolVar(&onlyDenied, denied, false, "the same as --outcome denied")
	cmd.Flags().IntVar(&limit, "limit", limit, "how many")
	cmd.Flags().StringVar(&format, "format", format, "table, csv or json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		q, err := query()
		switch {
		case err != nil:
			return err
		case limit < 1:
			return exit.With(exit.Usage, "--limit %d: use 1 or more", limit)
		case !slices.Contains([]string{"table", "csv", "json"}, format):
			return exit.With(exit.Usage, "--format %q: use table, csv or json", format)
		case onlyDenied:
			q.Set("outcome", denied)
		}
		calls, more, err := listCalls(cmd.Context(), api, q, limit)
		if err != nil {
			return err
		}
		if more {
			defer client.Stopped(cmd, len(calls))
		}
		if api.JSON {
			format = "json"
		}
		return showCalls(cmd, calls, format)
	}
	return cmd
}

// listCalls returns the newest calls of a filter. An outcome stands in results alone, and arguments in attempts: it reads
// both, and then chooses.
func listCalls(ctx context.Context, api *client.Client, q url.Values, limit int) (calls []call, more bool, err error) {
	outcome := q.Get("outcome")
	if outcome != "" { // the server knows which there are
		if err := api.Call(ctx, http.MethodGet, "/api/audit?"+url.Values{"outcome": {outcome}, "limit": {"1"}}.Encode(), nil, nil); err != nil {
			return nil, false, err
		}
	}
	q.Del("outcome")
	q.Set("action", actionCall)
	most := maxRead
	if outcome == "" {
		most = min(maxRead, 2*limit+2)
	}
	records, more, err := records[entry](ctx, api, q, most)
	if err != nil {
		return nil, false, err
	}
	calls = slices.DeleteFunc(joined(records), func(c call) bool { return outcome != "" && c.Outcome != outcome })
	if len(calls) > limit {
		calls, more = calls[:limit], true
	}
	return calls, more, nil
}

func showCalls(cmd *cobra.Command, calls []call, format string) error {
	w := cmd.OutOrStdout()
	switch format {
	case "json":
		return output.JSON(output.Writer(w, false), calls)
	case "csv":
		rows := make([][]string, len(calls))
		for i, c := range calls {
			rows[i] = []string{c.Time.Format(time.RFC3339Nano), c.User, c.Actor, c.Thread, c.Exec, c.Tool, string(c.Arguments), c.Outcome, c.Reason, fmt.Sprint(c.Millis), c.ID}
		}
		return output.CSV(output.Writer(w, false), []string{"time", "user", "actor", "thread", "exec", "tool", "arguments", "outcome", "reason", "ms", "id"}, rows)
	}
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(tw, "TIME\tWHO\tTHREAD\tTOOL\tARGUMENTS\tOUTCOME\tMS\tREASON\tID")
	for _, c := range calls {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\n", output.Time(c.Time), argform.Line(c.who(), 40), argform.Line(c.Thread, 30), argform.Line(c.Tool, 50),
			argform.Line(string(c.Arguments), 70), argform.Line(ended(c.Outcome), 12), c.Millis, argform.Line(c.Reason, 90), c.ID)
	}
	return tw.Flush()
}

// ended is an outcome for people.
func ended(outcome string) string {
	if outcome == "" {
		return "…"
	}
	return strings.ToLower(outcome)
}
