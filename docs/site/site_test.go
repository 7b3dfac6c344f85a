package main

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
)

// TestSite: the site of this tree is whole. Every link of the HTML leads to a file of the site, or to an id in it; every
// page of docs/ is reached from the start; nothing is a script or comes from elsewhere.
func TestSite(t *testing.T) {
	out := t.TempDir()
	n, err := run("../..", out)
	if err != nil {
		t.Fatal(err)
	}
	if n < 70 {
		t.Errorf("only %d files", n)
	}
	pages := map[string][]byte{}
	err = filepath.WalkDir(out, func(p string, _ os.DirEntry, err error) error {
		if err == nil && path.Ext(p) == ".html" {
			rel, _ := filepath.Rel(out, p)
			pages[filepath.ToSlash(rel)], err = os.ReadFile(p)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	reached := map[string]bool{}
	todo := []string{"index.html"}
	for len(todo) > 0 {
		name := todo[0]
		todo = todo[1:]
		if reached[name] {
			continue
		}
		reached[name] = true
		for _, target := range hrefs(t, name, pages[name]) {
			file, id, _ := strings.Cut(target, "#")
			if _, err := os.Stat(filepath.Join(out, file)); err != nil {
				t.Errorf("%s links to %s, which is not in the site", name, file)
				continue
			}
			if id != "" && !bytes.Contains(pages[file], fmt.Appendf(nil, " id=%q", id)) {
				t.Errorf("%s links to %s, which has no id %s", name, file, id)
			}
			if pages[file] != nil {
				todo = append(todo, file)
			}
		}
	}
	for name, text := range pages {
		if !reached[name] {
			t.Errorf("no link leads to %s", name)
		}
		if bytes.Contains(text, []byte("<script")) || bytes.Contains(text, []byte(` src="http`)) || bytes.Count(text, []byte("<h1")) != 1 {
			t.Errorf("%s has a script, a picture from elsewhere, or not one title", name)
		}
	}
}

var attribute = regexp.MustCompile(`\s(?:href|src)="([^"]*)"`)

// hrefs are the links of a page within the site, from its root.
func hrefs(t *testing.T, name string, text []byte) []string {
	t.Helper()
	var all []string
	for _, m := range attribute.FindAllSubmatch(text, -1) {
		link := string(m[1])
		if strings.Contains(link, ":") {
			continue
		}
		file, id, _ := strings.Cut(link, "#")
		if strings.HasPrefix(file, "/") {
			t.Errorf("%s: %s is no relative link", name, link)
		}
		target := path.Join(path.Dir(name), file)
		if file == "" {
			target = name
		}
		if id != "" {
			target += "#" + id
		}
		all = append(all, target)
	}
	return all
}

func TestBadLinks(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	tree := fstest.MapFS{
		start:            file("# Start\n\n## More\n\n[one](one.md#two-words-here) [two](one.md#nothing) [three](three.md) [four](#start) [five](../LICENSE)\n"),
		"docs/one.md":    file("# One\n\n## Two `words` here\n\n[start](README.md#more) [far](https://example.com/x) [list](more)\n"),
		"docs/more/a.md": file("# A & b\n"),
		"LICENSE":        file("text"),
	}
	s, err := read(tree)
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(s.links())
	want := "[docs/README.md links to docs/one.md#nothing: no heading there has that name docs/README.md links to docs/three.md, which is not there]"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	tree["docs/three.md"] = file("# Three\n\nSee <script>alert(1)</script>.\n\n<div onclick=\"x\">raw</div>\n")
	tree["docs/four.md"] = file("# Four\n")
	tree["docs/one.md"].Data = append(tree["docs/one.md"].Data, "\n## Nothing\n"...)
	if s, err = read(tree); err != nil {
		t.Fatal(err)
	}
	if bad := s.links(); len(bad) > 0 {
		t.Fatal(bad)
	}
	files, err := s.files()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"index.html": `<a href="one.html#two-words-here">one</a> <a href="one.html#nothing">two</a> <a href="three.html">three</a> <a href="#start">four</a> <a href="project/LICENSE">five</a>`,
		"three.html": `<li><a href="three.html" aria-current="page">three</a></li>
</ul>
<h2>More</h2>
<ul>
<li><a href="four.html">Four</a></li>
</ul>
</nav>`,
		"one.html":        `<a href="index.html#more">start</a> <a href="https://example.com/x">far</a> <a href="more/index.html">list</a>`,
		"more/index.html": `<li><a href="a.html">A &amp; b</a></li>`,
		"more/a.html":     `<link rel="stylesheet" href="../style.css">`,
	} {
		if !strings.Contains(string(files[name]), want) {
			t.Errorf("%s lacks %s:\n%s", name, want, files[name])
		}
	}
	if text := string(files["three.html"]); strings.Contains(text, "<script") || strings.Contains(text, "onclick") {
		t.Errorf("raw HTML came through:\n%s", text)
	}
}

func TestSlug(t *testing.T) {
	for title, want := range map[string]string{
		"When it does not work":           "when-it-does-not-work",
		"`skerry doctor`":                 "skerry-doctor",
		"MCP: what, and how?":             "mcp-what-and-how",
		"POST /api/threads/{thread}/exec": "post-apithreadsthreadexec",
		"Größe_1 - x":                     "größe_1---x",
	} {
		if got := slug(strings.ReplaceAll(title, "`", "")); got != want {
			t.Errorf("%q: got %s, want %s", title, got, want)
		}
	}
}
