package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
)

// sample is what was measured of one thing.
type sample struct {
	Name string  `json:"name"`
	N    int     `json:"n"`
	P50  float64 `json:"p50"`
	P99  float64 `json:"p99"`
}

// sampled summarises values. A percentile n is the last value within the first n hundredths.
func sampled(name string, values []float64) sample {
	return sample{Name: name, N: len(values), P50: at(values, 50), P99: at(values, 99)}
}

func at(values []float64, percent int) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(len(sorted)-1, len(sorted)*percent/100)]
}

// result is one row of the report: something of ours, beside something else where there is one.
type result struct {
	Part    string  `json:"part"`
	Unit    string  `json:"unit"`
	Ours    sample  `json:"ours"`
	Against *sample `json:"against,omitempty"`
	// Ratio is what RatioOf says, and what the bar is for.
	Ratio   float64 `json:"ratio"`
	RatioOf measure `json:"ratio_of"`
	Bar     string  `json:"bar,omitempty"`
	Met     *bool   `json:"met,omitempty"` // null without a bar
	Note    string  `json:"note,omitempty"`
}

// measure says what is made of the two samples of a row.
type measure string

const (
	faster  measure = "times faster, p50"        // against / ours
	cost    measure = "times the other, p50"     // ours / against
	tail    measure = "times the other, p99"     // ours / against
	added   measure = "more than the other, p50" // ours - against
	addedTo measure = "more than the other, p99"
	fewer   measure = "% fewer"
	slowest measure = "p99"
	spread  measure = "p99 / p50"
	middle  measure = "p50"
)

func (m measure) of(ours sample, against *sample) float64 {
	switch {
	case m == slowest:
		return ours.P99
	case m == spread:
		return ours.P99 / ours.P50
	case m == middle || against == nil:
		return ours.P50
	case m == faster:
		return against.P50 / ours.P50
	case m == cost:
		return ours.P50 / against.P50
	case m == tail:
		return ours.P99 / against.P99
	case m == added:
		return ours.P50 - against.P50
	case m == addedTo:
		return ours.P99 - against.P99
	case m == fewer:
		return 100 * (against.P50 - ours.P50) / against.P50
	}
	return 0
}

// text shows a value of the measure.
func (m measure) text(v float64) string {
	switch m {
	case faster:
		return fmt.Sprintf("%.1f× faster", v)
	case cost:
		return fmt.Sprintf("%.2f× as long", v)
	case tail:
		return fmt.Sprintf("p99 %.2f×", v)
	case added:
		return fmt.Sprintf("%+.2f p50", v)
	case addedTo:
		return fmt.Sprintf("%+.2f p99", v)
	case fewer:
		if v < 0 {
			return fmt.Sprintf("%.0f %% more", -v)
		}
		return fmt.Sprintf("%.1f %% fewer", v)
	case slowest:
		return fmt.Sprintf("p99 %.2f", v)
	case spread:
		return fmt.Sprintf("p99 %.1f× p50", v)
	}
	return fmt.Sprintf("p50 %.2f", v)
}

// bar is a bound of a row's ratio. The zero bar is none.
type bar struct {
	atLeast, atMost float64
}

func (b bar) String() string {
	switch {
	case b.atLeast != 0:
		return fmt.Sprintf(">= %g", b.atLeast)
	case b.atMost != 0:
		return fmt.Sprintf("<= %g", b.atMost)
	}
	return ""
}

func (b bar) met(v float64) *bool {
	ok := (b.atLeast == 0 || v >= b.atLeast) && (b.atMost == 0 || v <= b.atMost)
	if b == (bar{}) {
		return nil
	}
	return &ok
}

// report is what a run found out.
type report struct {
	MadeAt  string   `json:"made_at"`
	Version string   `json:"version"`
	Machine machine  `json:"machine"`
	Seconds int      `json:"seconds"`
	Results []result `json:"results"`
	Left    []string `json:"left_out,omitempty"` // what was not measured, and why
}

type machine struct {
	CPUs   int    `json:"cpus"`
	Kernel string `json:"kernel"`
	Docker string `json:"docker"`
	Go     string `json:"go"`
	// Load is the load average of a minute at the start: another's work that the figures have in them.
	Load string `json:"load"`
}

// row adds a result, and prints it.
func (b *bench) row(unit string, ours sample, against *sample, m measure, limit bar, note string) {
	r := result{Part: b.part, Unit: unit, Ours: ours, Against: against, RatioOf: m, Bar: limit.String(), Note: note}
	r.Ratio = m.of(ours, against)
	r.Met = limit.met(r.Ratio)
	b.report.Results = append(b.report.Results, r)
	printRow(os.Stdout, r)
}

// leave says that something is not measured, and why.
func (b *bench) leave(what, why string) {
	text := what + ": " + why
	b.report.Left = append(b.report.Left, text)
	fmt.Printf("%-44s left out: %s\n", what, why)
}

func printHead(w io.Writer, part, about string) {
	fmt.Fprintf(w, "\n%s: %s\n%-44s %5s %9s %9s   %-34s %5s %9s %9s   %-16s %s\n", part, about, "ours", "n", "p50", "p99", "beside", "n", "p50", "p99", "ratio", "bar")
}

func printRow(w io.Writer, r result) {
	fmt.Fprintf(w, "%-44s %5d %9s %9s   ", r.Ours.Name, r.Ours.N, figure(r.Ours.P50), figure(r.Ours.P99))
	if a := r.Against; a != nil {
		fmt.Fprintf(w, "%-34s %5d %9s %9s   ", a.Name, a.N, figure(a.P50), figure(a.P99))
	} else {
		fmt.Fprintf(w, "%-34s %5s %9s %9s   ", "", "", "", "")
	}
	fmt.Fprintf(w, "%-16s", r.RatioOf.text(r.Ratio))
	if r.Met != nil {
		fmt.Fprintf(w, " %-8s %s", r.Bar, map[bool]string{true: "met", false: "MISSED"}[*r.Met])
	}
	if r.Note != "" {
		fmt.Fprintf(w, "  (%s)", r.Note)
	}
	fmt.Fprintln(w)
}

// figure shows three digits or more of a number.
func figure(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// write puts the report into files: the JSON as it is, the chart, and the table where the page about
// performance shows it.
func (r *report) write(jsonFile, svgFile, page string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if jsonFile != "" {
		if err := os.WriteFile(jsonFile, append(text, '\n'), 0o644); err != nil { //nolint:gosec // it is published
			return err
		}
	}
	if svgFile != "" {
		if err := os.WriteFile(svgFile, chart(r), 0o644); err != nil { //nolint:gosec // it is published
			return err
		}
	}
	if page == "" {
		return nil
	}
	old, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	out, err := withTable(old, r)
	if err != nil {
		return err
	}
	return os.WriteFile(page, out, 0o644) //nolint:gosec // it is published
}

// read returns the report of an earlier run.
func read(jsonFile string) (*report, error) {
	text, err := os.ReadFile(jsonFile)
	if err != nil {
		return nil, err
	}
	var r report
	return &r, json.Unmarshal(text, &r)
}
