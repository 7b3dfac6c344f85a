package audit

import (
	"os"
	"regexp"
	"slices"
	"testing"
)

// TestActionsAreListed: a filter knows each action that this package declares.
func TestActionsAreListed(t *testing.T) {
	text, err := os.ReadFile("actions.go")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^\tAction\w+ += "([a-z_]+)"`).FindAllSubmatch(text, -1)
	if len(found) < 50 {
		t.Fatalf("only %d actions", len(found))
	}
	for _, m := range found {
		if !slices.Contains(actions, string(m[1])) {
			t.Errorf("%s is not in the list actions", m[1])
		}
	}
	if err := (Filter{Action: ActionToolCall, Outcome: "denied"}).CheckNames(); err != nil {
		t.Error(err)
	}
}
