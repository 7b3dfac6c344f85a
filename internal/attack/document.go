package attack

import (
	"fmt"
	"strings"
)

// Key names a cell of the document: the result of an attack at a place.
type Key struct{ Attack, Place string }

// Cells are results, as the document shows them.
type Cells map[Key]string

func marks(s Scope) (begin, end string) {
	name := "inside"
	if s == Outside {
		name = "outside"
	}
	return "<!-- attacks " + name + ": written by go test ./internal/attack -update -->", "<!-- end of attacks " + name + " -->"
}

// Render gives the document with its tables written anew from the attacks and their results.
func Render(document string, cells Cells) (string, error) {
	for _, s := range []Scope{Inside, Outside} {
		before, _, after, err := cut(document, s)
		if err != nil {
			return "", err
		}
		begin, end := marks(s)
		document = before + begin + "\n\n" + renderTable(s, cells) + "\n" + end + after
	}
	return document, nil
}

func cut(document string, s Scope) (before, table, after string, err error) {
	begin, end := marks(s)
	before, rest, ok := strings.Cut(document, begin)
	table, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		return "", "", "", fmt.Errorf("the document lacks %q … %q", begin, end)
	}
	return before, table, after, nil
}

// Columns before and after those of the places.
var (
	firstColumns = []string{"attack", "class", "what it does", "expected"}
	guardsColumn = "held off by"
)

func renderTable(s Scope, cells Cells) string {
	attacks := Of(s)
	if len(attacks) == 0 {
		return ""
	}
	header := append(append([]string{}, firstColumns...), guardsColumn)
	header = append(header, s.Places()...)
	var out strings.Builder
	line := func(fields []string) { out.WriteString("| " + strings.Join(fields, " | ") + " |\n") }
	line(header)
	out.WriteString("|" + strings.Repeat("---|", len(header)) + "\n")
	for _, a := range attacks {
		fields := []string{a.Name, a.Class, a.What, a.expected(), strings.Join(a.Guards, "; ")}
		for _, p := range s.Places() {
			fields = append(fields, cells[Key{a.Name, p}])
		}
		line(fields)
	}
	return out.String()
}

// expected says which refusals count.
func (a Attack) expected() string {
	text := strings.Join(a.Refused, " or ")
	if len(a.OwnKernel) > 0 {
		text += "; gVisor also " + strings.Join(a.OwnKernel, " or ")
	}
	return text
}

// Parse reads the results out of a document.
func Parse(document string) (Cells, error) {
	cells := make(Cells)
	for _, s := range []Scope{Inside, Outside} {
		_, table, _, err := cut(document, s)
		if err != nil {
			return nil, err
		}
		places := s.Places()
		skip := len(firstColumns) + 1
		for line := range strings.Lines(table) {
			row, isRow := strings.CutPrefix(strings.TrimSpace(line), "| ")
			fields := strings.Split(strings.TrimSuffix(row, "|"), " | ")
			if !isRow || len(fields) != skip+len(places) || fields[0] == firstColumns[0] {
				continue
			}
			for i, p := range places {
				cells[Key{fields[0], p}] = strings.TrimSpace(fields[skip+i])
			}
		}
	}
	return cells, nil
}

// Counted gives the names of the attacks that count: each has a control that succeeded, and no class
// has more than MaxOfClass.
func Counted(cells Cells) []string {
	var out []string
	ofClass := make(map[string]int)
	for _, a := range All() {
		if cells[Key{a.Name, ControlPlace}] == Succeeds && ofClass[a.Class] < MaxOfClass {
			ofClass[a.Class]++
			out = append(out, a.Name)
		}
	}
	return out
}
