package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/skerry-sandbox/skerry/internal/app/buckets"
	"github.com/skerry-sandbox/skerry/internal/config"
	"github.com/skerry-sandbox/skerry/internal/platform/download"
	"github.com/skerry-sandbox/skerry/internal/platform/s3"
	"github.com/skerry-sandbox/skerry/internal/plugins"
	skill "github.com/skerry-sandbox/skerry/internal/skills"
	"github.com/skerry-sandbox/skerry/internal/skills/archive"
	"github.com/skerry-sandbox/skerry/internal/skills/format"
	"github.com/skerry-sandbox/skerry/internal/skills/install"
	"github.com/skerry-sandbox/skerry/internal/skills/source"
	"github.com/skerry-sandbox/skerry/skills"
)

// skillInstalls makes what installs skills for users. They may read from the web, and from S3 when buckets
// are configured.
func (b *builder) skillInstalls(f *foundation, x *extensionSet, library *skill.Library) (*install.Installer, error) {
	web := download.New(x.from)
	b.onClose(web.Close)
	from := source.Addresses{Web: web}
	if len(b.cfg.S3.Buckets) > 0 {
		options, err := buckets.Options(b.cfg.S3)
		if err != nil {
			return nil, err
		}
		options.Buckets = b.cfg.S3.Buckets
		client, err := s3.New(options)
		if err != nil {
			return nil, err
		}
		b.onClose(client.Close)
		from.S3 = client
	}
	return install.New(install.Options{
		Library: library, Audit: f.audit, Dir: filepath.Join(f.data.path, "skills", f.data.ofSlot("install")), Fetcher: from, Registry: plugins.NewSkillRegistry(x.plugins),
		Strict: b.cfg.StrictInstall, StrictFrontmatter: b.cfg.StrictFrontmatter, Trust: b.cfg.TrustInstalls, Log: b.log,
	})
}

// skillSources are where the skills for all users come from.
type skillSources struct {
	cfg       config.Config
	templates []string       // of the server; nil: they are not known
	into      string         // folder for fetched sources; it is emptied
	addresses []netip.Prefix // that may be fetched from besides the public internet
	log       *slog.Logger
}

// public returns the sources of the skills for all users: the configured folder, else the compiled-in one,
// then the sources of skill_sources. The server follows changes of folders. It reads archives and objects
// now, into a folder that it empties first. It logs and leaves out a source that fails: a store that is down
// must not keep a server from starting. A list that is wrong does.
func (p *skillSources) public(ctx context.Context) ([]skill.Source, error) {
	public := []skill.Source{{Dir: filepath.Join(p.cfg.Skills, "public")}}
	if p.cfg.Skills == "" {
		own, err := fs.Sub(skills.FS, "public")
		if err != nil {
			return nil, err
		}
		public[0] = skill.Source{FS: own}
	}
	if p.cfg.SkillSources == "" {
		return public, nil
	}
	list, err := source.Read(p.cfg.SkillSources)
	if err == nil && p.templates != nil {
		err = list.CheckTemplates(p.templates)
	}
	if err != nil {
		return nil, fmt.Errorf("skill_sources: %w", err)
	}
	if err := os.RemoveAll(p.into); err != nil {
		return nil, fmt.Errorf("skill_sources: %w", err)
	}
	finder, done, err := p.finder()
	if err != nil {
		return nil, fmt.Errorf("skill_sources: %w", err)
	}
	defer done()
	for i, e := range list.Sources {
		from := skill.Source{Untrusted: e.Untrusted(), Defaults: e.Defaults(), Findings: e.Findings()}
		if dir := list.Folder(e); dir != "" && !format.IsSkill(dir) {
			from.Dir = dir
		} else if e.Type == source.TypeEmbedded && e.Name == "" {
			if from.FS, err = fs.Sub(skills.FS, "public"); err != nil {
				return nil, err
			}
		} else {
			from.Dir = filepath.Join(p.into, fmt.Sprint(i))
			if err := fetchSkill(ctx, finder, list.One(e), from.Dir); err != nil {
				p.log.Error("a source of skills is left out", "source", i, "type", e.Type, "error", err)
				continue
			}
		}
		public = append(public, from)
	}
	return public, nil
}

// finder returns a finder that works below the folder. done closes its connections.
func (p *skillSources) finder() (_ source.Finder, done func(), err error) {
	f := source.Finder{Embedded: skills.FS, Temp: filepath.Join(p.into, "work"), Limits: archive.DefaultLimits()}
	from, err := buckets.Options(p.cfg.S3)
	if err != nil {
		return f, nil, err
	}
	client, err := s3.New(from)
	if err != nil {
		return f, nil, err
	}
	web := download.New(p.addresses)
	f.Fetcher = source.Addresses{S3: client, Web: web}
	return f, func() { _ = errors.Join(client.Close(), web.Close()) }, os.MkdirAll(f.Temp, 0o700)
}

// fetchSkill puts the skill of one source p.into a folder of skills.
func fetchSkill(ctx context.Context, f source.Finder, one source.Config, at string) error {
	found, err := f.Find(ctx, one)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(at, 0o755); err != nil { //nolint:gosec // skills are for all users
		return err
	}
	for _, sk := range found {
		staged, err := archive.Unpack(ctx, bytes.NewReader(sk.Archive), int64(len(sk.Archive)), f.Temp, f.Limits)
		if err != nil {
			return err
		}
		if err := os.Rename(staged.Dir, filepath.Join(at, sk.Name)); err != nil {
			return err
		}
	}
	return nil
}
