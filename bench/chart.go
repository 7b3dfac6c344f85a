package main

import (
	"bytes"
	"errors"
	"fmt"
	"html"
	"math"
	"strconv"
	"strings"
)

// The chart has a pair of bars for each row in milliseconds that has a counterpart. Its scale is
// logarithmic, and its colours are readable on light and on dark.

const (
	labelWidth = 250
	plotWidth  = 470
	rowHeight  = 34
	headHeight = 58
)

const chartStyle = `<style>
.text { fill: #1f2328; font: 12px system-ui, sans-serif } .small { font-size: 10px } .head { font-size: 14px; font-weight: 600 }
.grid { stroke: #d0d7de } .ours { fill: #0969da } .other { fill: #9a6700 }
@media (prefers-color-scheme: dark) { .text { fill: #e6edf3 } .grid { stroke: #3d444d } .ours { fill: #4493f8 } .other { fill: #d29922 } }
</style>`

// chart draws the report as SVG.
func chart(r *report) []byte {
	var rows []result
	low, high := math.Inf(1), 0.0
	for _, x := range r.Results {
		if x.Unit != "ms" || x.Against == nil || x.RatioOf != faster && x.RatioOf != cost || x.Ours.P50 <= 0 || x.Against.P50 <= 0 {
			continue
		}
		rows = append(rows, x)
		low, high = min(low, x.Ours.P50, x.Against.P50), max(high, x.Ours.P50, x.Against.P50)
	}
	var out bytes.Buffer
	height := headHeight + len(rows)*rowHeight + 14
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-label="Skerry beside its alternatives">`+"\n%s\n", labelWidth+plotWidth+110, height, chartStyle)
	fmt.Fprintf(&out, `<text class="text head" x="8" y="20">Milliseconds, median, log scale; shorter is better</text>`+"\n")
	fmt.Fprintf(&out, `<rect class="ours" x="%d" y="10" width="10" height="10"/><text class="text" x="%d" y="20">Skerry</text>`, labelWidth+190, labelWidth+205)
	fmt.Fprintf(&out, `<rect class="other" x="%d" y="10" width="10" height="10"/><text class="text" x="%d" y="20">beside it</text>`+"\n", labelWidth+265, labelWidth+280)
	if len(rows) == 0 {
		out.WriteString("</svg>\n")
		return out.Bytes()
	}
	first, last := math.Floor(math.Log10(low)), math.Ceil(math.Log10(high))
	if last <= first {
		last = first + 1
	}
	x := func(v float64) float64 { return labelWidth + plotWidth*(math.Log10(v)-first)/(last-first) }
	for p := first; p <= last; p++ {
		at := x(math.Pow(10, p))
		fmt.Fprintf(&out, `<line class="grid" x1="%.1f" x2="%.1f" y1="%d" y2="%d"/><text class="text small" text-anchor="middle" x="%.1f" y="%d">%g</text>`+"\n",
			at, at, headHeight-6, height-8, at, headHeight-12, math.Pow(10, p))
	}
	for i, row := range rows {
		y := headHeight + i*rowHeight
		fmt.Fprintf(&out, `<text class="text" x="8" y="%d">%s</text><text class="text small" x="8" y="%d">beside %s</text>`+"\n", y+12, html.EscapeString(row.Ours.Name), y+25, html.EscapeString(row.Against.Name))
		for j, s := range []struct {
			class string
			v     float64
		}{{"ours", row.Ours.P50}, {"other", row.Against.P50}} {
			top := y + 2 + 13*j
			fmt.Fprintf(&out, `<rect class="%s" x="%d" y="%d" width="%.1f" height="11"/><text class="text small" x="%.1f" y="%d">%s</text>`+"\n",
				s.class, labelWidth, top, max(1, x(s.v)-labelWidth), x(s.v)+4, top+9, figure(s.v))
		}
	}
	out.WriteString("</svg>\n")
	return out.Bytes()
}

// The table of the page stands between these two lines.
const (
	tableBegin = "<!-- written by make bench -->\n"
	tableEnd   = "<!-- end of what make bench writes -->\n"
)

// withTable returns the page with the table of the report in it.
func withTable(page []byte, r *report) ([]byte, error) {
	head, rest, ok := strings.Cut(string(page), tableBegin)
	_, foot, found := strings.Cut(rest, tableEnd)
	if !ok || !found {
		return nil, errors.New("the page has no place for the table")
	}
	return []byte(head + tableBegin + table(r) + tableEnd + foot), nil
}

// table is the report in Markdown.
func table(r *report) string {
	var b strings.Builder
	m := r.Machine
	fmt.Fprintf(&b, "%s, version %s: %d CPUs, Linux %s, Docker %s, load %s at the start, %d s in all.\n", r.MadeAt, r.Version, m.CPUs, m.Kernel, m.Docker, m.Load, r.Seconds)
	if load, err := strconv.ParseFloat(m.Load, 64); err == nil && load > float64(m.CPUs) {
		fmt.Fprintf(&b, "**The machine was busy with other work, %.0f programs for each core**: only what differs by a lot is told by these figures, and every p99 is that of the machine.\n", load/float64(m.CPUs))
	}
	part := ""
	for _, x := range r.Results {
		if x.Part != part {
			part = x.Part
			fmt.Fprintf(&b, "\n| %s | n | p50 | p99 | beside | n | p50 | p99 | ratio | bar | |\n|---|---|---|---|---|---|---|---|---|---|---|\n", part)
		}
		against := []string{"", "", "", ""}
		if a := x.Against; a != nil {
			against = []string{a.Name, fmt.Sprint(a.N), figure(a.P50), figure(a.P99)}
		}
		met := ""
		if x.Met != nil {
			met = map[bool]string{true: "met", false: "**missed**"}[*x.Met]
		}
		name := x.Ours.Name
		if x.Unit != "ms" {
			name += ", " + x.Unit
		}
		fmt.Fprintf(&b, "| %s | %d | %s | %s | %s | %s | %s | %s |\n", name, x.Ours.N, figure(x.Ours.P50), figure(x.Ours.P99), strings.Join(against, " | "), x.RatioOf.text(x.Ratio), x.Bar, strings.Trim(met+", "+x.Note, ", "))
	}
	if len(r.Left) > 0 {
		b.WriteString("\nNot measured in this run:\n\n")
		for _, text := range r.Left {
			fmt.Fprintf(&b, "* %s\n", text)
		}
	}
	return b.String()
}
