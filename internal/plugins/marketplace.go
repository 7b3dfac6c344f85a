package plugins

import (
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/skerry-sandbox/skerry/internal/platform/oneline"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Limits of a marketplace.
const (
	MaxMarketplace = 8 << 20 // bytes of marketplace.json
	maxListed      = 2000
)

// A marketplace's list is in the first of these files that its folder has.
const (
	marketplaceFile = ".claude-plugin/marketplace.json"
	plainMarketFile = "marketplace.json"
)

// Marketplace is a list of plugins, and of skills that are no part of one, and of where they are.
type Marketplace struct {
	Name        string
	Owner       string
	Description string
	Entries     []Entry // plugins, in the order of the file
	Skills      []Entry // in the order of the file
	Findings    []sandbox.Finding
}

// Entry is one plugin of a marketplace, or one skill.
type Entry struct {
	Name        string
	DisplayName string
	Description string
	Version     string
	Category    string
	Source      Source
	// Strict says that plugin.json is the authority and the entry adds what it lacks. Otherwise the entry is
	// all there is to say, and a plugin.json that names components is an error.
	Strict  bool
	Problem string // why it cannot be installed; "" when nothing is known to be wrong
	fields  fields
}

// Source says where a plugin, or a marketplace, is. Kind decides which of the others count.
type Source struct {
	Kind   string `json:"source"`
	Path   string `json:"path,omitempty"` // SourcePath, and the folder within SourceGit and SourceArchive
	URL    string `json:"url,omitempty"`  // SourceGit, SourceArchive
	Ref    string `json:"ref,omitempty"`  // of SourceGit: a branch or tag; "" is the default branch
	SHA    string `json:"sha,omitempty"`  // of SourceGit: the commit, which wins over Ref
	SHA256 string `json:"sha256,omitempty"`
}

// Kinds of a Source.
const (
	SourcePath    = "path" // below the marketplace's own folder
	SourceGit     = "git"
	SourceArchive = "archive"
)

var (
	commitHash = regexp.MustCompile(`^[0-9a-f]{40}$`)
	sha256Hash = regexp.MustCompile(`^[0-9a-f]{64}$`)
	githubRepo = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]{0,38}/[A-Za-z0-9._-]{1,100}$`)
	gitRef     = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/+-]{0,200}$`)
)

// ParseMarketplace reads a marketplace.json. An entry that is wrong has a Problem and hides no other. The
// error is Invalid when the list as a whole cannot be read.
func ParseMarketplace(text []byte) (*Marketplace, error) {
	if len(text) > MaxMarketplace {
		return nil, sandbox.Errorf(sandbox.Invalid, "marketplace.json has more than %d bytes", MaxMarketplace)
	}
	top, err := object(text)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "marketplace.json is not a JSON object: %s", err)
	}
	r := memberReader{f: top}
	m := &Marketplace{Name: r.text("name"), Description: oneline.Of(r.text("description"), maxText)}
	if err := CheckName(m.Name); err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "marketplace.json: name: %s", detail(err))
	}
	var meta, owner struct {
		Name        string `json:"name"`
		PluginRoot  string `json:"pluginRoot"`
		Description string `json:"description"`
	}
	if raw, ok := top["metadata"]; ok && json.Unmarshal(raw, &meta) != nil {
		m.add("wrong-type", "metadata should be an object; it is ignored")
	}
	if raw, ok := top["owner"]; !ok || json.Unmarshal(raw, &owner) != nil || owner.Name == "" {
		m.add("owner", "owner should be an object with a name")
	}
	m.Owner = oneline.Of(owner.Name, maxDescriptor)
	if m.Description == "" {
		m.Description = oneline.Of(meta.Description, maxText)
	}
	if top["plugins"] == nil && top["skills"] == nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "marketplace.json: there is neither a list of plugins nor one of skills")
	}
	if m.Entries, err = m.read(top["plugins"], "plugin", meta.PluginRoot); err == nil {
		m.Skills, err = m.read(top["skills"], "skill", "")
	}
	return m, err
}

