package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skerry-sandbox/skerry/internal/app"
	"github.com/skerry-sandbox/skerry/internal/config"
	"github.com/skerry-sandbox/skerry/internal/observe/doctor"
	"github.com/skerry-sandbox/skerry/internal/platform/buildinfo"
	"github.com/skerry-sandbox/skerry/internal/tools/argform"
)

func newDoctor(api *apiClient) *cobra.Command {
	var file string
	flags := config.Config{}
	cmd := &cobra.Command{
		Use: "doctor", Short: "Find out why Skerry does not work here, or whether it would",
		Long: `Looks at this machine and at everything that a server with the same configuration would use, and says for
each thing how it is and what to do.

  ok       nothing to do
  warning  a server works, but something that you configured, or that is usual, does not
  problem  a server would not start, or could not run anything: mend this first

Run it as the server runs: as root, with the same --config, flags and SKERRY_… variables. No server has to run,
and one that does is not disturbed: doctor works in a folder of its own, which it removes. It starts small
sandboxes and your MCP servers, and ends them. It takes a few seconds; something that hangs is reported after at
most 90. No secret is printed, so the output can go into a bug report.

With --server (or SKERRY_SERVER) it also asks that server whether it is ready.

Exit code: 0 when a server could serve, 1 when there is a problem.`,
		Example: "  sudo skerry doctor\n  sudo skerry doctor --config /etc/skerry.yaml --server http://127.0.0.1:8080\n" +
			"  sudo skerry doctor --json | jq -r '.checks[] | select(.state != \"ok\") | .fix'",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.Load(file, os.LookupEnv)
			for name, field := range flagFields(&cfg) {
				if f := cmd.Flags().Lookup(name); f.Changed {
					*field = f.Value.String()
				}
			}
			key, keyErr := app.TakeSigningKey() // the MCP servers that are started below must not have it
			named := cmd.Root().PersistentFlags().Changed("server") || os.Getenv("SKERRY_SERVER") != ""
			out := newDoctorOutput(cmd.OutOrStdout(), cmd.ErrOrStderr(), api.json)
			return examine(cmd.Context(), &examination{cfg: cfg, loaded: err, api: api, asked: named, signingKey: key, signingKeyErr: keyErr}, out)
		},
	}
	configFlags(cmd, &file, &flags)
	return cmd
}

// examine runs all checks and prints what they find.
func examine(ctx context.Context, e *examination, out *doctorOutput) error {
	e.hideSecrets(out)
	checks := []doctor.Check{e.configCheck()}
	if e.usable() {
		done, err := e.open(ctx)
		if err != nil {
			return err
		}
		defer done()
		checks = e.checks()
	}
	out.begin(e.cfg)
	show := func(lines []doctor.Line) {
		if ctx.Err() == nil { // what is found while all is given up is not true
			out.lines(lines)
		}
	}
	lines := doctor.Run(ctx, checks, doctor.Output{Lines: show, Waiting: out.waiting})
	if ctx.Err() != nil {
		out.erase()
		return ctx.Err()
	}
	if err := out.end(lines); err != nil {
		return err
	}
	if !doctor.Serves(lines) {
		return exitCode(exitFailed)
	}
	return nil
}

// doctorOutput prints the lines as they come, or all of them as JSON in the end.
type doctorOutput struct {
	w      io.Writer
	json   bool
	hide   func(string) string // takes secrets out of a text
	tty    io.Writer           // where progress is shown, nil: nowhere
	showed bool                // a line of progress stands there
	fixes  int
}

func newDoctorOutput(w, progress io.Writer, json bool) *doctorOutput {
	o := &doctorOutput{w: w, json: json, hide: func(s string) string { return s }}
	if onTerminal(progress) {
		o.tty = progress
	}
	return o
}

// Bounds of what is printed of one line: others may have part in its text.
const (
	maxDetail = 600
	maxFix    = 600
)

func (o *doctorOutput) clean(l doctor.Line) doctor.Line {
	l.Name = argform.Line(o.hide(l.Name), 80)
	l.Detail = argform.Line(o.hide(l.Detail), maxDetail)
	l.Fix = argform.Line(o.hide(l.Fix), maxFix)
	return l
}

func (o *doctorOutput) begin(cfg config.Config) {
	if !o.json {
		fmt.Fprintf(o.w, "skerry %s, data folder %s\n\n", buildinfo.Version(), cfg.Data)
	}
}

func (o *doctorOutput) lines(lines []doctor.Line) {
	o.erase()
	if o.json {
		return
	}
	for _, l := range lines {
		l = o.clean(l)
		fmt.Fprintf(o.w, "%-8s %s: %s\n", l.State, strings.TrimSpace(l.Check+" "+l.Name), l.Detail)
		if l.Fix != "" {
			o.fixes++
			fmt.Fprintf(o.w, "         -> %s\n", l.Fix)
		}
	}
}

// waiting shows on a terminal what is waited for.
func (o *doctorOutput) waiting(check string, since time.Duration) {
	if o.tty != nil {
		o.showed = true
		fmt.Fprintf(o.tty, "\r\x1b[K... %s (%d s)", check, int(since.Seconds()))
	}
}

func (o *doctorOutput) erase() {
	if o.showed {
		o.showed = false
		fmt.Fprint(o.tty, "\r\x1b[K")
	}
}

func (o *doctorOutput) end(lines []doctor.Line) error {
	o.erase()
	serves := doctor.Serves(lines)
	if o.json {
		all := make([]doctor.Line, len(lines))
		for i, l := range lines {
			all[i] = o.clean(l)
		}
		return printJSON(o.w, map[string]any{"version": buildinfo.Version(), "serves": serves, "checks": all})
	}
	verdict := "A server can serve here"
	if !serves {
		verdict = "A server cannot serve here as it is"
	}
	_, err := fmt.Fprintf(o.w, "\n%s: %s, %s.\n", verdict, count(doctor.Count(lines, doctor.Problem), "problem"), count(doctor.Count(lines, doctor.Warning), "warning"))
	if o.fixes > 0 {
		_, err = fmt.Fprintln(o.w, "What to do stands behind each ->.")
	}
	return err
}
