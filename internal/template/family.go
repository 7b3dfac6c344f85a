package template

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
)

// maxGenerations bounds how long a chain of templates is that extend each other.
const maxGenerations = 8

// family finds the templates that others extend, by their names.
type family struct {
	folders []fs.FS
	line    []string // of the templates that are read now, each the child of the next
}

func newFamily(folders []fs.FS) *family { return &family{folders: folders} }

// load reads a file, with all that it extends.
func (f *family) load(dir fs.FS, file string) (Template, error) {
	text, err := readFile(dir, file)
	if err != nil {
		return Template{}, err
	}
	return parse(text, f.parent)
}

// parent returns the template of a name. A file is named as its template, as a rule; else each is looked at.
func (f *family) parent(name string) (Template, error) {
	switch {
	case slices.Contains(f.line, name):
		return Template{}, errors.New("it extends itself, by way of " + strings.Join(f.line, ", "))
	case len(f.line) == maxGenerations:
		return Template{}, errors.New("too many templates extend each other")
	}
	f.line = append(f.line, name)
	defer func() { f.line = f.line[:len(f.line)-1] }()
	for _, dir := range f.folders {
		files, err := fs.Glob(dir, "*.yaml")
		if err != nil {
			return Template{}, err
		}
		for _, file := range files {
			text, err := readFile(dir, file)
			if err != nil || nameOf(text) != name {
				continue
			}
			t, err := parse(text, f.parent)
			if err != nil {
				return Template{}, errors.New("it has problems of its own")
			}
			return t, nil
		}
	}
	return Template{}, errors.New("there is no such template")
}

// nameOf is the name that a file has for its template, "" when it cannot be read.
func nameOf(text []byte) string {
	root, err := document(text)
	if err != nil {
		return ""
	}
	for i := 0; i+1 < len(root.Content); i += 2 {
		if root.Content[i].Value == "name" {
			return root.Content[i+1].Value
		}
	}
	return ""
}
