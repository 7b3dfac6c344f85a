package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/skerry-sandbox/skerry/internal/config"
	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/driver/containerd"
	"github.com/skerry-sandbox/skerry/internal/driver/docker"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/hardening"
	"github.com/skerry-sandbox/skerry/internal/driver/oci"
)

// openDriver opens the configured driver, or the best available one.
func (b *builder) openDriver(ctx context.Context) (driver.Driver, error) {
	switch b.cfg.Driver {
	case "containerd":
		raiseInotify(hardening.InotifyFile, b.log)
		return b.closing(openContainerd(ctx, b.cfg, b.log))
	case "kubernetes":
		return b.closing(openKubernetes(ctx, b.cfg, b.log))
	case "remote":
		return b.closing(openRemote(ctx, b.cfg, b.log))
	}
	if b.cfg.Driver != "oci" {
		d, err := docker.New(docker.Options{Host: "unix://" + b.cfg.Docker.Address, Root: filepath.Join(b.cfg.Data, "docker"), CgroupParent: b.cfg.CgroupParent, Log: b.log})
		if err == nil {
			if _, err = d.Capabilities(ctx); err == nil {
				return b.closing(d, nil)
			}
			err = errors.Join(err, d.Close())
		}
		if b.cfg.Driver == "docker" {
			return nil, fmt.Errorf("driver docker: %w", err)
		}
		b.log.Info("no Docker daemon answers; using the oci driver")
	}
	raiseInotify(hardening.InotifyFile, b.log)
	d, err := oci.New(oci.Options{Root: filepath.Join(b.cfg.Data, "oci"), CgroupParent: b.cfg.CgroupParent, Log: b.log})
	if err != nil {
		return nil, fmt.Errorf("driver oci: %w", err)
	}
	return b.closing(d, nil)
}

// closing has the driver closed at the end.
func (b *builder) closing(d driver.Driver, err error) (driver.Driver, error) {
	if err != nil {
		return nil, err
	}
	b.onClose(d.Close)
	return d, nil
}

func openContainerd(ctx context.Context, cfg config.Config, log *slog.Logger) (driver.Driver, error) {
	d, err := containerd.New(containerd.Options{
		Address: cfg.Containerd.Address, Namespace: cfg.Containerd.Namespace, Pull: cfg.Containerd.Pull,
		Root: filepath.Join(cfg.Data, "containerd"), CgroupParent: cfg.CgroupParent, Log: log,
	})
	if err != nil {
		return nil, err // says which driver
	}
	if _, err := d.Capabilities(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("driver containerd at %s: %w", cfg.Containerd.Address, err), d.Close())
	}
	return d, nil
}
