package app

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/skerry-sandbox/skerry/internal/config"
	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/servers"
	"github.com/skerry-sandbox/skerry/internal/workspace"
	"github.com/skerry-sandbox/skerry/internal/workspace/quota"
)

// openDisk finds or makes what bounds the files of threads. Sandboxes of a former server have them open.
func openDisk(ctx context.Context, cfg config.Config, data *dataFolder, d driver.Driver, log *slog.Logger) (*quota.Volume, error) {
	found, err := d.List(ctx, map[string]string{sandbox.LabelInstall: data.install})
	if err != nil {
		return nil, fmt.Errorf("list sandboxes: %w", err)
	}
	live, anybody := map[string]bool{}, false
	for _, inst := range found {
		switch inst.Labels[sandbox.LabelRole] {
		case sandbox.RolePool: // its labels do not say whose it became
			anybody = true
		case servers.Role: // of a server that ended, they end before a program starts again
			if data.peers.Alive(inst.Labels[sandbox.LabelReplica]) {
				live[threadsOf(inst)] = true
			}
		case "", sandbox.RoleSecond:
			live[threadsOf(inst)] = true
		}
	}
	o := DiskOptions(cfg)
	o.Log, o.Live = log, func(threads string) bool { return anybody || live[threads] }
	return quota.Open(ctx, o)
}

// threadsOf is the folder of the threads of whose sandbox it is.
func threadsOf(inst sandbox.Instance) string {
	return workspace.Threads(sandbox.Owner{Tenant: inst.Labels[sandbox.LabelTenant], User: inst.Labels[sandbox.LabelUser]})
}

// DiskOptions are the options of the disk quota by the configuration.
func DiskOptions(cfg config.Config) quota.Options {
	return quota.Options{
		Data: cfg.Data, Mode: cfg.DiskQuota,
		ImageBytes: int64(cfg.DiskImageMiB) << 20, UserBytes: int64(cfg.UserDiskMiB) << 20,
	}
}
