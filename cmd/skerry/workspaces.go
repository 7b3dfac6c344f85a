package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/snapshot"
)

// openSnapshots opens where the files of threads are kept; nil: nowhere but here.
func (p *parts) openSnapshots(ctx context.Context) (*snapshot.Snapshots, error) {
	w := p.cfg.Workspaces
	if w.Store == "" {
		return nil, nil //nolint:nilnil // there is none
	}
	var objects snapshot.Objects = snapshot.NewFolder(w.Store)
	if strings.HasPrefix(w.Store, "s3://") {
		o, err := s3Options(p.cfg.S3)
		if err != nil {
			return nil, err
		}
		b, err := snapshot.NewBucket(w.Store, o)
		if err != nil {
			return nil, fmt.Errorf("workspaces: %w", err)
		}
		p.onClose(b.Close)
		objects = b
	}
	o := snapshot.Options{Objects: objects, Dir: filepath.Join(p.cfg.Data, "snapshots"), Holder: p.install, Meter: p.metrics, Encrypt: w.Encrypt, Log: p.log}
	if p.sealer != nil {
		o.Sealer = p.sealer
	}
	s, err := snapshot.Open(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("workspaces: %w", err)
	}
	p.onClose(s.Close)
	if p.secrets != nil {
		p.secrets.AlsoRenew(s.Renew)
	}
	return s, nil
}
