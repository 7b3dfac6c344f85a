// Package source finds skills by a list: folders, .skill files, skills that are compiled in, and archives at
// an address. Each becomes an archive with a name and a digest, ready to install; a lock file remembers
// which they were.
package source

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/skerry-sandbox/skerry/internal/platform/download"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/skills/archive"
	"github.com/skerry-sandbox/skerry/internal/skills/format"
)

// The types of an Entry.
const (
	TypeDir      = "dir"      // a skill's folder, or a folder of such: path
	TypeEmbedded = "embedded" // compiled into the program: name, or all of them
	TypeFile     = "file"     // a .skill file: path
	TypeHTTPS    = "https"    // a .skill file on a web server: url
	TypeS3       = "s3"       // an object: url
)

// fieldOf is the field that says where a source of a type is.
var fieldOf = map[string]string{TypeDir: "path", TypeEmbedded: "name", TypeFile: "path", TypeHTTPS: "url", TypeS3: "url"}

// Config is a skills.json: where skills come from.
type Config struct {
	Sources []Entry `json:"sources"`
	base    string  // folder of the file, which relative paths start from
}

// Entry is one source. Type says which of path, name and url it has.
type Entry struct {
	Type string `json:"type"`
	Path string `json:"path,omitempty"`
	Name string `json:"name,omitempty"`
	URL  string `json:"url,omitempty"`
	// Trusted false makes scripts of its skills want an approval. Only a server's list asks for it, and for
	// the next four.
	Trusted *bool `json:"trusted,omitempty"`
	// Env and EnvSecrets are in the environment of scripts of its skills; the latter are variables by the
	// names of secrets.
	Env        map[string]string `json:"env,omitempty"`
	EnvSecrets map[string]string `json:"env_secrets,omitempty"`
	// Seconds is the timeout of its scripts; 0 is that of all scripts.
	Seconds float64 `json:"timeout_s,omitempty"`
	// Template is that of the sandbox where its scripts run; "" is that of the thread.
	Template string `json:"template,omitempty"`

	skill    string            // the name that its one skill has; "" for the names that they have
	findings []sandbox.Finding // what of the list does not apply here
}

// Untrusted reports whether the list says that the source is not trusted.
func (e Entry) Untrusted() bool { return e.Trusted != nil && !*e.Trusted }

// Findings are what the list says of the source that has no effect.
func (e Entry) Findings() []sandbox.Finding { return e.findings }

// Defaults are what runs of its skills' scripts have; nil: nothing.
func (e Entry) Defaults() *sandbox.ScriptDefaults {
	if len(e.Env)+len(e.EnvSecrets) == 0 && e.Seconds == 0 && e.Template == "" {
		return nil
	}
	return &sandbox.ScriptDefaults{Env: e.Env, EnvSecrets: e.EnvSecrets, Timeout: time.Duration(e.Seconds * float64(time.Second)), Template: e.Template}
}

// Limits of a list.
const (
	maxConfigBytes = 1 << 20
	maxSources     = 500
	maxSkills      = 1000
)

// Read reads a skills.json. NotFound: it is not there; Invalid: it says what is wrong, entry by entry.
func Read(file string) (Config, error) {
	raw, err := readFile(file, maxConfigBytes)
	if err != nil {
		return Config{}, err
	}
	var list struct {
		Sources []Entry          `json:"sources"`
		Skills  map[string]named `json:"skills"`
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&list); err != nil {
		return Config{}, sandbox.Errorf(sandbox.Invalid, "%s: %s; it is to be {\"sources\": [{\"type\": \"dir\", \"path\": …}, …]} or {\"skills\": {NAME: {\"source\": \"directory\", \"path\": …}, …}}", filepath.Base(file), err)
	}
	c := Config{Sources: list.Sources, base: filepath.Dir(file)}
	var wrong []string
	for _, name := range slices.Sorted(maps.Keys(list.Skills)) {
		e, bad := list.Skills[name].entry(name)
		if bad != "" {
			wrong = append(wrong, fmt.Sprintf("skills.%.80s: %s", name, bad))
		}
		c.Sources = append(c.Sources, e)
	}
	if len(wrong) == 0 {
		wrong = c.check()
	}
	if len(wrong) > 0 {
		return c, sandbox.Errorf(sandbox.Invalid, "%s: %s", filepath.Base(file), strings.Join(wrong, "; "))
	}
	return c, nil
}

