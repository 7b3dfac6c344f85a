package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/skerry-sandbox/skerry/internal/app/cli/client"
	"github.com/skerry-sandbox/skerry/internal/app/cli/exit"
	"github.com/skerry-sandbox/skerry/internal/app/cli/output"
	"github.com/skerry-sandbox/skerry/internal/tools/argform"
	sdk "github.com/skerry-sandbox/skerry/sdk/go"
)

// New is `skerry audit`.
func New(api *client.Client) *cobra.Command {
	cmd := &cobra.Command{Use: "audit", Short: "Read the audit log"}
	cmd.AddCommand(newAuditQuery(api), newAuditCalls(api), newAuditSummary(api), newAuditShow(api), newAuditReport(api), newAuditTail(api), newAuditExport(api), newAuditVerify(api), newAuditCheckpoint(api), newAuditKeys(api))
	return cmd
}

// auditColumns are the fields of a record that its table shows.
var auditColumns = []string{"time", "phase", "action", "subject", "outcome", "ms", "user", "thread", "exec", "id", "parent"}

// auditFilters are the flags that select records, as the API has them.
func auditFilters(cmd *cobra.Command) func() (url.Values, error) {
	names := []string{"thread", "user", "exec", "action", "tool", "outcome"}
	for _, name := range names {
		cmd.Flags().String(name, "", "only records with this "+name)
	}
	cmd.Flags().String("since", "", "only from this time on: "+output.TimeHelp)
	cmd.Flags().String("until", "", "only before this time, written likewise")
	cmd.Flags().StringP("text", "q", "", "only records that have this text anywhere")
	return func() (url.Values, error) {
		q := url.Values{}
		for _, name := range append(names, "since", "until", "text") {
			value, _ := cmd.Flags().GetString(name) // it is one of the above
			if value != "" && (name == "since" || name == "until") {
				at, err := output.ParseTime(value, time.Now())
				if err != nil {
					return nil, exit.With(exit.Usage, "--%s: %w", name, err)
				}
				value = at.UTC().Format(time.RFC3339Nano)
			}
			if name == "text" {
				name = "q"
			}
			if value != "" {
				q.Set(name, value)
			}
		}
		return q, nil
	}
}

func newAuditQuery(api *client.Client) *cobra.Command {
	limit := 100
	cmd := &cobra.Command{
		Use: "query", Short: "List records, newest first", Args: cobra.NoArgs,
		Example: "  skerry audit query --since 1h --outcome denied\n  skerry audit query --thread demo -q report.md --json",
	}
	query := auditFilters(cmd)
	cmd.Flags().IntVar(&limit, "limit", limit, "how many")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if limit < 1 {
			return fmt.Errorf("--limit %d: use 1 or more", limit)
		}
		q, err := query()
		if err != nil {
			return err
		}
		items, more, err := records[map[string]any](cmd.Context(), api, q, limit)
		if err != nil {
			return err
		}
		if more {
			defer client.Stopped(cmd, len(items))
		}
		if api.JSON {
			return output.JSON(output.Writer(cmd.OutOrStdout(), false), items)
		}
		return output.Table(cmd.OutOrStdout(), items, auditColumns)
	}
	return cmd
}

// records asks for as many pages as it takes. more: there are others behind them.
func records[T any](ctx context.Context, api *client.Client, q url.Values, limit int) (all []T, more bool, err error) {
	all = []T{}
	for len(all) < limit {
		q.Set("limit", fmt.Sprint(min(limit-len(all), 1000)))
		var page struct {
			Items []T    `json:"items"`
			Next  string `json:"next_cursor"`
		}
		if err := api.Call(ctx, http.MethodGet, "/api/audit?"+q.Encode(), nil, &page); err != nil {
			return nil, false, err
		}
		all = append(all, page.Items...)
		if page.Next == "" {
			return all, false, nil
		}
		q.Set("cursor", page.Next)
	}
	return all, true, nil
}

