package audit

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skerry-sandbox/skerry/internal/app/cli/client"
	"github.com/skerry-sandbox/skerry/internal/app/cli/output"
)

//go:embed report.html
var reportPage string

// Bounds of what the page shows.
const (
	reportRows   = 500 // denied and failed calls
	reportBars   = 15
	reportDays   = 92
	shownArgs    = 400
	dayFormat    = time.DateOnly
	plotHeight   = 120
	plotBarWidth = 14
)

func newAuditReport(api *client.Client) *cobra.Command {
	file := "-"
	var replace bool
	cmd := &cobra.Command{
		Use: "report", Short: "Write a page about what was done: plots, tools, users, and the calls that were denied or failed", Args: cobra.NoArgs,
		Long: "Writes one HTML page that you can hand on: what was done each day, by whom and with which tools, and each call that was\n" +
			"denied or failed. It needs no other file, runs no script, and asks no other machine. It holds what the records hold,\n" +
			"arguments included: those are redacted as in the log.",
		Example: "  skerry audit report --since 7d -o report.html",
	}
	query := auditFilters(cmd)
	cmd.Flags().StringVarP(&file, "output", "o", file, "file to write; - is standard output")
	cmd.Flags().BoolVarP(&replace, "force", "f", false, "replace the file when it is there")
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		if s := cmd.Flags().Lookup("since"); !s.Changed {
			if err := s.Value.Set("7d"); err != nil {
				return err
			}
		}
		q, err := query()
		if err != nil {
			return err
		}
		list, more, err := records[entry](cmd.Context(), api, q, maxRead)
		if err != nil {
			return err
		}
		r := newReport(list, q.Get("since"), time.Now())
		r.Server, r.Cut = api.Server, more
		if api.JSON {
			return output.JSON(output.Writer(cmd.OutOrStdout(), false), r)
		}
		out := cmd.OutOrStdout()
		if file != "-" {
			how := os.O_CREATE | os.O_WRONLY | os.O_EXCL
			if replace {
				how = os.O_CREATE | os.O_WRONLY | os.O_TRUNC
			}
			f, err := os.OpenFile(file, how, 0o600)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, f.Close()) }()
			out = f
		}
		return r.write(out)
	}
	return cmd
}

// report is what the page shows.
type report struct {
	Server  string    `json:"server"`
	Made    time.Time `json:"made"`
	From    time.Time `json:"from"`
	Records int       `json:"records"`
	Cut     bool      `json:"cut"` // there are older records than were read
	Calls   int       `json:"calls"`
	Denied  int       `json:"denied"`
	Failed  int       `json:"failed"`
	Execs   int       `json:"execs"`
	Days    []day     `json:"days"`
	Tools   []bar     `json:"tools"`
	Users   []bar     `json:"users"`
	Actions []bar     `json:"actions"`
	Refused []call    `json:"refused"` // denied or failed, newest first
	More    int       `json:"more"`    // of those that are left out
}

// day is what was done in one.
type day struct {
	Day    string `json:"day"`
	OK     int    `json:"ok"`
	Failed int    `json:"failed"`
	Denied int    `json:"denied"`
	Execs  int    `json:"execs"`
}

// bar is a row of a plot.
type bar struct {
	Name   string `json:"name"`
	Count  int    `json:"count"`
	Denied int    `json:"denied"`
	Failed int    `json:"failed"`
}

