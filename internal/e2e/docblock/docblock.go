// Package docblock reads the fenced blocks of the documents. Over each stands, as a comment that no reader sees, which
// test uses it, or why none does:
//
//	<!-- tested by internal/e2e TestReadme -->
//	<!-- tested by sdk/python/tests/test_docs.py -->
//	<!-- not run: the file of another program -->
//
// internal/archtest fails when there is neither.
package docblock

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Block is one fenced block.
type Block struct {
	Page   string // docs/contexts.md
	Line   int    // of the fence
	Lang   string
	Text   string
	Test   string // what uses it: a package and a test, or a file
	Reason string // why nothing does
	Prints string // the block right after a tested one, without a language: what it prints
}

func (b Block) String() string { return fmt.Sprintf("%s:%d", b.Page, b.Line) }

// Commands returns the commands of a console session, without what they print; of all else, all of it.
func (b Block) Commands() string {
	if b.Lang != "console" {
		return b.Text
	}
	var out strings.Builder
	for line := range strings.Lines(b.Text) {
		if command, ok := strings.CutPrefix(line, "$ "); ok {
			out.WriteString(command)
		}
	}
	return out.String()
}

// Shown returns the lines that running it prints, by the document.
func (b Block) Shown() []string {
	text := b.Prints
	if b.Lang == "console" {
		text = b.Text
	}
	var out []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && (b.Lang != "console" || !strings.HasPrefix(line, "$ ")) {
			out = append(out, line)
		}
	}
	return out
}

// Missing returns the lines of Shown that are not in what was printed. A line may leave things out, at each "…".
func (b Block) Missing(printed string) []string {
	return slices.DeleteFunc(b.Shown(), func(line string) bool {
		return !slices.ContainsFunc(strings.Split(line, "…"), func(part string) bool { return !strings.Contains(printed, part) })
	})
}

// pages are the documents that are read, with all below them.
var pages = []string{"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "docs", "packs", "sdk", "deploy"}

// Read returns the blocks of all documents, but for pages that a program makes whole.
func Read(root fs.FS) ([]Block, error) {
	var out []Block
	for _, top := range pages {
		err := fs.WalkDir(root, top, func(p string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && d.Name() == "node_modules":
				return fs.SkipDir
			case d.IsDir() || !strings.HasSuffix(p, ".md"):
				return nil
			}
			text, err := fs.ReadFile(root, p)
			if err == nil && !made.Match(text) {
				out = append(out, parse(p, string(text))...)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

var (
	made  = regexp.MustCompile(`\A# .*\n\n<!-- made by `)
	fence = regexp.MustCompile("^ *```([a-z]*)$")
	mark  = regexp.MustCompile(`^ *<!-- (tested by|not run:) (.+) -->$`)
)

func parse(page, text string) []Block {
	var out []Block
	var open *Block
	var said []string // the mark of the line before
	behind := false   // nothing stands between here and the block before
	for i, line := range strings.Split(text, "\n") {
		f := fence.FindStringSubmatch(line)
		switch {
		case open != nil && f == nil:
			open.Text += line + "\n"
		case open != nil:
			if last := len(out) - 1; behind && open.Lang == "" && open.Test+open.Reason == "" && out[last].Test != "" {
				out[last].Prints = open.Text
			} else {
				out = append(out, *open)
			}
			open, behind = nil, true
		case f != nil:
			open = &Block{Page: page, Line: i + 1, Lang: f[1]}
			if said != nil && said[1] == "tested by" {
				open.Test = said[2]
			} else if said != nil {
				open.Reason = said[2]
			}
		case strings.TrimSpace(line) != "":
			behind = false
		}
		said = nil
		if open == nil {
			said = mark.FindStringSubmatch(line)
		}
	}
	return out
}

// Marked returns the blocks of all documents over which stands the test that calls it; at least one.
func Marked(t *testing.T) []Block {
	t.Helper()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	root := here
	for {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			break
		}
		if root == filepath.Dir(root) {
			t.Fatalf("%s is in no module", here)
		}
		root = filepath.Dir(root)
	}
	dir, err := filepath.Rel(root, here)
	if err != nil {
		t.Fatal(err)
	}
	all, err := Read(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	name, _, _ := strings.Cut(t.Name(), "/")
	mine := slices.DeleteFunc(all, func(b Block) bool { return b.Test != dir+" "+name })
	if len(mine) == 0 {
		t.Fatalf("no document has a block with <!-- tested by %s %s -->", dir, name)
	}
	return mine
}
