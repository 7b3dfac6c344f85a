// Package source finds skills by a list: folders, .skill files, skills that are compiled in, and objects in S3. Each
// becomes an archive with a name and a digest, ready to install; a lock file remembers which they were.
package source

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/skills"
	"github.com/skerry-sandbox/skerry/internal/skills/archive"
)

// The types of an Entry.
const (
	TypeDir      = "dir"      // a skill's folder, or a folder of such: path
	TypeEmbedded = "embedded" // compiled into the program: name, or all of them
	TypeFile     = "file"     // a .skill file: path
	TypeS3       = "s3"       // an object: url
)

// Config is a skills.json: where skills come from.
type Config struct {
	Sources []Entry `json:"sources"`
	base    string  // folder of the file, which relative paths start from
}

// Entry is one source. Type says which of the other fields it has.
type Entry struct {
	Type string `json:"type"`
	Path string `json:"path,omitempty"`
	Name string `json:"name,omitempty"`
	URL  string `json:"url,omitempty"`
	// Trusted false makes scripts of its skills want an approval. Only a server's list asks for it.
	Trusted *bool `json:"trusted,omitempty"`
}

// Untrusted reports whether the list says that the source is not trusted.
func (e Entry) Untrusted() bool { return e.Trusted != nil && !*e.Trusted }

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
	var c Config
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&c); err != nil {
		return Config{}, sandbox.Errorf(sandbox.Invalid, "%s: %s; it is to be {\"sources\": [{\"type\": \"dir\", \"path\": …}, …]}", filepath.Base(file), err)
	}
	c.base = filepath.Dir(file)
	return c, c.check(filepath.Base(file))
}

func (c Config) check(file string) error {
	var wrong []string
	if len(c.Sources) > maxSources {
		wrong = append(wrong, fmt.Sprintf("more than %d sources", maxSources))
	}
	for i, e := range c.Sources[:min(len(c.Sources), maxSources)] {
		want := map[string]string{TypeDir: "path", TypeEmbedded: "name", TypeFile: "path", TypeS3: "url"}[e.Type]
		has := []string{}
		for field, v := range map[string]string{"path": e.Path, "name": e.Name, "url": e.URL} {
			if v != "" {
				has = append(has, field)
			}
		}
		switch {
		case want == "":
			wrong = append(wrong, fmt.Sprintf("sources[%d]: the type %.40q is not dir, embedded, file or s3", i, e.Type))
		case len(has) == 0 && e.Type == TypeEmbedded:
		case len(has) != 1 || has[0] != want:
			wrong = append(wrong, fmt.Sprintf("sources[%d]: a source of type %s has %q and nothing else", i, e.Type, want))
		}
	}
	if len(wrong) > 0 {
		return sandbox.Errorf(sandbox.Invalid, "%s: %s", file, strings.Join(wrong, "; "))
	}
	return nil
}

// One returns a list with one of the sources, so that a failing one takes no other with it.
func (c Config) One(e Entry) Config { return Config{Sources: []Entry{e}, base: c.base} }

