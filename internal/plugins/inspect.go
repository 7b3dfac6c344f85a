package plugins

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Report is what is in a folder of plugins.
type Report struct {
	Plugins     []Inspected
	Marketplace *Marketplace // nil when the folder is none
}

// Inspected is one plugin of a Report.
type Inspected struct {
	Folder string // relative, with slashes; "." for the folder itself
	Plugin *Plugin
	Broken bool // its findings say why
}

const maxInspected = 1000

// Inspect reads dir, which is a plugin, a marketplace, or a folder of plugins, without installing anything. The error
// is Invalid when it is none of these, NotFound when it is not there.
func Inspect(dir string) (*Report, error) {
	root, err := os.OpenRoot(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, sandbox.Wrap(sandbox.NotFound, err, "there is no such folder")
	case err != nil:
		return nil, sandbox.Wrap(sandbox.Invalid, err, "it is no folder that can be read")
	}
	defer root.Close() //nolint:errcheck // it was read
	l := &loader{root: root, p: &Plugin{}}
	r := &Report{}
	seen := map[string]bool{}
	if file := l.marketFile(); l.isFile(file) && (file == marketplaceFile || !l.isPlugin(".")) {
		text, err := l.read(file, MaxMarketplace)
		if err != nil {
			return nil, err
		}
		if r.Marketplace, err = ParseMarketplace(text); err != nil {
			return nil, err
		}
		for i, e := range r.Marketplace.Entries {
			if e.Source.Kind == SourcePath && e.Problem == "" && len(r.Plugins) < maxInspected {
				seen[e.Source.Path] = true
				r.inspect(root, e.Source.Path, e.Name, &r.Marketplace.Entries[i])
			}
		}
	}
	if !seen["."] && l.isPlugin(".") {
		r.inspect(root, ".", path.Base(strings.TrimSuffix(dir, "/")), nil)
		return r, nil
	}
	for _, e := range l.entries(".") {
		if e.Name()[0] != '.' && !seen[e.Name()] && len(r.Plugins) < maxInspected && l.isDir(e.Name()) && l.isPlugin(e.Name()) {
			r.inspect(root, e.Name(), e.Name(), nil)
		}
	}
	slices.SortFunc(r.Plugins, func(a, b Inspected) int { return strings.Compare(a.Folder, b.Folder) })
	if len(r.Plugins) == 0 && r.Marketplace == nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "there is no plugin in this folder, nor in the folders within it")
	}
	return r, nil
}

// marketFile is where the list of the marketplace in this folder is, or would be.
func (l *loader) marketFile() string {
	if !l.isFile(marketplaceFile) && l.isFile(plainMarketFile) {
		return plainMarketFile
	}
	return marketplaceFile
}

// isPlugin says whether a folder looks like a plugin.
func (l *loader) isPlugin(dir string) bool {
	for _, file := range []string{claudeManifest, agentManifest, ".mcp.json"} {
		if l.isFile(path.Join(dir, file)) {
			return true
		}
	}
	return dir != "." && (l.isDir(path.Join(dir, "skills")) || l.isDir(path.Join(dir, "commands")))
}

func (r *Report) inspect(root *os.Root, folder, name string, e *Entry) {
	sub, err := root.OpenRoot(folder)
	if err != nil {
		missing := sandbox.Finding{Rule: "not-loaded", Severity: sandbox.SeverityError, File: marketplaceFile, Message: "there is no folder " + folder}
		r.Plugins = append(r.Plugins, Inspected{Folder: folder, Plugin: &Plugin{Name: name, Findings: []sandbox.Finding{missing}}, Broken: true})
		return
	}
	defer sub.Close() //nolint:errcheck // it was read
	p, err := Load(sub, name, e)
	r.Plugins = append(r.Plugins, Inspected{Folder: folder, Plugin: p, Broken: err != nil})
}

// Write prints the report: a line for each plugin, the sums, and the findings by rule.
func (r *Report) Write(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(tw, "PLUGIN\tFORMAT\tVERSION\tSKILLS\tCOMMANDS\tMCP SERVERS\tUNUSABLE\tFINDINGS")
	var total [6]int
	rules := map[string]int{}
	for _, p := range r.Plugins {
		bad, name := 0, p.Plugin.Name
		for _, s := range p.Plugin.Servers {
			if s.Problem != "" {
				bad++
			}
		}
		if p.Broken {
			name, total[5] = cmp.Or(name, p.Folder)+" (broken)", total[5]+1
		}
		row := [5]int{len(p.Plugin.Skills), len(p.Plugin.Commands), len(p.Plugin.Servers), bad, len(p.Plugin.Findings)}
		for i, n := range row {
			total[i] += n
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\n", name, p.Plugin.Format, p.Plugin.Version, row[0], row[1], row[2], row[3], row[4])
		for _, f := range p.Plugin.Findings {
			rules[f.Severity+" "+f.Rule]++
		}
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\nplugins %d (broken %d), skills %d, commands %d, MCP servers %d (unusable %d), findings %d\n", len(r.Plugins), total[5], total[0], total[1], total[2], total[3], total[4])
	for _, rule := range sorted(rules) {
		fmt.Fprintf(w, "  %4d  %s\n", rules[rule], rule)
	}
	return r.writeMarketplace(w)
}

func (r *Report) writeMarketplace(w io.Writer) error {
	m := r.Marketplace
	if m == nil {
		return nil
	}
	kinds, pinned, bad := map[string]int{}, 0, 0
	for _, e := range m.Entries {
		kinds[cmp.Or(e.Source.Kind, "unknown")]++
		if e.Source.SHA != "" || e.Source.SHA256 != "" {
			pinned++
		}
		if e.Problem != "" {
			bad++
		}
	}
	_, err := fmt.Fprintf(w, "\nmarketplace %s: entries %d (pinned %d, unusable %d), findings %d\n", m.Name, len(m.Entries), pinned, bad, len(m.Findings))
	for _, k := range slices.Sorted(slices.Values(sorted(kinds))) {
		fmt.Fprintf(w, "  %4d  %s\n", kinds[k], k)
	}
	return err
}