// check says what is wrong with the sources.
func (c Config) check() []string {
	var wrong []string
	if len(c.Sources) > maxSources {
		wrong = append(wrong, fmt.Sprintf("more than %d sources", maxSources))
	}
	for i, e := range c.Sources[:min(len(c.Sources), maxSources)] {
		if bad := e.check(); bad != "" {
			wrong = append(wrong, e.at(i)+": "+bad)
		}
	}
	return wrong
}

// at is where the i-th source stands in the list.
func (e Entry) at(i int) string {
	if e.skill != "" {
		return "skills." + e.skill
	}
	return fmt.Sprintf("sources[%d]", i)
}

// CheckTemplates reports as Invalid the entries whose template is none of these, which are those of the server.
func (c Config) CheckTemplates(names []string) error {
	var wrong []string
	for i, e := range c.Sources {
		if e.Template != "" && !slices.Contains(names, e.Template) {
			wrong = append(wrong, fmt.Sprintf("%s: there is no template %.80q", e.at(i), e.Template))
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	return sandbox.Errorf(sandbox.Invalid, "%s; this server has the templates %s", strings.Join(wrong, "; "), strings.Join(slices.Sorted(slices.Values(names)), ", "))
}

// check says what is wrong with a source, or "".
func (e Entry) check() string {
	want := fieldOf[e.Type]
	has := []string{}
	for field, v := range map[string]string{"path": e.Path, "name": e.Name, "url": e.URL} {
		if v != "" {
			has = append(has, field)
		}
	}
	script := sandbox.Script{Path: "x", Env: e.Env, EnvSecrets: e.EnvSecrets, Timeout: time.Duration(e.Seconds * float64(time.Second))}
	bad := script.Validate()
	switch {
	case want == "":
		return fmt.Sprintf("the type %.40q is not dir, embedded, file, https or s3", e.Type)
	case len(has) == 0 && e.Type == TypeEmbedded:
	case len(has) != 1 || has[0] != want:
		return fmt.Sprintf("a source of type %s has %q and nothing else", e.Type, want)
	case e.Type == TypeHTTPS && !strings.HasPrefix(e.URL, "https://") && !strings.HasPrefix(e.URL, "http://"):
		return "the url does not begin with https://"
	}
	if bad != nil {
		return sandbox.TextOf(bad)
	}
	return ""
}

// One returns a list with one of the sources, so that a failing one takes no other with it.
func (c Config) One(e Entry) Config { return Config{Sources: []Entry{e}, base: c.base} }

// Folder returns the host folder of a source of type dir that may have any number of skills, "" of another
// one.
func (c Config) Folder(e Entry) string {
	if e.Type != TypeDir || e.skill != "" {
		return ""
	}
	return within(c.base, e.Path)
}

// readFile reads a file of at most limit bytes.
func readFile(file string, limit int64) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		kind := sandbox.Invalid
		if errors.Is(err, fs.ErrNotExist) {
			kind = sandbox.NotFound
		}
		return nil, sandbox.Wrap(kind, err, "%s cannot be read", filepath.Base(file))
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Invalid, err, "%s cannot be read", filepath.Base(file))
	}
	if int64(len(raw)) > limit {
		return nil, sandbox.Errorf(sandbox.Invalid, "%s has more than %d bytes", filepath.Base(file), limit)
	}
	return raw, nil
}

// Skill is one skill that a source has.
type Skill struct {
	Name    string
	Source  string // as a lock file has it: "dir:skills/pdf", "embedded:pdf", "file:pdf.skill", "s3://bucket/key", "https://host/pdf.skill"
	Digest  string // as format.Digest makes it
	Archive []byte // a .skill file
}

// Fetcher gets what is at an address.
type Fetcher interface {
	// Fetch returns what is there; the caller closes it. NotFound, Forbidden, Invalid, NotSupported,
	// Unavailable.
	Fetch(ctx context.Context, url string) (io.ReadCloser, error)
}

