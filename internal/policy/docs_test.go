package policy

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestDocuments: the rules in docs/policy.md are right, their tests pass, and its example of a call gives what it says.
func TestDocuments(t *testing.T) {
	text, err := os.ReadFile("../../docs/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(text, -1)
	if len(blocks) == 0 {
		t.Fatal("no rules")
	}
	f, err := Parse(blocks[0][1])
	if err != nil {
		t.Fatal(err)
	}
	if f.Tests() < 2 {
		t.Error("its tests are gone")
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
