package attack

import (
	"regexp"
	"strings"
	"testing"
)

// wantCounted is how many attacks must have a control that succeeds.
const wantCounted = 60

// TestTable: the rows are sound.
func TestTable(t *testing.T) {
	names := make(map[string]bool)
	form := regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	for _, a := range All() {
		if !form.MatchString(a.Name) || names[a.Name] {
			t.Errorf("attack %q: a name is of a-z 0-9 - and used once", a.Name)
		}
		names[a.Name] = true
		if a.Class == "" || a.What == "" || len(a.Refused) == 0 || len(a.Guards) == 0 {
			t.Errorf("attack %s lacks a class, a text, a refusal or a guard", a.Name)
		}
		for refusal, guard := range a.Pod {
			if guard == "" || strings.Contains(refusal, shownBy) || strings.ContainsAny(refusal+guard, "|\n") {
				t.Errorf("attack %s: in a pod %q is held off by %q, which breaks the table", a.Name, refusal, guard)
			}
		}
		if strings.HasSuffix(a.What, ".") {
			t.Errorf("attack %s: its text ends with a full stop", a.Name)
		}
		for _, text := range append([]string{a.Class, a.What}, append(a.Guards, append(a.Refused, a.OwnKernel...)...)...) {
			if strings.ContainsAny(text, "|\n") {
				t.Errorf("attack %s: %q breaks the table", a.Name, text)
			}
		}
	}
}

// TestDocument: docs/security.md shows every attack as the table has it, with a result everywhere, and
// enough of them count. That each result is true, the tests that make the attacks compare.
func TestDocument(t *testing.T) {
	if *update {
		t.Log("written at the end")
		return
	}
	must(t, seen.load())
	rendered, err := RenderInside(seen.document, seen.says)
	if err != nil {
		t.Fatal(err)
	}
	if rendered != seen.document {
		t.Error("docs/security.md does not show the attacks of the table: go test ./internal/attack -update")
	}
	for _, a := range All() {
		for _, p := range Places() {
			if seen.says[Key{a.Name, p}] == "" {
				t.Errorf("docs/security.md has no result of %s on %s", a.Name, p)
			}
		}
	}
	counted, err := Counted(seen.document)
	if err != nil {
		t.Fatal(err)
	}
	if len(counted) < wantCounted {
		t.Errorf("%d attacks count, want %d", len(counted), wantCounted)
	}
	t.Logf("%d attacks count", len(counted))
}
