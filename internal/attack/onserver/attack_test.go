package onserver

import (
	"encoding/json"
	"os"
	"testing"
)

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

// row is an attack in the report that the table of docs/security.md is made from.
type row struct {
	Name    string `json:"name"`
	Class   string `json:"class"`
	Does    string `json:"does"`
	Expect  string `json:"expect"`
	Refused bool   `json:"refused"`
	Control bool   `json:"control"`
}

// attacks lists all, in the order of the report.
func attacks() []attack {
	var all []attack
	for _, part := range [][]attack{races(), oddFiles(), daemons(), bridges(), archives(), requests(), bombs()} {
		all = append(all, part...)
	}
	return all
}

// TestAttacks makes every attack and every control. With SKERRY_ATTACK_REPORT it writes the rows there.
func TestAttacks(t *testing.T) {
	var rows []row
	seen := map[string]bool{}
	for _, a := range attacks() {
		if seen[a.name] || a.name == "" || a.class == "" || a.does == "" || a.expect == "" {
			t.Errorf("attack %q: twice, or not described", a.name)
		}
		seen[a.name] = true
		r := row{Name: a.name, Class: a.class, Does: a.does, Expect: a.expect}
		t.Run(a.name, func(t *testing.T) {
			r.Refused = t.Run("attack", func(t *testing.T) { a.try(t, theBed) })
			r.Control = t.Run("control", func(t *testing.T) { a.control(t, theBed) })
		})
		rows = append(rows, r)
	}
	if file := os.Getenv("SKERRY_ATTACK_REPORT"); file != "" {
		raw, err := json.MarshalIndent(rows, "", "  ")
		must(t, err)
		must(t, os.WriteFile(file, raw, 0o600))
	}
}