// Folder returns the host folder of a source of type dir, "" of another one.
func (c Config) Folder(e Entry) string {
	if e.Type != TypeDir {
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
	Source  string // as a lock file has it: "dir:skills/pdf", "embedded:pdf", "file:pdf.skill", "s3://bucket/key"
	Digest  string // as skills.Digest makes it
	Archive []byte // a .skill file
}

// fetcher gets objects; *s3.Client is one.
type fetcher interface {
	Fetch(ctx context.Context, url string) (io.ReadCloser, error)
}

// Finder turns a list into skills.
type Finder struct {
	Embedded fs.FS   // with public/<name>/SKILL.md; nil: none
	S3       fetcher // nil: sources of type s3 are an error
	Temp     string  // host folder for unpacking
	Limits   archive.Limits
}

// Find resolves all sources, in their order. An error names its source; of two skills with one name the second is a
// Conflict.
func (f Finder) Find(ctx context.Context, c Config) ([]Skill, error) {
	var all []Skill
	for i, e := range c.Sources {
		found, err := f.entry(ctx, c.base, e)
		if err != nil {
			return nil, sandbox.Wrap(sandbox.KindOf(err), err, "sources[%d]: %s", i, detail(err))
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

func detail(err error) string {
	var e *sandbox.Error
	if errors.As(err, &e) {
		return e.Detail
	}
	return err.Error()
}

func (f Finder) entry(ctx context.Context, base string, e Entry) ([]Skill, error) {
	switch e.Type {
	case TypeDir:
		return f.dir(ctx, base, e.Path)
	case TypeEmbedded:
		return f.embedded(ctx, e.Name)
	case TypeFile:
		raw, err := readFile(within(base, e.Path), f.Limits.ArchiveBytes)
		if err != nil {
			return nil, err
		}
		return f.one(ctx, "file:"+e.Path, raw)
	case TypeS3:
		raw, err := f.object(ctx, e.URL)
		if err != nil {
			return nil, err
		}
		return f.one(ctx, e.URL, raw)
	}
	return nil, sandbox.Errorf(sandbox.Invalid, "the type %.40q is not dir, embedded, file or s3", e.Type)
}

func within(base, p string) string {
	if filepath.IsAbs(p) {
		return filepath.Clean(p)
	}
	return filepath.Join(base, p)
}

// dir takes a skill's folder, or each skill below a folder.
func (f Finder) dir(ctx context.Context, base, p string) ([]Skill, error) {
	dir := within(base, p)
	if _, err := os.Stat(filepath.Join(dir, "SKILL.md")); err == nil {
		abs, err := filepath.Abs(dir) // "." has a name, too
		if err != nil {
			return nil, err
		}
		return f.packed(ctx, "dir:"+p, os.DirFS(dir), filepath.Base(abs))
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, sandbox.Wrap(sandbox.NotFound, err, "%s: there is no such folder", p)
	}
	var all []Skill
	for _, e := range entries {
		sub := filepath.Join(dir, e.Name())
		if _, err := os.Stat(filepath.Join(sub, "SKILL.md")); !e.IsDir() || err != nil {
			continue
		}
		found, err := f.packed(ctx, "dir:"+path.Join(filepath.ToSlash(p), e.Name()), os.DirFS(sub), e.Name())
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
		if skills.CheckName(n) != nil {
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
		return nil, sandbox.Wrap(sandbox.KindOf(err), err, "%s: %s", source, detail(err))
	}
	return f.one(ctx, source, buf.Bytes())
}

func (f Finder) object(ctx context.Context, url string) ([]byte, error) {
	if f.S3 == nil {
		return nil, sandbox.Errorf(sandbox.NotSupported, "%.200s: S3 is not configured", url)
	}
	r, err := f.S3.Fetch(ctx, url)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	raw, err := io.ReadAll(io.LimitReader(r, f.Limits.ArchiveBytes+1))
	if err == nil && int64(len(raw)) > f.Limits.ArchiveBytes {
		err = sandbox.Errorf(sandbox.Invalid, "%.200s has more than %d bytes", url, f.Limits.ArchiveBytes)
	}
	return raw, err
}

// one looks into an archive for its name and digest: what Unpack refuses is refused here.
func (f Finder) one(ctx context.Context, source string, raw []byte) (_ []Skill, err error) {
	staged, err := archive.Unpack(ctx, bytes.NewReader(raw), int64(len(raw)), f.Temp, f.Limits)
	if err != nil {
		return nil, sandbox.Wrap(sandbox.KindOf(err), err, "%s: %s", source, detail(err))
	}
	defer func() { err = errors.Join(err, staged.Remove()) }()
	text, err := os.ReadFile(filepath.Join(staged.Dir, "SKILL.md"))
	if err != nil {
		return nil, err
	}
	name, err := skills.NameOf(staged.Wrapper, text)
	if err != nil {
		return nil, sandbox.Wrap(sandbox.KindOf(err), err, "%s: %s", source, detail(err))
	}
	digest, err := skills.Digest(os.DirFS(staged.Dir))
	if err != nil {
		return nil, err
	}
	return []Skill{{Name: name, Source: source, Digest: digest, Archive: raw}}, nil
}
