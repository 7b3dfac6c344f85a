package onserver

import (
	"flag"
	"os"
	"testing"

	table "github.com/skerry-sandbox/skerry/internal/attack"
)

// update writes what was seen into docs/security.md instead of comparing it.
var update = flag.Bool("update", false, "write the results into docs/security.md")

const documentPath = "../../../docs/security.md"

// attack is one named attempt.
type attack struct {
	name   string
	class  string
	does   string // what it tries
	expect string // what becomes of it
	// try makes the attempt against the product, and fails the test when it succeeds.
	try func(t *testing.T, b *bed)
	// control makes it against the same without the guard, and fails the test when it does not succeed.
	control func(t *testing.T, b *bed)
}

// attacks lists all, in the order of the report.
func attacks() []attack {
	var all []attack
	for _, part := range [][]attack{races(), oddFiles(), daemons(), bridges(), archives(), requests(), credentials(), bombs()} {
		all = append(all, part...)
	}
	return all
}

// TestAttacks makes every attack and every control, and compares what it saw with docs/security.md.
func TestAttacks(t *testing.T) {
	var rows []table.Row
	seen := map[string]bool{}
	made := 0
	for _, a := range attacks() {
		if seen[a.name] || a.name == "" || a.class == "" || a.does == "" || a.expect == "" {
			t.Errorf("attack %q: twice, or not described", a.name)
		}
		seen[a.name] = true
		r := table.Row{Name: a.name, Class: a.class, What: a.does, Expect: a.expect}
		t.Run(a.name, func(t *testing.T) {
			r.Refused = t.Run("attack", func(t *testing.T) { made++; a.try(t, theBed) })
			r.Control = t.Run("control", func(t *testing.T) { made++; a.control(t, theBed) })
		})
		rows = append(rows, r)
	}
	if made == 2*len(rows) { // not when -run picked some
		compare(t, rows)
	}
}

// compare holds the document against the rows, or writes them into it.
func compare(t *testing.T, rows []table.Row) {
	t.Helper()
	data, err := os.ReadFile(documentPath)
	must(t, err)
	text, err := table.RenderOutside(string(data), rows)
	must(t, err)
	switch {
	case text == string(data):
	case *update:
		must(t, os.WriteFile(documentPath, []byte(text), 0o644)) //nolint:gosec // a document
	default:
		t.Error("docs/security.md does not show these attacks and results: go test ./internal/attack/onserver -update")
	}
}
