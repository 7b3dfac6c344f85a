// Command site makes static pages of docs/ and of the documents that they link to: HTML and CSS, without JavaScript and
// without anything from elsewhere, so that they can be read from a disk. It fails when a link between pages, or to a
// heading of one, leads nowhere.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

func main() {
	root := flag.String("root", ".", "the tree that docs/ is in")
	out := flag.String("out", "bin/site", "folder that the pages are written to; what else is there stays")
	flag.Parse()
	n, err := run(*root, *out)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Fprintf(os.Stdout, "%d files, begin with %s\n", n, filepath.Join(*out, "index.html"))
}

// run writes the site and says how many files it has. With a link that leads nowhere it writes nothing.
func run(root, out string) (int, error) {
	s, err := read(os.DirFS(root))
	if err != nil {
		return 0, err
	}
	if bad := s.links(); len(bad) > 0 {
		return 0, errors.Join(bad...)
	}
	files, err := s.files()
	if err != nil {
		return 0, err
	}
	for name, content := range files {
		if !fs.ValidPath(name) {
			return 0, fmt.Errorf("%s is no path of a site", name)
		}
		file := filepath.Join(out, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return 0, err
		}
		if err := os.WriteFile(file, content, 0o644); err != nil {
			return 0, err
		}
	}
	return len(files), nil
}
