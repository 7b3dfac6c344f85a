package drivertest

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// The words of the table in docs/drivers.md.
const (
	yes = "yes"
	no  = "no"
)

// outcome notes what came of a part: whether the driver and runtime do what it asserts, or declare that they do not.
// A failed check is noted too: the test has failed already.
func (s *suite) outcome(part string, t *testing.T) {
	if s.outcomes == nil {
		s.outcomes = make(map[string]string)
	}
	s.outcomes[part] = yes
	if t.Skipped() {
		s.outcomes[part] = no
	}
}

// declared are the rows of the table that are the driver's word, which other parts of the suite hold it to.
func (s *suite) declared() map[string]string {
	answer := func(is bool) string {
		if is {
			return yes
		}
		return no
	}
	return map[string]string{
		"Network":        s.caps.Network,
		"UserNamespaces": answer(slices.Contains(s.caps.UserNamespaces, s.h.Runtime)),
		"OOMEndsSandbox": answer(s.oomEndsSandbox()),
	}
}

// checkTable compares the column of this driver and runtime with what was found out, so that the table cannot say
// what is not so.
func (s *suite) checkTable(t *testing.T) {
	t.Helper()
	column := s.caps.Name
	if s.caps.Isolated {
		column += " " + s.h.Runtime
	}
	table, err := readTable()
	if err != nil {
		t.Fatal(err)
	}
	found := s.declared()
	maps.Copy(found, s.outcomes)
	if s.h.Image != "" && s.caps.HostRootfs {
		delete(found, "HostPrograms") // this run is about an image
	}
	for row, want := range found {
		if said, ok := table[row][column]; !ok || said != want {
			t.Errorf("docs/drivers.md says %q of %s and %s, and it is %q", said, row, column, want)
		}
	}
}

// readTable returns the cells of the table by row and column. A row is named by the word in its first backquotes.
func readTable() (map[string]map[string]string, error) {
	_, here, _, ok := runtime.Caller(0)
	file := filepath.Join(filepath.Dir(here), "../../../docs/drivers.md")
	if !ok || !filepath.IsAbs(here) { // built with -trimpath: tests run in their own folders
		file = "../../../docs/drivers.md"
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var columns []string
	table := make(map[string]map[string]string)
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case len(cells) < 3 || strings.HasPrefix(cells[0], "---"):
		case columns == nil:
			columns = cells
		case len(cells) == len(columns):
			_, rest, _ := strings.Cut(cells[0], "`")
			name, _, ok := strings.Cut(rest, "`")
			if !ok || table[name] != nil {
				return nil, fmt.Errorf("%s: row %q has no name, or another's", file, cells[0])
			}
			table[name] = make(map[string]string)
			for i, cell := range cells[1:] {
				table[name][columns[i+1]] = cell
			}
		}
	}
	return table, nil
}