// Addresses gets archives by the kinds of addresses that a list may have.
type Addresses struct {
	S3  Fetcher // nil: s3:// is not supported
	Web Fetcher // nil: https:// is not supported
}

// Fetch implements Fetcher.
func (a Addresses) Fetch(ctx context.Context, url string) (io.ReadCloser, error) {
	scheme, _, _ := strings.Cut(url, "://")
	switch {
	case scheme == "s3" && a.S3 == nil:
		return nil, sandbox.Errorf(sandbox.NotSupported, "no S3 is configured to read %.200s from; name its bucket in s3.buckets, or upload the file", url)
	case scheme == "s3":
		return a.S3.Fetch(ctx, url)
	case (scheme == "https" || scheme == "http") && a.Web != nil:
		return a.Web.Fetch(ctx, url)
	}
	return nil, sandbox.Errorf(sandbox.NotSupported, "an address is https://… or s3://bucket/key, not %.40q", scheme)
}

// Finder turns a list into skills.
type Finder struct {
	Embedded fs.FS   // with public/<name>/SKILL.md; nil: none
	Fetcher  Fetcher // nil: sources at an address are an error
	Temp     string  // host folder for unpacking
	Limits   archive.Limits
}

// Find resolves all sources, in their order. An error names its source; of two skills with one name the second is a
// Conflict.
func (f Finder) Find(ctx context.Context, c Config) ([]Skill, error) {
	var all []Skill
	for i, e := range c.Sources {
		found, err := f.entry(ctx, c.base, e)
		if err == nil && e.skill != "" && (len(found) != 1 || found[0].Name != e.skill) {
			err = sandbox.Errorf(sandbox.Invalid, "it is to be the skill %q, and is %q", e.skill, namesOf(found))
		}
		if err != nil {
			return nil, sandbox.Wrap(sandbox.KindOf(err), err, "sources[%d]: %s", i, sandbox.TextOf(err))
		}
		for _, sk := range found {
			if n := slices.IndexFunc(all, func(o Skill) bool { return o.Name == sk.Name }); n >= 0 {
				return nil, sandbox.Errorf(sandbox.Conflict, "sources[%d]: %s has a skill %q, as %s has", i, sk.Source, sk.Name, all[n].Source)
			}
			if all = append(all, sk); len(all) > maxSkills {
				return nil, sandbox.Errorf(sandbox.Invalid, "the sources have more than %d skills", maxSkills)
			}
		}
	}
	return all, nil
}

func namesOf(found []Skill) []string {
	names := make([]string, 0, len(found))
	for _, sk := range found {
		names = append(names, sk.Name)
	}
	return names
}

func (f Finder) entry(ctx context.Context, base string, e Entry) ([]Skill, error) {
	switch e.Type {
	case TypeDir:
		return f.dir(ctx, base, e)
	case TypeEmbedded:
		return f.embedded(ctx, e.Name)
	case TypeFile:
		raw, err := readFile(within(base, e.Path), f.Limits.ArchiveBytes)
		if err != nil {
			return nil, err
		}
		return f.one(ctx, "file:"+e.Path, raw)
	case TypeS3, TypeHTTPS:
		raw, err := f.object(ctx, e.URL)
		if err != nil {
			return nil, err
		}
		return f.one(ctx, download.Shown(e.URL), raw)
	}
	return nil, sandbox.Errorf(sandbox.Invalid, "the type %.40q is not dir, embedded, file, https or s3", e.Type)
}

func within(base, p string) string {
	if filepath.IsAbs(p) {
		return filepath.Clean(p)
	}
	return filepath.Join(base, p)
}