func (m *Marketplace) add(rule, format string, args ...any) {
	if len(m.Findings) < maxFindings {
		m.Findings = append(m.Findings, sandbox.Finding{Rule: rule, Severity: sandbox.SeverityWarning, File: marketplaceFile, Message: fmt.Sprintf(format, args...)})
	}
}

// read reads a list of plugins or of skills, which may be missing.
func (m *Marketplace) read(text json.RawMessage, what, root string) ([]Entry, error) {
	var list []json.RawMessage
	if text != nil && json.Unmarshal(text, &list) != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "marketplace.json: %ss should be a list", what)
	}
	if len(list) > maxListed {
		return nil, sandbox.Errorf(sandbox.Invalid, "marketplace.json: %d %ss, at most %d", len(list), what, maxListed)
	}
	var entries []Entry
	seen := map[string]bool{}
	for i, raw := range list {
		f, err := object(raw)
		if err != nil {
			m.add("entry", "%ss[%d] is not an object; it is ignored", what, i)
			continue
		}
		e := newEntry(f, root)
		switch {
		case CheckName(e.Name) != nil:
			m.add("entry", "%ss[%d]: %s; it is ignored", what, i, detail(CheckName(e.Name)))
			continue
		case seen[e.Name]:
			m.add("entry-twice", "there are two %ss %q; the first counts", what, e.Name)
			continue
		case e.Problem != "":
			m.add("entry", "the %s %q cannot be installed: %s", what, e.Name, e.Problem)
		}
		seen[e.Name] = true
		entries = append(entries, e)
	}
	return entries, nil
}

// Find returns the entry of a plugin. NotFound when there is none.
func (m *Marketplace) Find(name string) (*Entry, error) { return m.find(m.Entries, "plugin", name) }

// FindSkill returns the entry of a skill. NotFound when there is none.
func (m *Marketplace) FindSkill(name string) (*Entry, error) {
	return m.find(m.Skills, "skill", name)
}

func (m *Marketplace) find(list []Entry, what, name string) (*Entry, error) {
	for i := range list {
		if list[i].Name == name {
			return &list[i], nil
		}
	}
	return nil, sandbox.Errorf(sandbox.NotFound, "the marketplace %q has no %s %.80q", m.Name, what, name)
}

func newEntry(f fields, root string) Entry {
	r := memberReader{f: f}
	e := Entry{
		Name: r.text("name"), DisplayName: oneline.Of(r.text("displayName"), maxDescriptor), Description: oneline.Of(r.text("description"), maxText),
		Version: oneline.Of(r.text("version"), maxDescriptor), Category: oneline.Of(r.text("category"), maxDescriptor), Strict: true, fields: f,
	}
	if raw, ok := r.get("strict"); ok && json.Unmarshal(raw, &e.Strict) != nil {
		r.fail("strict", "true or false")
	}
	e.Source, e.Problem = parseSource(f["source"], root)
	if e.Problem == "" {
		e.Problem = r.bad
	}
	return e
}

// parseSource reads the source of an entry and says what is wrong with it, or "".
func parseSource(raw json.RawMessage, root string) (Source, string) {
	var p string
	if json.Unmarshal(raw, &p) == nil && p != "" {
		clean, ok := below(p)
		if !ok {
			return Source{}, fmt.Sprintf("the path %.200q is not one below the marketplace's folder", p)
		}
		if base, ok := below(root); ok && root != "" && !strings.HasPrefix(p, "./") {
			clean = path.Join(base, clean)
		}
		return Source{Kind: SourcePath, Path: clean}, ""
	}
	f, err := object(raw)
	if err != nil {
		return Source{}, "it has no source that is understood"
	}
	r := memberReader{f: f}
	s := Source{URL: r.text("url"), Ref: r.text("ref"), SHA: strings.ToLower(r.text("sha")), SHA256: strings.ToLower(r.text("sha256")), Path: r.text("path")}
	switch kind := r.text("source"); kind {
	case "github":
		repo := r.text("repo")
		if !githubRepo.MatchString(repo) {
			return s, fmt.Sprintf("the repository %.80q is not owner/name", repo)
		}
		s.Kind, s.URL = SourceGit, "https://github.com/"+repo+".git"
	case "url", "git", "git-subdir":
		s.Kind = SourceGit
	case "archive":
		s.Kind = SourceArchive
	case "npm", "command":
		return s, fmt.Sprintf("sources of the kind %q are not supported here", kind)
	default:
		return s, fmt.Sprintf("the kind of source %.40q is not known", kind)
	}
	if r.bad != "" {
		return s, r.bad
	}
	return s, s.check()
}

