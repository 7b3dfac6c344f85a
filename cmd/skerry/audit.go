package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skerry-sandbox/skerry/internal/argform"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

func newAudit(api *apiClient) *cobra.Command {
	cmd := &cobra.Command{Use: "audit", Short: "Read the audit log"}
	cmd.AddCommand(newAuditQuery(api), newAuditTail(api), newAuditExport(api), newAuditVerify(api), newAuditCheckpoint(api), newAuditKeys(api))
	return cmd
}

// auditColumns are the fields of a record that its table shows.
var auditColumns = []string{"time", "phase", "action", "subject", "outcome", "ms", "user", "thread", "exec", "id", "parent"}

// auditFilters are the flags that select records, as the API has them.
func auditFilters(cmd *cobra.Command) func() url.Values {
	names := []string{"thread", "user", "exec", "action", "tool", "outcome"}
	for _, name := range names {
		cmd.Flags().String(name, "", "only records with this "+name)
	}
	cmd.Flags().String("since", "", "only from this time on: RFC 3339, or how long ago, such as 2h")
	cmd.Flags().String("until", "", "only before this time")
	cmd.Flags().StringP("text", "q", "", "only records that have this text anywhere")
	return func() url.Values {
		q := url.Values{}
		for _, name := range append(names, "since", "until", "text") {
			value, _ := cmd.Flags().GetString(name) // it is one of the above
			if ago, err := time.ParseDuration(value); err == nil && (name == "since" || name == "until") {
				value = time.Now().Add(-ago).UTC().Format(time.RFC3339Nano)
			}
			if name == "text" {
				name = "q"
			}
			if value != "" {
				q.Set(name, value)
			}
		}
		return q
	}
}

func newAuditQuery(api *apiClient) *cobra.Command {
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
		items, err := api.records(cmd.Context(), query(), limit)
		if err != nil {
			return err
		}
		if api.json {
			return printJSON(eyes{w: cmd.OutOrStdout()}, items)
		}
		return writeTable(cmd.OutOrStdout(), items, auditColumns)
	}
	return cmd
}

// records asks for as many pages as it takes.
func (c *apiClient) records(ctx context.Context, q url.Values, limit int) (all []map[string]any, err error) {
	all = []map[string]any{}
	for len(all) < limit {
		q.Set("limit", fmt.Sprint(min(limit-len(all), 1000)))
		var page struct {
			Items []map[string]any `json:"items"`
			Next  string           `json:"next_cursor"`
		}
		if err := c.call(ctx, http.MethodGet, "/api/audit?"+q.Encode(), nil, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Items...)
		if page.Next == "" {
			break
		}
		q.Set("cursor", page.Next)
	}
	return all, nil
}

func newAuditExport(api *apiClient) *cobra.Command {
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
		q := query()
		q.Set("format", format)
		res, err := api.request(cmd.Context(), http.MethodGet, "/api/audit/export?"+q.Encode(), nil, "")
		if err != nil {
			return err
		}
		defer res.Body.Close()
		out := io.Writer(eyes{w: cmd.OutOrStdout()})
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

func newAuditTail(api *apiClient) *cobra.Command {
	raw := false
	cmd := &cobra.Command{
		Use: "tail", Short: "Show records as they come", Args: cobra.NoArgs,
		Long: "Shows records as they come, until you stop it. A connection that is lost is made again, and nothing is missed. On a terminal, outcomes have " +
			"colours, and control sequences in hostile text are left out unless you say --raw.",
		Example: "  skerry audit tail --outcome denied\n  skerry audit tail --thread demo --json | jq .subject",
	}
	query := auditFilters(cmd)
	rawFlag(cmd, &raw)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		t := &tail{api: api, out: cmd.OutOrStdout(), raw: raw, tty: onTerminal(cmd.OutOrStdout())}
		return t.run(cmd.Context(), "/api/audit/stream?"+query().Encode())
	}
	return cmd
}

// tail shows a stream of records.
type tail struct {
	api  *apiClient
	out  io.Writer
	raw  bool
	tty  bool
	last string // id of the newest event that was shown
}

// tailAgain is how long a lost connection is tried again.
const tailAgain = time.Minute

func (t *tail) run(ctx context.Context, path string) error {
	for lost := time.Now(); ; {
		shown, err := t.once(ctx, path)
		if shown {
			lost = time.Now()
		}
		kind := sandbox.KindOf(err)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, errNotWritten):
			return err
		case kind == sandbox.Invalid, kind == sandbox.Forbidden, kind == sandbox.Unauthorized, kind == sandbox.NotFound, time.Since(lost) > tailAgain:
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second):
		}
	}
}

var errNotWritten = errors.New("the output cannot be written")

// once follows one connection. shown: something came.
func (t *tail) once(ctx context.Context, path string) (shown bool, err error) {
	res, err := t.api.requestWith(ctx, http.MethodGet, path, nil, http.Header{"Accept": {"text/event-stream"}, "Last-Event-ID": {t.last}})
	if err != nil {
		return false, err
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(make([]byte, 64<<10), maxEventLine)
	id, event := "", ""
	for lines.Scan() {
		shown = true
		name, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch name {
		case "id":
			id = value
		case "event":
			event = value
		case "data":
			if event == "error" {
				_, err := takeEvent(event, value, nil, nil)
				return shown, err
			}
			if err := t.show(value); err != nil {
				return shown, errors.Join(errNotWritten, err)
			}
			t.last = id
		}
	}
	return shown, lines.Err()
}

// Colours of outcomes, and what ends them.
const (
	green  = "\x1b[32m"
	red    = "\x1b[31m"
	yellow = "\x1b[33m"
	dim    = "\x1b[2m"
	plain  = "\x1b[0m"
)

func (t *tail) show(data string) error {
	if t.api.json {
		_, err := fmt.Fprintln(eyes{t.out, t.raw}, data)
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
	outcome, colour := r.Outcome, yellow
	switch {
	case r.Phase == "attempt":
		outcome, colour = "…", dim
	case outcome == "ok" || outcome == "exited" || outcome == "":
		colour = green
	case outcome == "denied" || outcome == "error":
		colour = red
	}
	outcome = fmt.Sprintf("%-8s", text(outcome, 20))
	if t.tty {
		outcome = colour + outcome + plain
	}
	line := fmt.Sprintf("%s  %s  %-16s  %s/%s  %s", r.Time.Local().Format("15:04:05.000"), outcome, text(r.Action, 40), text(r.User, 40), text(r.Thread, 40), text(r.Subject, 160))
	if r.Detail != "" {
		line += "  (" + text(r.Detail, 120) + ")"
	}
	_, err := fmt.Fprintln(t.out, line)
	return err
}
