package skerry_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestDocs: what docs/go.md shows is part of an example, which runs.
func TestDocs(t *testing.T) {
	page, err := os.ReadFile("../../docs/go.md")
	if err != nil {
		t.Fatal(err)
	}
	examples, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(blocks) < 2 {
		t.Fatalf("%d blocks", len(blocks))
	}
	for _, b := range blocks {
		if !strings.Contains(strings.ReplaceAll(string(examples), "\n\t", "\n"), b[1]) {
			t.Errorf("no example has this:\n%s", b[1])
		}
	}
}