// dir takes a skill's folder, or each skill below a folder.
func (f Finder) dir(ctx context.Context, base string, e Entry) ([]Skill, error) {
	p := e.Path
	dir := within(base, p)
	if _, err := os.Stat(filepath.Join(dir, "SKILL.md")); err == nil {
		abs, err := filepath.Abs(dir) // "." has a name, too
		if err != nil {
			return nil, err
		}
		return f.packed(ctx, "dir:"+p, os.DirFS(dir), cmp.Or(e.skill, filepath.Base(abs)))
	}
	if e.skill != "" {
		return nil, sandbox.Errorf(sandbox.NotFound, "%s: there is no SKILL.md in it", p)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, sandbox.Wrap(sandbox.NotFound, err, "%s: there is no such folder", p)
	}
	var all []Skill
	for _, one := range entries {
		sub := filepath.Join(dir, one.Name())
		if _, err := os.Stat(filepath.Join(sub, "SKILL.md")); !one.IsDir() || err != nil {
			continue
		}
		found, err := f.packed(ctx, "dir:"+path.Join(filepath.ToSlash(p), one.Name()), os.DirFS(sub), one.Name())
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	if len(all) == 0 {
		return nil, sandbox.Errorf(sandbox.NotFound, "%s: there is no SKILL.md, neither in it nor in a folder below", p)
	}
	return all, nil
}

func (f Finder) embedded(ctx context.Context, name string) ([]Skill, error) {
	if f.Embedded == nil {
		return nil, sandbox.Errorf(sandbox.NotFound, "no skills are compiled in")
	}
	names := []string{name}
	if name == "" {
		entries, err := fs.ReadDir(f.Embedded, "public")
		if err != nil {
			return nil, sandbox.Wrap(sandbox.NotFound, err, "no skills are compiled in")
		}
		names = names[:0]
		for _, e := range entries {
			names = append(names, e.Name())
		}
	}
	var all []Skill
	for _, n := range names {
		if format.CheckName(n) != nil {
			return nil, sandbox.Errorf(sandbox.NotFound, "no skill %.80q is compiled in", n)
		}
		sub, err := fs.Sub(f.Embedded, "public/"+n)
		if err == nil {
			_, err = fs.Stat(sub, "SKILL.md")
		}
		if err != nil {
			return nil, sandbox.Wrap(sandbox.NotFound, err, "no skill %.80q is compiled in", n)
		}
		found, err := f.packed(ctx, "embedded:"+n, sub, n)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

func (f Finder) packed(ctx context.Context, source string, files fs.FS, name string) ([]Skill, error) {
	var buf bytes.Buffer
	if err := archive.PackFS(ctx, &buf, files, name, f.Limits); err != nil {
		return nil, sandbox.Wrap(sandbox.KindOf(err), err, "%s: %s", source, sandbox.TextOf(err))
	}
	return f.one(ctx, source, buf.Bytes())
}

func (f Finder) object(ctx context.Context, url string) ([]byte, error) {
	shown := download.Shown(url)
	if f.Fetcher == nil {
		return nil, sandbox.Errorf(sandbox.NotSupported, "%.200s: nothing is fetched here", shown)
	}
	r, err := f.Fetcher.Fetch(ctx, url)
	if err != nil {
		return nil, sandbox.Wrap(sandbox.KindOf(err), err, "%.200s: %s", shown, sandbox.TextOf(err))
	}
	defer r.Close()
	raw, err := io.ReadAll(io.LimitReader(r, f.Limits.ArchiveBytes+1))
	if err == nil && int64(len(raw)) > f.Limits.ArchiveBytes {
		err = sandbox.Errorf(sandbox.Invalid, "%.200s has more than %d bytes", shown, f.Limits.ArchiveBytes)
	}
	return raw, err
}

// one looks into an archive for its name and digest: what Unpack refuses is refused here.
func (f Finder) one(ctx context.Context, source string, raw []byte) (_ []Skill, err error) {
	staged, err := archive.Unpack(ctx, bytes.NewReader(raw), int64(len(raw)), f.Temp, f.Limits)
	if err != nil {
		return nil, sandbox.Wrap(sandbox.KindOf(err), err, "%s: %s", source, sandbox.TextOf(err))
	}
	defer func() { err = errors.Join(err, staged.Remove()) }()
	text, err := os.ReadFile(filepath.Join(staged.Dir, "SKILL.md"))
	if err != nil {
		return nil, err
	}
	name, err := format.NameOf(staged.Wrapper, text)
	if err != nil {
		return nil, sandbox.Wrap(sandbox.KindOf(err), err, "%s: %s", source, sandbox.TextOf(err))
	}
	digest, err := format.Digest(os.DirFS(staged.Dir))
	if err != nil {
		return nil, err
	}
	return []Skill{{Name: name, Source: source, Digest: digest, Archive: raw}}, nil
}
