package app

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/skerry-sandbox/skerry/internal/platform/s3"
	skill "github.com/skerry-sandbox/skerry/internal/skills"
	"github.com/skerry-sandbox/skerry/internal/skills/archive"
	"github.com/skerry-sandbox/skerry/internal/skills/install"
	"github.com/skerry-sandbox/skerry/internal/skills/source"
	"github.com/skerry-sandbox/skerry/skills"
)

// skillInstalls makes what installs skills for users. They may read from S3 when buckets are configured.
func (p *App) skillInstalls() (*install.Installer, error) {
	o := install.Options{
		Library: p.skills, Audit: p.audit, Dir: filepath.Join(p.cfg.Data, "skills", p.ofSlot("install")),
		Strict: p.cfg.StrictInstall, StrictFrontmatter: p.cfg.StrictFrontmatter, Trust: p.cfg.TrustInstalls, Log: p.log,
	}
	if len(p.cfg.S3.Buckets) > 0 {
		from, err := S3Options(p.cfg.S3)
		if err != nil {
			return nil, err
		}
		from.Buckets = p.cfg.S3.Buckets
		client, err := s3.New(from)
		if err != nil {
			return nil, err
		}
		p.onClose(client.Close)
		o.Fetcher = client
	}
	return install.New(o)
}

// publicSkills returns where the skills for all users are: the configured folder, else those that are compiled in, then the sources of skill_sources. Folders of skills are followed as they change; archives and objects are read now. A source that
// fails is logged and left out: a store that is down must not keep a server from starting.
func (p *App) publicSkills(ctx context.Context) ([]skill.Source, error) {
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
	if err != nil {
		return nil, fmt.Errorf("skill_sources: %w", err)
	}
	into := filepath.Join(p.cfg.Data, "skills", p.ofSlot("sourced"))
	if err := os.RemoveAll(into); err != nil {
		return nil, fmt.Errorf("skill_sources: %w", err)
	}
	finder, done, err := p.skillFinder(into)
	if err != nil {
		return nil, fmt.Errorf("skill_sources: %w", err)
	}
	defer done()
	for i, e := range list.Sources {
		if dir := list.Folder(e); dir != "" && !IsSkill(dir) {
			public = append(public, skill.Source{Dir: dir, Untrusted: e.Untrusted()})
			continue
		}
		if e.Type == source.TypeEmbedded && e.Name == "" {
			sub, err := fs.Sub(skills.FS, "public")
			if err != nil {
				return nil, err
			}
			public = append(public, skill.Source{FS: sub, Untrusted: e.Untrusted()})
			continue
		}
		at := filepath.Join(into, fmt.Sprint(i))
		if err := fetchSkill(ctx, finder, list.One(e), at); err != nil {
			p.log.Error("a source of skills is left out", "source", i, "type", e.Type, "error", err)
			continue
		}
		public = append(public, skill.Source{Dir: at, Untrusted: e.Untrusted()})
	}
	return public, nil
}

// skillFinder makes a finder that works below a folder. done closes its connections.
func (p *App) skillFinder(into string) (_ source.Finder, done func(), err error) {
	f := source.Finder{Embedded: skills.FS, Temp: filepath.Join(into, "work"), Limits: archive.DefaultLimits()}
	from, err := S3Options(p.cfg.S3)
	if err != nil {
		return f, nil, err
	}
	client, err := s3.New(from)
	if err != nil {
		return f, nil, err
	}
	f.S3 = client
	return f, func() { _ = client.Close() }, os.MkdirAll(f.Temp, 0o700)
}

// fetchSkill puts the skill of one source into a folder of skills.
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
