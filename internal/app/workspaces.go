package app

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/app/buckets"
	"github.com/skerry-sandbox/skerry/internal/config"
	"github.com/skerry-sandbox/skerry/internal/observe/metrics"
	"github.com/skerry-sandbox/skerry/internal/workspace/snapshot"
)

// SnapshotObjects opens where the configuration says that files of threads are kept; it is closed by the caller. nil:
// nowhere but in the data folder.
func SnapshotObjects(c config.Config) (o snapshot.Objects, closing func() error, err error) {
	closing = func() error { return nil }
	switch {
	case c.Workspaces.Store == "":
		return nil, closing, nil
	case !strings.HasPrefix(c.Workspaces.Store, "s3://"):
		return snapshot.NewFolder(c.Workspaces.Store), closing, nil
	}
	options, err := buckets.Options(c.S3)
	if err != nil {
		return nil, closing, err
	}
	b, err := snapshot.NewBucket(c.Workspaces.Store, options)
	if err != nil {
		return nil, closing, err
	}
	return b, b.Close, nil
}

// openSnapshots opens where the files of threads are kept; nil: nowhere but here.
func (b *builder) openSnapshots(ctx context.Context, f *foundation, meter *metrics.Metrics) (*snapshot.Snapshots, error) {
	objects, closing, err := SnapshotObjects(b.cfg)
	if err != nil {
		return nil, fmt.Errorf("workspaces: %w", err)
	}
	b.onClose(closing)
	if objects == nil {
		return nil, nil //nolint:nilnil // there is none
	}
	o := snapshot.Options{
		Objects: objects, Dir: filepath.Join(b.cfg.Data, "snapshots"), Holder: f.data.install, Meter: meter,
		Encrypt: b.cfg.Encrypt, Sealer: f.sealer, Log: b.log,
	}
	s, err := snapshot.Open(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("workspaces: %w", err)
	}
	b.onClose(s.Close)
	f.secrets.AlsoRenew(s.Renew)
	return s, nil
}
