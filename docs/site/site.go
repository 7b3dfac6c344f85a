package main

import (
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"path"
	"slices"
	"strings"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/text"
)

// start is the page that a reader begins with. Its headings and links are the site's order.
const start = "docs/README.md"

var markdown = goldmark.New(goldmark.WithExtensions(extension.Table, extension.Strikethrough))

// site is all that can be reached from docs/ by links of documents.
type site struct {
	tree   fs.FS
	pages  map[string]*page  // by path in the tree
	assets map[string][]byte // other files that pages link to
	nav    []section
}

type page struct {
	path   string
	source []byte
	doc    ast.Node
	title  string
	heads  []heading
	ids    map[string]bool
}

type heading struct {
	Level int
	Text  string
	ID    string
}

// section is a heading of the start page with the pages that are linked below it.
type section struct {
	Title string
	Items []item
}

type item struct{ title, path string }

func read(tree fs.FS) (*site, error) {
	s := &site{tree: tree, pages: map[string]*page{}, assets: map[string][]byte{}}
	todo := []string{start}
	err := fs.WalkDir(tree, "docs", func(p string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && path.Ext(p) == ".md" {
			todo = append(todo, p)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	for len(todo) > 0 {
		name := todo[0]
		todo = todo[1:]
		if s.pages[name] != nil {
			continue
		}
		p, err := s.parse(name)
		if err != nil {
			return nil, err
		}
		s.pages[name] = p
		p.eachLink(func(dest []byte) []byte {
			if target, _, inside := resolve(name, string(dest)); inside {
				todo = append(todo, s.take(target)...)
			}
			return dest
		})
	}
	s.nav = s.order()
	return s, nil
}

// order is that of the start page; what it does not name of docs/ comes last.
func (s *site) order() []section {
	all, named := s.pages[start].sections(), map[string]bool{start: true}
	for _, sec := range all {
		for _, i := range sec.Items {
			named[i.path] = true
		}
	}
	more := section{Title: "More"}
	for _, name := range slices.Sorted(maps.Keys(s.pages)) {
		if path.Dir(name) == path.Dir(start) && !named[name] {
			more.Items = append(more.Items, item{s.pages[name].title, name})
		}
	}
	return append(all, more)
}

// take makes what a link leads to part of the site, and gives the pages that are to be read. What is not there, links
// will tell.
func (s *site) take(target string) []string {
	info, err := fs.Stat(s.tree, target)
	switch {
	case err != nil:
	case info.IsDir():
		if _, err := fs.Stat(s.tree, path.Join(target, "README.md")); err == nil {
			return []string{path.Join(target, "README.md")}
		}
	case path.Ext(target) == ".md":
		return []string{target}
	default:
		if content, err := fs.ReadFile(s.tree, target); err == nil {
			s.assets[target] = content
		}
	}
	return nil
}

func (s *site) parse(name string) (*page, error) {
	source, err := fs.ReadFile(s.tree, name)
	if err != nil {
		return nil, err
	}
	p := &page{path: name, source: source, doc: markdown.Parser().Parse(text.NewReader(source)), ids: map[string]bool{}}
	err = ast.Walk(p.doc, func(n ast.Node, enter bool) (ast.WalkStatus, error) {
		h, ok := n.(*ast.Heading)
		if !ok || !enter {
			return ast.WalkContinue, nil
		}
		head := heading{Level: h.Level, Text: p.text(h)}
		head.ID = p.unused(slug(head.Text))
		h.SetAttributeString("id", []byte(head.ID))
		if p.title == "" {
			p.title = head.Text
		}
		p.heads = append(p.heads, head)
		return ast.WalkSkipChildren, nil
	})
	if p.title == "" {
		p.title = name
	}
	return p, err
}

// text is what a reader sees of a node.
func (p *page) text(n ast.Node) string {
	var b strings.Builder
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		switch c := c.(type) {
		case *ast.Text:
			b.Write(c.Segment.Value(p.source))
			if c.SoftLineBreak() {
				b.WriteByte(' ')
			}
		default:
			b.WriteString(p.text(c))
		}
	}
	return b.String()
}

// slug is the id that a forge gives a heading, so that links hold there and here.
func slug(title string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(title) {
		switch {
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
			b.WriteRune(r)
		case r == ' ':
			b.WriteByte('-')
		}
	}
	return b.String()
}

func (p *page) unused(id string) string {
	free := id
	for n := 1; p.ids[free]; n++ {
		free = fmt.Sprintf("%s-%d", id, n)
	}
	p.ids[free] = true
	return free
}

// eachLink lets change say where each link and picture leads.
func (p *page) eachLink(change func(dest []byte) []byte) {
	_ = ast.Walk(p.doc, func(n ast.Node, enter bool) (ast.WalkStatus, error) {
		if enter {
			switch n := n.(type) {
			case *ast.Link:
				n.Destination = change(n.Destination)
			case *ast.Image:
				n.Destination = change(n.Destination)
			}
		}
		return ast.WalkContinue, nil
	})
}

// resolve says which file of the tree, and which heading, a link in page means; not inside: another site.
func resolve(page, dest string) (target, fragment string, inside bool) {
	u, err := url.Parse(dest)
	if err != nil || u.Scheme != "" || u.Host != "" {
		return "", "", false
	}
	if u.Path == "" {
		return page, u.Fragment, true
	}
	return path.Join(path.Dir(page), u.Path), u.Fragment, true
}

// links are the links that lead nowhere.
func (s *site) links() []error {
	var bad []error
	for _, name := range slices.Sorted(maps.Keys(s.pages)) {
		s.pages[name].eachLink(func(dest []byte) []byte {
			target, fragment, inside := resolve(name, string(dest))
			if !inside {
				return dest
			}
			_, err := fs.Stat(s.tree, target)
			p := s.pages[target]
			if p == nil {
				p = s.pages[path.Join(target, "README.md")]
			}
			switch {
			case err != nil:
				bad = append(bad, fmt.Errorf("%s links to %s, which is not there", name, target))
			case fragment != "" && (p == nil || !p.ids[fragment]):
				bad = append(bad, fmt.Errorf("%s links to %s#%s: no heading there has that name", name, target, fragment))
			}
			return dest
		})
	}
	return bad
}

// sections are the headings of the second level with the pages that are linked below them, each page once.
func (p *page) sections() []section {
	var all []section
	seen := map[string]bool{p.path: true}
	_ = ast.Walk(p.doc, func(n ast.Node, enter bool) (ast.WalkStatus, error) {
		if !enter {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Heading:
			if n.Level == 2 {
				all = append(all, section{Title: p.text(n)})
			}
		case *ast.Link:
			target, _, inside := resolve(p.path, string(n.Destination))
			if inside && path.Ext(target) == ".md" && !seen[target] && len(all) > 0 {
				seen[target] = true
				last := &all[len(all)-1]
				last.Items = append(last.Items, item{p.text(n), target})
			}
		}
		return ast.WalkContinue, nil
	})
	return all
}
