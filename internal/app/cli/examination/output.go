package examination

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/skerry-sandbox/skerry/internal/app/cli/exit"
	"github.com/skerry-sandbox/skerry/internal/app/cli/output"
	"github.com/skerry-sandbox/skerry/internal/audit/signing"
	"github.com/skerry-sandbox/skerry/internal/config"
	"github.com/skerry-sandbox/skerry/internal/observe/doctor"
	"github.com/skerry-sandbox/skerry/internal/platform/buildinfo"
	"github.com/skerry-sandbox/skerry/internal/tools/argform"
)

// Options say what is examined.
type Options struct {
	Config config.Config
	Loaded error // of reading the configuration
	// Server and Key are of the server to ask, when Asked says that one was named.
	Server, Key string
	Asked       bool
	// SigningKey is that of the environment, SigningKeyErr why it cannot be used.
	SigningKey    signing.Key
	SigningKeyErr error
}

// Run runs all checks and prints what they find to w, as JSON when that is wanted. What is waited for is shown on
// progress when that is a terminal. The error has the exit code 1 when a server could not serve.
func Run(ctx context.Context, o Options, w, progress io.Writer, json bool) error {
	e := &examination{
		cfg: o.Config, loaded: o.Loaded, address: o.Server, key: o.Key, asked: o.Asked, signingKey: o.SigningKey, signingKeyErr: o.SigningKeyErr,
	}
	return e.run(ctx, newDoctorOutput(w, progress, json))
}

// run is Run with the output that is to be written to.
func (e *examination) run(ctx context.Context, out *doctorOutput) error {
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
		return exit.Code(exit.Failed)
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
	if output.OnTerminal(progress) {
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
		output.Finding(o.w, string(l.State), strings.TrimSpace(l.Check+" "+l.Name), l.Detail, l.Fix)
		if l.Fix != "" {
			o.fixes++
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
		return output.JSON(o.w, map[string]any{"version": buildinfo.Version(), "serves": serves, "checks": all})
	}
	verdict := "A server can serve here"
	if !serves {
		verdict = "A server cannot serve here as it is"
	}
	_, err := fmt.Fprintf(o.w, "\n%s: %s, %s.\n", verdict, output.Count(doctor.Count(lines, doctor.Problem), "problem"), output.Count(doctor.Count(lines, doctor.Warning), "warning"))
	if o.fixes > 0 {
		_, err = fmt.Fprintln(o.w, "What to do stands behind each ->.")
	}
	return err
}
