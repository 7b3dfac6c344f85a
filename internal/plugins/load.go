package plugins

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/plugins/slash"
	"github.com/skerry-sandbox/skerry/internal/plugins/tree"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// The formats.
const (
	FormatClaude = "claude"
	FormatAgent  = "agent-plugins"
)

// Limits of one plugin.
const (
	MaxName       = 64
	maxManifest   = 256 << 10 // bytes of plugin.json and of a file of MCP servers
	maxSkills     = 500
	maxCommands   = 500
	maxServers    = 100
	maxOptions    = 100
	maxPaths      = 100 // that one field of a manifest may list
	maxKeywords   = 50
	maxEntries    = 5000 // of one folder
	maxFindings   = 300
	maxText       = 2000 // characters of a text that is shown
	maxDescriptor = 200  // characters of a name or version
)

const (
	claudeManifest = ".claude-plugin/plugin.json"
	agentManifest  = "plugin.json"
	skillFile      = "SKILL.md"
)

// Plugin is a plugin as its folder has it.
type Plugin struct {
	Name        string
	DisplayName string
	Version     string
	Description string
	Author      string
	Homepage    string
	Repository  string
	License     string
	Keywords    []string
	Format      string // FormatClaude or FormatAgent
	Disabled    bool   // "defaultEnabled": false
	Skills      []Skill
	Commands    []slash.Command
	Servers     []Server
	Options     []sandbox.PluginOption
	Findings    []sandbox.Finding // files relative to the plugin's folder
}

// Skill is a skill of a plugin.
type Skill struct {
	sandbox.Skill
	Folder string // of the skill, relative to the plugin's, with slashes; "." for a plugin that is one skill
}

var goodName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// CheckName says whether a plugin can have this name: it becomes a folder, a part of URLs and of the
// names of tools. Invalid otherwise.
func CheckName(name string) error {
	if !goodName.MatchString(name) || strings.Contains(name, "..") || strings.HasSuffix(name, ".") {
		return sandbox.Errorf(sandbox.Invalid, "plugin name %.80q: use 1 to %d of letters, digits, - _ and ., beginning with a letter or a digit", name, MaxName)
	}
	return nil
}

// Load reads the plugin in the folder root. fallback is its name when the manifest has none, or there is
// no manifest. entry is what a marketplace says of it; nil for nothing. The error is Invalid when it cannot be used
// as a plugin at all; the plugin that is given with it bears the findings and nothing else of use.
func Load(root *os.Root, fallback string, entry *Entry) (*Plugin, error) {
	l := &loader{root: root, p: &Plugin{Format: FormatClaude}}
	err := l.load(fallback, entry)
	if err != nil {
		l.add("not-loaded", sandbox.SeverityError, l.manifest, "%s", detail(err))
	}
	return l.p, err
}

func detail(err error) string {
	var e *sandbox.Error
	if errors.As(err, &e) {
		return e.Detail
	}
	return "it cannot be read"
}

// loader reads one plugin.
type loader struct {
	root     *os.Root
	p        *Plugin
	manifest string // the manifest's file, "" when there is none
	fields   fields // of the manifest
	listed   bool   // only what fields name is part of the plugin, whatever else is in the folder
}

// add notes a finding.
func (l *loader) add(rule, severity, file, format string, args ...any) {
	l.found(sandbox.Finding{Rule: rule, Severity: severity, File: file, Message: fmt.Sprintf(format, args...)})
}

func (l *loader) found(f sandbox.Finding) {
	switch {
	case len(l.p.Findings) < maxFindings-1:
	case len(l.p.Findings) == maxFindings-1:
		f = sandbox.Finding{Rule: "too-many-findings", Severity: sandbox.SeverityWarning, Message: "there are more findings than are shown"}
	default:
		return
	}
	l.p.Findings = append(l.p.Findings, f)
}

func (l *loader) load(fallback string, entry *Entry) error {
	if err := l.readManifest(entry); err != nil {
		return err
	}
	if l.p.Name == "" {
		l.p.Name = fallback
	}
	if err := CheckName(l.p.Name); err != nil {
		return err
	}
	if strings.ToLower(l.p.Name) != l.p.Name || strings.ContainsAny(l.p.Name, "_.") {
		l.add("name-syntax", sandbox.SeverityInfo, l.manifest, "a plugin's name has lower-case letters, digits and single - between them")
	}
	l.loadSkills()
	commandLoader{l}.loadCommands()
	serverLoader{l}.loadServers()
	l.variables()
	l.unsupported()
	if l.manifest == "" && len(l.p.Skills)+len(l.p.Commands)+len(l.p.Servers) == 0 {
		return sandbox.Errorf(sandbox.Invalid, "this is no plugin: there is neither %s nor %s, and no skill, command or MCP server", claudeManifest, agentManifest)
	}
	return nil
}

