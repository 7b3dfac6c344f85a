package main

import (
	"bytes"
	_ "embed" // page and style
	"fmt"
	"html/template"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

//go:embed page.html
var frame string

//go:embed style.css
var style []byte

var frameTemplate = template.Must(template.New("page").Parse(frame))

// view is what page.html shows.
type view struct {
	Title, Home, Style string
	Body               template.HTML
	Heads              []heading // of the second level, when there are enough to choose from
	Nav                []navSection
	Before, After      *navItem
}

type navSection struct {
	Title string
	Items []navItem
}

type navItem struct {
	Title, Link string
	Here        bool
}

// place is where a file of the tree is in the site: docs/ is its root, all else lies below project/.
func place(name string) string {
	below, ok := strings.CutPrefix(name, "docs/")
	if !ok {
		below = "project/" + name
	}
	if path.Ext(below) != ".md" {
		return below
	}
	if path.Base(below) == "README.md" {
		return path.Join(path.Dir(below), "index.html")
	}
	return strings.TrimSuffix(below, ".md") + ".html"
}

// from is the link in one file of the site to another.
func from(here, there string) string {
	rel, err := filepath.Rel(filepath.FromSlash(path.Dir(here)), filepath.FromSlash(there))
	if err != nil {
		return there
	}
	return filepath.ToSlash(rel)
}

// files are all of the site by their paths. It may be called once: it turns the links of the pages into those of the site.
func (s *site) files() (map[string][]byte, error) {
	out := map[string][]byte{"style.css": style}
	for name, content := range s.assets {
		out[place(name)] = content
	}
	for _, name := range slices.Sorted(maps.Keys(s.pages)) {
		content, err := s.html(s.pages[name], out)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		out[place(name)] = content
	}
	return out, nil
}

// html makes a page. Folders that it links to, and that have no page of their own, get a list of what is in them in out.
func (s *site) html(p *page, out map[string][]byte) ([]byte, error) {
	here := place(p.path)
	var failed error
	p.eachLink(func(dest []byte) []byte {
		target, fragment, inside := resolve(p.path, string(dest))
		if !inside {
			return dest
		}
		there, err := s.destination(target, out)
		if err != nil {
			failed = err
		}
		link := from(here, there)
		if target == p.path {
			link = ""
		}
		if fragment != "" {
			link += "#" + fragment
		}
		return []byte(link)
	})
	if failed != nil {
		return nil, failed
	}
	var body bytes.Buffer
	if err := markdown.Renderer().Render(&body, p.source, p.doc); err != nil {
		return nil, err
	}
	v := s.view(here, p.title, template.HTML(body.String())) //nolint:gosec // goldmark leaves out raw HTML
	for _, h := range p.heads {
		if h.Level == 2 {
			v.Heads = append(v.Heads, h)
		}
	}
	if len(v.Heads) < 3 {
		v.Heads = nil
	}
	return fill(v)
}

// destination is where a link to a file or folder of the tree leads.
func (s *site) destination(target string, out map[string][]byte) (string, error) {
	info, err := fs.Stat(s.tree, target)
	if err != nil {
		return "", err
	}
	if !info.IsDir() {
		return place(target), nil
	}
	if readme := path.Join(target, "README.md"); s.pages[readme] != nil {
		return place(readme), nil
	}
	list := path.Join(path.Dir(place(path.Join(target, "x.md"))), "index.html")
	if out[list] != nil {
		return list, nil
	}
	var b strings.Builder
	b.WriteString("<h1>" + template.HTMLEscapeString(target) + "</h1>\n<ul>\n")
	for _, name := range slices.Sorted(maps.Keys(s.pages)) {
		if path.Dir(name) == target {
			fmt.Fprintf(&b, "<li><a href=%q>%s</a></li>\n", from(list, place(name)), template.HTMLEscapeString(s.pages[name].title))
		}
	}
	b.WriteString("</ul>\n")
	out[list], err = fill(s.view(list, target, template.HTML(b.String()))) //nolint:gosec // escaped above
	return list, err
}

// view is the frame of the page here, with the site's order beside it.
func (s *site) view(here, title string, body template.HTML) view {
	v := view{Title: title, Home: from(here, place(start)), Style: from(here, "style.css"), Body: body}
	var flat []navItem
	at := -1
	for _, sec := range s.nav {
		shown := navSection{Title: sec.Title}
		for _, i := range sec.Items {
			entry := navItem{Title: i.title, Link: from(here, place(i.path)), Here: place(i.path) == here}
			if entry.Here {
				at = len(flat)
			}
			flat = append(flat, entry)
			shown.Items = append(shown.Items, entry)
		}
		if len(shown.Items) > 0 {
			v.Nav = append(v.Nav, shown)
		}
	}
	if at > 0 {
		v.Before = &flat[at-1]
	}
	if at >= 0 && at+1 < len(flat) {
		v.After = &flat[at+1]
	}
	return v
}

func fill(v view) ([]byte, error) {
	var b bytes.Buffer
	err := frameTemplate.Execute(&b, v)
	return b.Bytes(), err
}
