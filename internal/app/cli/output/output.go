package output

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/skerry-sandbox/skerry/internal/tools/argform"
)

// OnTerminal reports whether w is a terminal.
func OnTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	return term.IsTerminal(int(f.Fd()))
}

// Plain is text for w: as it is for a file or a program, without what a terminal would act on for a
// terminal.
func Plain(w io.Writer, text string) string {
	if OnTerminal(w) {
		return argform.Plain(text)
	}
	return text
}

// eyes writes hostile output as Plain has it, unless it is wanted raw.
type eyes struct {
	w   io.Writer
	raw bool
}

// Writer returns a writer to w that leaves out what a terminal would act on, unless raw.
func Writer(w io.Writer, raw bool) io.Writer { return eyes{w, raw} }

func (e eyes) Write(p []byte) (int, error) {
	if e.raw || !OnTerminal(e.w) {
		return e.w.Write(p)
	}
	if _, err := io.WriteString(e.w, Plain(e.w, string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// RawFlag adds the flag that leaves control sequences in.
func RawFlag(cmd *cobra.Command, raw *bool) {
	cmd.Flags().BoolVar(raw, "raw", false, "leave control sequences of hostile text as they are, on a terminal too")
}

// JSON writes v for a program to read.
func JSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// Table writes the named fields of items as columns.
func Table(w io.Writer, items []map[string]any, columns []string) error {
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(tw, strings.ToUpper(strings.Join(columns, "\t")))
	for _, item := range items {
		cells := make([]string, len(columns))
		for i, col := range columns {
			cells[i] = Cell(item, col)
		}
		fmt.Fprintln(tw, strings.Join(cells, "\t"))
	}
	return tw.Flush()
}

// Colours of what is shown on a terminal.
const (
	Green  = "\x1b[32m"
	Red    = "\x1b[31m"
	Yellow = "\x1b[33m"
	Dim    = "\x1b[2m"
)

// Colours reports whether w is a terminal that is to have colours (https://no-color.org).
func Colours(w io.Writer) bool {
	return OnTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// Coloured returns text in a colour when w is to have colours.
func Coloured(w io.Writer, colour, text string) string {
	if !Colours(w) {
		return text
	}
	return colour + text + "\x1b[0m"
}

// CSV writes a table for spreadsheets. No cell is taken for a formula.
func CSV(w io.Writer, header []string, rows [][]string) error {
	out := csv.NewWriter(w)
	out.UseCRLF = true
	if err := out.Write(header); err != nil {
		return err
	}
	for _, row := range rows {
		safe := make([]string, len(row))
		for i, cell := range row {
			if text := strings.TrimLeft(cell, " \u00a0\u3000"); text != "" && strings.ContainsRune("=+-@\t\r\n|%＝＋－＠", []rune(text)[0]) {
				cell = "'" + cell
			}
			safe[i] = cell
		}
		if err := out.Write(safe); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

const maxCell = 44

// Cell is a field of item as one short line. Control characters in it come from hostile text and
// are shown escaped, never sent to the terminal.
func Cell(item map[string]any, path string) string {
	var v any = item
	for part := range strings.SplitSeq(path, ".") {
		m, ok := v.(map[string]any)
		if !ok {
			return ""
		}
		v = m[part]
	}
	text := ""
	switch x := v.(type) {
	case nil:
		return ""
	case string:
		text = x
		if at, err := time.Parse(time.RFC3339Nano, x); err == nil {
			text = Time(at)
		}
	case float64:
		text = strconv.FormatFloat(x, 'f', -1, 64)
	default:
		raw, err := json.Marshal(x)
		if err != nil {
			return "?"
		}
		text = string(raw)
	}
	if quoted := strconv.Quote(text); len(quoted) != len(text)+2 {
		text = quoted[1 : len(quoted)-1]
	}
	if runes := []rune(text); len(runes) > maxCell {
		text = string(runes[:maxCell-1]) + "…"
	}
	return text
}

// Finding prints how one thing is, and what to do about it unless fix is empty.
func Finding(w io.Writer, state, what, detail, fix string) {
	fmt.Fprintf(w, "%-8s %s: %s\n", state, what, detail)
	if fix != "" {
		fmt.Fprintf(w, "         -> %s\n", fix)
	}
}

// Count says how many there are: "1 tool", "2 tools".
func Count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