func newReport(records []entry, since string, now time.Time) report {
	r := report{Made: now, Records: len(records)}
	if at, err := time.Parse(time.RFC3339Nano, since); err == nil {
		r.From = at
	} else if len(records) > 0 {
		r.From = records[len(records)-1].Time
	}
	days := map[string]*day{}
	of := func(t time.Time) *day {
		name := t.Local().Format(dayFormat)
		if days[name] == nil {
			days[name] = &day{Day: name}
		}
		return days[name]
	}
	tools, users, actions := map[string]*bar{}, map[string]*bar{}, map[string]*bar{}
	for _, c := range joined(records) {
		d, t, u := of(c.Time), count(tools, c.Tool), count(users, c.User)
		r.Calls++
		switch c.Outcome {
		case "ok", "":
			d.OK++
			continue
		case denied:
			d.Denied++
			t.Denied++
			u.Denied++
			r.Denied++
		default:
			d.Failed++
			t.Failed++
			u.Failed++
			r.Failed++
		}
		if len(r.Refused) == reportRows {
			r.More++
			continue
		}
		r.Refused = append(r.Refused, c)
	}
	for _, e := range records {
		if e.Phase == phaseAttempt && (e.Action == "exec" || e.Action == "execute_code" || e.Action == "skill_run") {
			r.Execs++
			of(e.Time).Execs++
		}
		if e.Phase != phaseAttempt && e.Action != actionCall {
			b := count(actions, e.Action)
			if e.Outcome == denied {
				b.Denied++
			}
		}
	}
	for at, last := now.Local(), r.From.Local(); len(r.Days) < reportDays && !at.Before(startOf(last)); at = at.AddDate(0, 0, -1) {
		r.Days = append(r.Days, *of(at))
	}
	slices.Reverse(r.Days)
	r.Tools, r.Users, r.Actions = most(tools), most(users), most(actions)
	return r
}

func startOf(t time.Time) time.Time {
	y, m, d := t.Date()
	return time.Date(y, m, d, 0, 0, 0, 0, t.Location())
}

func count(in map[string]*bar, name string) *bar {
	if in[name] == nil {
		in[name] = &bar{Name: name}
	}
	in[name].Count++
	return in[name]
}

// most returns the bars with the highest counts.
func most(in map[string]*bar) []bar {
	all := make([]bar, 0, len(in))
	for _, b := range in {
		all = append(all, *b)
	}
	slices.SortFunc(all, func(a, b bar) int { return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Name, b.Name)) })
	return all[:min(len(all), reportBars)]
}

// plotted is one day of the plot: heights of its parts, from the bottom.
type plotted struct {
	day
	X, OKY, OKH, FailedY, FailedH, DeniedY, DeniedH int
}

// Plot returns the bars of the days. It has a name that templates can call.
func (r report) Plot() []plotted {
	highest := 1
	for _, d := range r.Days {
		highest = max(highest, d.OK+d.Failed+d.Denied)
	}
	tall := func(n int) int {
		if n == 0 {
			return 0
		}
		return max(2, n*plotHeight/highest)
	}
	bars := make([]plotted, len(r.Days))
	for i, d := range r.Days {
		p := plotted{day: d, X: i * (plotBarWidth + 4), OKH: tall(d.OK), FailedH: tall(d.Failed), DeniedH: tall(d.Denied)}
		p.OKY = plotHeight + 8 - p.OKH
		p.FailedY = p.OKY - p.FailedH
		p.DeniedY = p.FailedY - p.DeniedH
		bars[i] = p
	}
	return bars
}

// PlotWidth is that of the whole plot.
func (r report) PlotWidth() int { return max(1, len(r.Days)) * (plotBarWidth + 4) }

func (r report) write(w io.Writer) error {
	page, err := template.New("report").Funcs(template.FuncMap{
		"time": output.Time,
		"who":  call.who,
		"args": func(raw []byte) string {
			if text := []rune(string(raw)); len(text) > shownArgs {
				return string(text[:shownArgs]) + "…"
			}
			return string(raw)
		},
		"percent": func(n int, of []bar) string {
			if len(of) == 0 || of[0].Count == 0 {
				return "0%"
			}
			return fmt.Sprintf("%d%%", 100*n/of[0].Count)
		},
		"rest": func(b bar) int { return b.Count - b.Denied - b.Failed },
	}).Parse(reportPage)
	if err != nil {
		return err
	}
	return page.Execute(w, r)
}
