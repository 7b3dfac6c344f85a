package archtest

import (
	"fmt"
	"io/fs"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/e2e/docblock"
)

// notOurs are pages whose blocks are marked elsewhere, and why.
var notOurs = map[string]string{"docs/performance.md": "the benchmark writes it; its one block is the commands that do"}

// checkBlocks: over each block of the documents stands the test that uses it, which is there and does, or why there is none.
func checkBlocks(root fs.FS) []string {
	blocks, err := docblock.Read(root)
	if err != nil {
		return []string{err.Error()}
	}
	var bad []string
	for _, b := range blocks {
		dir, test, inGo := strings.Cut(b.Test, " ")
		switch {
		case notOurs[b.Page] != "":
		case b.Test == "" && b.Reason == "":
			bad = append(bad, fmt.Sprintf("%s: no test uses this block: put <!-- tested by PACKAGE TEST --> over it, or <!-- not run: WHY -->", b))
		case inGo && !strings.Contains(testBody(root, dir, test), "docblock.Marked("):
			bad = append(bad, fmt.Sprintf("%s: %s has no func %s that asks docblock.Marked for it", b, dir, test))
		case b.Test != "" && !inGo:
			text, err := fs.ReadFile(root, dir)
			if err != nil || !strings.Contains(string(text), `"`+b.Page) && !strings.Contains(string(text), "../"+b.Page) {
				bad = append(bad, fmt.Sprintf("%s: %s is not there, or does not name %s", b, dir, b.Page))
			}
		}
	}
	return bad
}

// testBody returns the text of a test of a package, or nothing.
func testBody(root fs.FS, dir, test string) string {
	files, err := fs.Glob(root, dir+"/*_test.go")
	if err != nil {
		return ""
	}
	for _, name := range files {
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return ""
		}
		if _, body, found := strings.Cut(string(text), "\nfunc "+test+"("); found {
			body, _, _ = strings.Cut(body, "\n}\n")
			return body
		}
	}
	return ""
}