func newAuditExport(api *client.Client) *cobra.Command {
	format, file := "jsonl", "-"
	cmd := &cobra.Command{
		Use: "export", Short: "Write all records of a filter, newest first", Args: cobra.NoArgs,
		Long:    "Writes all records of a filter, newest first: as they are (jsonl), as events of the Open Cybersecurity Schema Framework (ocsf), or as a table (csv).",
		Example: "  skerry audit export --format ocsf --since 24h -o audit.ocsf.jsonl",
	}
	query := auditFilters(cmd)
	cmd.Flags().StringVar(&format, "format", format, "jsonl, ocsf or csv")
	cmd.Flags().StringVarP(&file, "output", "o", file, "file to write, which must not be there yet; - is standard output")
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		q, err := query()
		if err != nil {
			return err
		}
		q.Set("format", format)
		res, err := api.Request(cmd.Context(), sdk.Request{Method: http.MethodGet, Path: "/api/audit/export", Query: q})
		if err != nil {
			return err
		}
		defer res.Body.Close()
		out := io.Writer(output.Writer(cmd.OutOrStdout(), false))
		if file != "-" {
			f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, f.Close()) }()
			out = f
		}
		if _, err := io.Copy(out, res.Body); err != nil {
			return fmt.Errorf("the export broke off, so not all records are there: %w", err)
		}
		return nil
	}
	return cmd
}

func newAuditTail(api *client.Client) *cobra.Command {
	raw := false
	cmd := &cobra.Command{
		Use: "tail", Short: "Show records as they come", Args: cobra.NoArgs,
		Long: "Shows records as they come, until you stop it. A connection that is lost is made again, and nothing is missed. On a terminal, outcomes have " +
			"colours, and control sequences in hostile text are left out unless you say --raw.",
		Example: "  skerry audit tail --outcome denied\n  skerry audit tail --thread demo --json | jq .subject",
	}
	query := auditFilters(cmd)
	output.RawFlag(cmd, &raw)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		t := &tail{api: api, out: cmd.OutOrStdout(), raw: raw}
		q, err := query()
		if err != nil {
			return err
		}
		f, err := filterOf(q)
		if err != nil {
			return err
		}
		return t.run(cmd.Context(), f)
	}
	return cmd
}

// filterOf is what the flags say, for the client.
func filterOf(q url.Values) (sdk.AuditFilter, error) {
	f := sdk.AuditFilter{
		Thread: q.Get("thread"), User: q.Get("user"), Exec: q.Get("exec"), Action: q.Get("action"), Tool: q.Get("tool"), Outcome: q.Get("outcome"), Text: q.Get("q"),
	}
	for name, t := range map[string]*time.Time{"since": &f.Since, "until": &f.Until} {
		if !q.Has(name) {
			continue
		}
		var err error
		if *t, err = time.Parse(time.RFC3339, q.Get(name)); err != nil {
			return f, fmt.Errorf("--%s %q: write a time such as 2026-11-22T10:00:00Z, or how long ago, such as 2h", name, q.Get(name))
		}
	}
	return f, nil
}

// tail shows a stream of records.
type tail struct {
	api *client.Client
	out io.Writer
	raw bool
}

func (t *tail) run(ctx context.Context, f sdk.AuditFilter) error {
	for e, err := range t.api.SDK().FollowAudit(ctx, f, "") {
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return client.Explain(err)
		}
		if err := t.show(string(e.Record)); err != nil {
			return fmt.Errorf("the output cannot be written: %w", err)
		}
	}
	return nil
}

func (t *tail) show(data string) error {
	if t.api.JSON {
		_, err := fmt.Fprintln(output.Writer(t.out, t.raw), data)
		return err
	}
	var r struct {
		Time                                                        time.Time
		Phase, Action, Subject, Outcome, Detail, User, Thread, Exec string
		Millis                                                      int64 `json:"ms"`
	}
	if err := json.Unmarshal([]byte(data), &r); err != nil {
		return err
	}
	text := func(s string, most int) string {
		if t.raw {
			return s
		}
		return argform.Line(s, most)
	}
	outcome, colour := r.Outcome, output.Yellow
	switch {
	case r.Phase == "attempt":
		outcome, colour = "…", output.Dim
	case outcome == "ok" || outcome == "exited" || outcome == "":
		colour = output.Green
	case outcome == "denied" || outcome == "error":
		colour = output.Red
	}
	outcome = output.Coloured(t.out, colour, fmt.Sprintf("%-8s", text(outcome, 20)))
	line := fmt.Sprintf("%s  %s  %-16s  %s/%s  %s", output.Time(r.Time), outcome, text(r.Action, 40), text(r.User, 40), text(r.Thread, 40), text(r.Subject, 160))
	if r.Detail != "" {
		line += "  (" + text(r.Detail, 120) + ")"
	}
	_, err := fmt.Fprintln(t.out, line)
	return err
}
