package main

import (
	"path/filepath"

	"github.com/skerry-sandbox/skerry/internal/skill/install"
	"github.com/skerry-sandbox/skerry/internal/skill/s3"
)

// skillInstalls makes what installs skills for users. They may read from S3 when buckets are configured.
func (p *parts) skillInstalls() (*install.Installer, error) {
	o := install.Options{
		Library: p.skills, Audit: p.audit, Dir: filepath.Join(p.cfg.Data, "skills", "install"),
		Strict: p.cfg.StrictInstall, StrictFrontmatter: p.cfg.StrictFrontmatter, Log: p.log,
	}
	if len(p.cfg.S3.Buckets) > 0 {
		from, err := s3Options(p.cfg.S3)
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
