package app

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/skerry-sandbox/skerry/internal/config"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/workspace/quota"
)

// openDisk finds or makes what bounds the files of threads. Sandboxes of a former server have them open.
func (p *App) openDisk(ctx context.Context) (err error) {
	found, err := p.driver.List(ctx, map[string]string{sandbox.LabelInstall: p.install})
	if err != nil {
		return fmt.Errorf("list sandboxes: %w", err)
	}
	live, anybody := map[string]bool{}, false
	for _, inst := range found {
		switch inst.Labels[sandbox.LabelRole] {
		case sandbox.RolePool: // its labels do not say whose it became
			anybody = true
		case "":
			live[filepath.Join(inst.Labels[sandbox.LabelTenant], "users", inst.Labels[sandbox.LabelUser], "threads")] = true
		}
	}
	o := DiskOptions(p.cfg)
	o.Log, o.Live = p.log, func(threads string) bool { return anybody || live[threads] }
	p.disk, err = quota.Open(ctx, o)
	return err
}

// DiskOptions are the options of the disk quota by the configuration.
func DiskOptions(cfg config.Config) quota.Options {
	return quota.Options{
		Data: cfg.Data, Mode: cfg.DiskQuota,
		ImageBytes: int64(cfg.DiskImageMiB) << 20, UserBytes: int64(cfg.UserDiskMiB) << 20,
	}
}
