package policy

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/e2e/docblock"
)

// TestDocuments: the rules in docs/policy.md are right, their tests pass, and its example of a call does what it says.
func TestDocuments(t *testing.T) {
	var f *Rules
	for _, b := range docblock.Marked(t) {
		if b.Lang == "json" { // what a record says
			strict := json.NewDecoder(strings.NewReader(b.Text))
			strict.DisallowUnknownFields()
			var why Why
			if err := strict.Decode(&why); err != nil || why.Effect != Deny || len(why.Rules) != 1 {
				t.Errorf("%s: %+v, %v", b, why, err)
			}
			continue
		}
		rules, err := Parse([]byte(b.Text))
		if err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		if strings.Contains(b.Text, "id: payments") { // those that the examples of calls are about
			f = rules
		}
	}
	if f == nil || f.Tests() < 2 {
		t.Fatal("the rules, or their tests, are gone")
	}
	text, err := os.ReadFile("../../docs/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := regexp.MustCompile(`--call '(.*?)' --expect (\w+)`).FindAllStringSubmatch(string(text), -1)
	for _, x := range examples {
		if d := decide(t, f, x[1]); string(d.Effect()) != x[2] {
			t.Errorf("%s gives %s", x[0], d.Effect())
		}
	}
	if len(examples) == 0 {
		t.Error("no example of a call")
	}
	for _, n := range names {
		if !strings.Contains(string(text), "`"+n.name+"`") {
			t.Errorf("%s is not described", n.name)
		}
	}
}