// below returns the clean form of a path with slashes that stays below where it is taken from.
func below(p string) (string, bool) {
	clean := path.Clean(p)
	bad := path.IsAbs(p) || clean == ".." || strings.HasPrefix(clean, "../") || strings.ContainsAny(p, "\\:") || strings.ContainsFunc(p, unicode.IsControl)
	return clean, !bad
}

// check says what is wrong with a source that came from outside, or "".
func (s *Source) check() string {
	if s.Path != "" {
		clean, ok := below(s.Path)
		if !ok {
			return fmt.Sprintf("the path %.200q leaves the source", s.Path)
		}
		s.Path = clean
	}
	switch {
	case s.URL == "":
		return "it has no url"
	case strings.ContainsFunc(s.URL, func(r rune) bool { return unicode.IsControl(r) || unicode.IsSpace(r) }):
		return "its url has blanks"
	case s.SHA != "" && !commitHash.MatchString(s.SHA):
		return fmt.Sprintf("sha %.80q is no full commit hash", s.SHA)
	case s.SHA256 != "" && !sha256Hash.MatchString(s.SHA256):
		return fmt.Sprintf("sha256 %.80q is no hash of 64 hex digits", s.SHA256)
	case s.Ref != "" && (!gitRef.MatchString(s.Ref) || strings.Contains(s.Ref, "..")):
		return fmt.Sprintf("ref %.80q is no name of a branch or tag", s.Ref)
	}
	return ""
}

// componentKeys are the keys of a manifest that name components.
var componentKeys = []string{"skills", "commands", "agents", "workflows", "outputStyles", "hooks", "mcpServers", "lspServers"}

func (f fields) components() []string {
	return slices.DeleteFunc(slices.Clone(componentKeys), func(k string) bool { return f[k] == nil })
}

// entryKeys are those of an entry that are none of a manifest.
var entryKeys = []string{"source", "category", "tags", "strict", "relevance"}

// merge puts what a marketplace says of a plugin beside, or in place of, what its manifest says.
func (l *loader) merge(e *Entry) error {
	own := l.fields.components()
	if !e.Strict && len(own) > 0 {
		return sandbox.Errorf(sandbox.Invalid, "the marketplace says strict: false, so that %s may not name %s", l.manifest, strings.Join(own, ", "))
	}
	if name := (&memberReader{f: l.fields}).text("name"); name != "" && name != e.Name {
		l.add("name-not-entry", sandbox.SeverityInfo, l.manifest, "the name %.80q is not that of the marketplace, %q, which counts", name, e.Name)
	}
	merged := fields{}
	for k, v := range e.fields {
		if !slices.Contains(entryKeys, k) && (l.p.Format == FormatClaude || slices.Contains(agentKeys, k)) {
			merged[k] = v
		}
	}
	for k, v := range l.fields {
		if e.Strict || merged[k] == nil {
			merged[k] = v
		}
	}
	merged["name"] = e.fields["name"]
	l.listed = !e.Strict && len(e.fields.components()) > 0
	l.fields = merged
	if l.manifest == "" {
		l.manifest = claudeManifest
	}
	return nil
}
