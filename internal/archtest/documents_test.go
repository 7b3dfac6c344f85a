package archtest

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/config"
)

var link = regexp.MustCompile(`\]\(([^)#\s]+)(#[^)]*)?\)`)

// checkLinks: what a document links to in this tree is there. Documents of testdata were written by others.
func checkLinks(root fs.FS) []string {
	var bad []string
	err := fs.WalkDir(root, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (p != "." && strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules" || p == "skerry-data" || p == "testdata") {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(p, ".md") {
			return nil
		}
		text, err := fs.ReadFile(root, p)
		if err != nil {
			return err
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(m[1], ":") { // another site
				continue
			}
			if _, err := fs.Stat(root, path.Join(path.Dir(p), m[1])); err != nil {
				bad = append(bad, fmt.Sprintf("%s links to %s, which is not there", p, m[1]))
			}
		}
		return nil
	})
	if err != nil {
		bad = append(bad, err.Error())
	}
	return bad
}

var declared = regexp.MustCompile("\\[`((?:\\(\\*?(\\w+)\\)\\.)?(\\w+))`\\]\\(([^)]+\\.go)\\)")

// checkDeclared: a link whose text is a function, method or type of ours leads to the file that declares it.
func checkDeclared(root fs.FS, name string) []string {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return []string{err.Error()}
	}
	found := declared.FindAllStringSubmatch(string(text), -1)
	if len(found) == 0 {
		return []string{name + ": no link to a function"}
	}
	var bad []string
	for _, m := range found {
		f, err := parse(root, m[4])
		if err != nil || !f.declares(m[2], m[3]) {
			bad = append(bad, fmt.Sprintf("%s: %s does not declare %s", name, m[4], m[1]))
		}
	}
	return bad
}

// maxReadme is three screens.

const maxReadme = 120

// checkReadme: the README fits three screens.
func checkReadme(readme string) []string {
	if n := strings.Count(readme, "\n"); n > maxReadme {
		return []string{fmt.Sprintf("README.md: %d lines, more than %d: move the details to docs/", n, maxReadme)}
	}
	return nil
}

// checkKubernetesPage: docs/kubernetes.md says of each setting of the driver when to set it.
func checkKubernetesPage(page string) []string {
	var bad []string
	for key := range config.Default().Keys() {
		name, ok := strings.CutPrefix(key, "kubernetes.")
		if ok && !regexp.MustCompile("(?m)^\\| [^|]*`"+name+"`[^|]* \\| ").MatchString(page) {
			bad = append(bad, "docs/kubernetes.md: no row of `"+name+"`")
		}
	}
	return bad
}

var decision = regexp.MustCompile(`^# (\d+)\. `)

// checkDecisions: docs/decisions/NNNN-….md begin with their number and have the three parts.
func checkDecisions(root fs.FS) []string {
	names, err := fs.Glob(root, "docs/decisions/*.md")
	if err != nil || len(names) == 0 {
		return []string{"docs/decisions: nothing there"}
	}
	var bad []string
	for i, name := range names {
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return []string{err.Error()}
		}
		m := decision.FindSubmatch(text)
		if m == nil || fmt.Sprintf("%04s", m[1]) != path.Base(name)[:4] || i > 0 && path.Base(name)[:4] == path.Base(names[i-1])[:4] {
			bad = append(bad, name+": does not begin with its number, or another one has it")
		}
		for _, part := range []string{"**Context.**", "**Decision.**", "**Consequences.**"} {
			if !strings.Contains(string(text), part) {
				bad = append(bad, name+": has no "+part)
			}
		}
	}
	return bad
}
