package attack

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Key names a cell of the document: the result of an attack at a place.
type Key struct{ Attack, Place string }

// Cells are results, as the document shows them.
type Cells map[Key]string

// Row is an attack on the server, as the document shows it: its tests (onserver) are its table.
type Row struct {
	Name, Class, What, Expect string
	Refused                   bool // as expected
	Control                   bool // it succeeded where the guard is missing
}

// The tables of the document. Each lies between two marks.
const (
	insideTable  = "inside"
	outsideTable = "on the server"
)

func marks(table string) (begin, end string) {
	return "<!-- attacks " + table + ": written by go test ./internal/attack/... -update -->", "<!-- end of attacks " + table + " -->"
}

func cut(document, table string) (before, text, after string, err error) {
	begin, end := marks(table)
	before, rest, ok := strings.Cut(document, begin)
	text, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		return "", "", "", fmt.Errorf("the document lacks %q … %q", begin, end)
	}
	return before, text, after, nil
}

func replace(document, table, text string) (string, error) {
	before, _, after, err := cut(document, table)
	if err != nil {
		return "", err
	}
	begin, end := marks(table)
	return before + begin + "\n\n" + text + "\n" + end + after, nil
}

// Columns of the first table, before those of the places.
var insideColumns = []string{"attack", "class", "what it does", "expected", "held off by"}

// RenderInside returns the document with its table of the attacks from inside written anew.
func RenderInside(document string, cells Cells) (string, error) {
	header := append(append([]string{}, insideColumns...), Places()...)
	rows := make([][]string, 0, len(All()))
	for _, a := range All() {
		row := []string{a.Name, a.Class, a.What, a.expected(), strings.Join(a.Guards, "; ")}
		for _, p := range Places() {
			row = append(row, cells[Key{a.Name, p}])
		}
		rows = append(rows, row)
	}
	return replace(document, insideTable, table(header, rows))
}

// RenderOutside returns the document with its table of the attacks on the server written anew.
func RenderOutside(document string, attacks []Row) (string, error) {
	rows := make([][]string, 0, len(attacks))
	for _, a := range attacks {
		result, control := "as expected", Succeeds
		if !a.Refused {
			result = "SUCCEEDED"
		}
		if !a.Control {
			control = "FAILED"
		}
		rows = append(rows, []string{a.Name, a.Class, a.What, a.Expect, result, control})
	}
	return replace(document, outsideTable, table([]string{"attack", "class", "what it does", "expected", "result", ControlPlace}, rows))
}

func table(header []string, rows [][]string) string {
	var out strings.Builder
	line := func(fields []string) { out.WriteString("| " + strings.Join(fields, " | ") + " |\n") }
	line(header)
	out.WriteString("|" + strings.Repeat("---|", len(header)) + "\n")
	for _, r := range rows {
		line(r)
	}
	return out.String()
}

// expected says which refusals count.
func (a Attack) expected() string {
	text := strings.Join(a.Refused, " or ")
	if len(a.OwnKernel) > 0 {
		text += "; gVisor also " + strings.Join(a.OwnKernel, " or ")
	}
	if len(a.Pod) > 0 {
		text += "; a pod also " + strings.Join(slices.Sorted(maps.Keys(a.Pod)), " or ")
	}
	return text
}

// rows reads the fields of a table, without its header.
func rows(document, name string) ([][]string, error) {
	_, text, _, err := cut(document, name)
	if err != nil {
		return nil, err
	}
	var out [][]string
	for line := range strings.Lines(text) {
		row, isRow := strings.CutPrefix(strings.TrimSpace(line), "| ")
		fields := strings.Split(strings.TrimSuffix(row, " |"), " | ")
		if isRow && fields[0] != insideColumns[0] {
			out = append(out, fields)
		}
	}
	return out, nil
}

// Parse reads the results of the attacks from inside out of a document.
func Parse(document string) (Cells, error) {
	all, err := rows(document, insideTable)
	if err != nil {
		return nil, err
	}
	cells := make(Cells)
	for _, fields := range all {
		if len(fields) != len(insideColumns)+len(Places()) {
			continue
		}
		for i, p := range Places() {
			cells[Key{fields[0], p}] = strings.TrimSpace(fields[len(insideColumns)+i])
		}
	}
	return cells, nil
}

// Counted returns the names of the attacks of a document that count: each has a control that succeeded, and
// no class has more than MaxOfClass.
func Counted(document string) ([]string, error) {
	var out []string
	for _, name := range []string{insideTable, outsideTable} {
		all, err := rows(document, name)
		if err != nil {
			return nil, err
		}
		ofClass := make(map[string]int)
		for _, fields := range all {
			if len(fields) > 1 && fields[len(fields)-1] == Succeeds && ofClass[fields[1]] < MaxOfClass {
				ofClass[fields[1]]++
				out = append(out, fields[0])
			}
		}
	}
	return out, nil
}