// readManifest finds the manifest and takes what describes the plugin.
func (l *loader) readManifest(entry *Entry) error {
	claude, agent := l.isFile(claudeManifest), l.isFile(agentManifest)
	switch {
	case claude:
		l.manifest = claudeManifest
		if agent {
			l.add("two-manifests", sandbox.SeverityInfo, agentManifest, "%s is there, too, and counts", claudeManifest)
		}
	case agent:
		l.manifest, l.p.Format = agentManifest, FormatAgent
	}
	l.fields = fields{}
	if l.manifest != "" {
		text, err := l.read(l.manifest, maxManifest)
		if err != nil {
			return err
		}
		if l.fields, err = object(text); err != nil {
			return sandbox.Errorf(sandbox.Invalid, "%s is not a JSON object: %s", l.manifest, err)
		}
	}
	if entry != nil {
		if err := l.merge(entry); err != nil {
			return err
		}
	}
	l.describe()
	return nil
}

// isFile reports whether there is a regular file of that name, links followed within the folder.
func (l *loader) isFile(name string) bool {
	info, err := l.root.Stat(name)
	return err == nil && info.Mode().IsRegular()
}

func (l *loader) isDir(name string) bool {
	info, err := l.root.Stat(name)
	return err == nil && info.IsDir()
}

// read returns a file of at most limit bytes. A device or a pipe is never opened for reading.
func (l *loader) read(name string, limit int64) ([]byte, error) {
	f, err := tree.OpenRegular(l.root, name)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it was read
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Internal, err, "%s cannot be read", name)
	}
	if int64(len(text)) > limit {
		return nil, sandbox.Errorf(sandbox.Invalid, "%s has more than %d bytes", name, limit)
	}
	return text, nil
}

// entries lists a folder, sorted; too many are a finding, and the rest is left out.
func (l *loader) entries(dir string) []fs.DirEntry {
	f, err := l.root.Open(filepath.FromSlash(dir))
	if err != nil {
		return nil
	}
	defer f.Close() //nolint:errcheck // it was read
	list, err := f.ReadDir(maxEntries + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		l.add("unreadable", sandbox.SeverityError, dir, "the folder cannot be read")
		return nil
	}
	if len(list) > maxEntries {
		l.add("too-many", sandbox.SeverityError, dir, "the folder has more than %d entries; it is not looked at", maxEntries)
		return nil
	}
	slices.SortFunc(list, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return list
}

// inside returns the clean path of what a manifest names, "." for the folder itself. It says why not when
// the path is absolute or leaves the folder.
func (l *loader) inside(field, p string) (string, bool) {
	bad := ""
	switch clean := path.Clean(p); {
	case p == "":
		bad = "is empty"
	case strings.ContainsAny(p, "\\\x00") || path.IsAbs(p) || strings.Contains(p, ":"):
		bad = "is no path below the plugin's folder"
	case clean == ".." || strings.HasPrefix(clean, "../"):
		bad = "leaves the plugin's folder"
	default:
		if !strings.HasPrefix(p, "./") && p != "." {
			l.add("path-form", sandbox.SeverityInfo, l.manifest, "%s: %.200q should begin with ./", field, p)
		}
		return clean, true
	}
	l.add("path", sandbox.SeverityError, l.manifest, "%s: %.200q %s; it is ignored", field, p, bad)
	return "", false
}

// notHere are parts of a plugin that do nothing on this server.
var notHere = map[string]string{
	"agents": "agents", "hooks": "hooks/hooks.json", "outputStyles": "output-styles", "workflows": "workflows",
	"lspServers": ".lsp.json", "channels": "", "dependencies": "", "experimental": "",
}

// unsupported says what of the plugin does nothing here.
func (l *loader) unsupported() {
	if l.p.Format == FormatAgent {
		return
	}
	for _, key := range sorted(notHere) {
		file := notHere[key]
		if _, ok := l.fields[key]; ok {
			l.add("not-supported", sandbox.SeverityInfo, l.manifest, "%s: this server does nothing with it", key)
		} else if file != "" && (l.isFile(file) || l.isDir(file)) {
			l.add("not-supported", sandbox.SeverityInfo, file, "this server does nothing with %s", key)
		}
	}
}

// fields are the members of a JSON object, by their exact names.
type fields map[string]json.RawMessage

// object reads a JSON object. The error is for people and holds nothing of the text.
func object(text []byte) (fields, error) {
	var f fields
	err := json.Unmarshal(text, &f)
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &syntax):
		line := 1 + strings.Count(string(text[:min(int(syntax.Offset), len(text))]), "\n")
		return nil, fmt.Errorf("line %d: %w", line, syntax)
	case err != nil || f == nil:
		return nil, errors.New("it is something else")
	}
	return f, nil
}
