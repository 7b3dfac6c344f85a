package app

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/skerry-sandbox/skerry/internal/config"
	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/limits"
	"github.com/skerry-sandbox/skerry/internal/observe/metrics"
	"github.com/skerry-sandbox/skerry/internal/platform/buildinfo"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/template"
	"github.com/skerry-sandbox/skerry/internal/workspace"
	"github.com/skerry-sandbox/skerry/internal/workspace/files"
	"github.com/skerry-sandbox/skerry/internal/workspace/quota"
)

// materials are what sandboxes are made of, and by whom.
type materials struct {
	driver    driver.Driver
	disk      *quota.Volume // nil: nothing but the server's own counting bounds files
	folders   *workspace.Folders
	metrics   *metrics.Metrics
	limits    *limits.Gate
	templates map[string]instance.Template
	sandboxd  string // host path
	isolation *isolation
}

// openMaterials finds what sandboxes are made of.
func (b *builder) openMaterials(ctx context.Context, f *foundation, d driver.Driver, disk *quota.Volume) (*materials, error) {
	m := &materials{driver: d, disk: disk, folders: f.folders(disk, b.log), metrics: metrics.New(buildinfo.Version())}
	m.limits = b.openLimits(f, m.metrics, files.NewMeter(f.data.path, m.folders))
	from := &templateReader{cfg: b.cfg, driver: d, log: b.log, closers: &b.closers}
	var err error
	if m.templates, err = from.read(ctx); err != nil {
		return nil, err
	}
	if m.sandboxd, err = daemon(ctx, b.cfg, d, filepath.Join(f.data.path, "sandboxd")); err != nil {
		return nil, err
	}
	m.isolation, err = b.openIsolation(ctx, f, m)
	return m, err
}

// folders are the folders of threads and of MCP servers.
func (f *foundation) folders(disk *quota.Volume, log *slog.Logger) *workspace.Folders {
	return workspace.New(workspace.Options{DataDir: f.data.path, Disk: disk, UIDs: f.store, Log: log})
}

// templateReader reads templates for a driver, and delivers their images to it.
type templateReader struct {
	cfg     config.Config
	driver  driver.Driver
	log     *slog.Logger
	closers *closers
}

// read reads the templates and keeps those whose image fits the driver.
func (r *templateReader) read(ctx context.Context) (map[string]instance.Template, error) {
	list, err := TemplateFiles(r.cfg)
	if err != nil {
		return nil, err
	}
	caps, err := r.driver.Capabilities(ctx)
	if err != nil {
		return nil, err
	}
	all := map[string]instance.Template{}
	for _, t := range list {
		image, ok := t.ImageFor(imagesOf(r.driver, caps), r.cfg.Images)
		if caps.AtService {
			image = cmp.Or(image, r.cfg.Remote.Template)
		}
		if !ok {
			r.log.Warn("template left out: it has no image for this driver", "template", t.Name, "driver", caps.Name)
			continue
		}
		made := instance.Template{Template: t.Vocabulary(), Image: image}
		if store, ok := r.driver.(driver.ImageStore); ok {
			if made.Prepare, err = r.importing(ctx, store, t, image); err != nil {
				return nil, fmt.Errorf("template %s: %w", t.Name, err)
			}
		}
		if caps.HostRootfs && image != "" && !r.onDisk(t) {
			r.log.Warn("the template's image is not here", "template", t.Name, "missing", image)
			if t.Image.OCI == baseImage { // what is in it, most hosts have
				r.log.Warn("using the host's own /usr", "template", t.Name)
				made.Image = ""
			}
		}
		all[t.Name] = made
	}
	if _, ok := all[r.cfg.DefaultTemplate]; !ok {
		return nil, fmt.Errorf("default_template: there is no template %q for the driver %s", r.cfg.DefaultTemplate, caps.Name)
	}
	for setting, name := range map[string]string{"librechat.template": r.cfg.LibreChat.Template, "jupyter.template": r.cfg.Jupyter.Template} {
		if name != "" && all[name].Name == "" {
			return nil, fmt.Errorf("%s: there is no template %q for the driver %s", setting, name, caps.Name)
		}
	}
	return all, checkE2BTemplates(r.cfg.E2B.Templates, all, caps.Name)
}

// onDisk reports whether a template's image is in the images folder, unpacked or as an archive.
func (r *templateReader) onDisk(t template.Template) bool {
	return slices.ContainsFunc(t.ImageSources(r.cfg.Images), func(path string) bool { _, err := os.Stat(path); return err == nil })
}

// checkE2BTemplates refuses a name that stands for a template that is not there.
func checkE2BTemplates(names map[string]string, all map[string]instance.Template, driverName string) error {
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if _, ok := all[names[name]]; !ok {
			return fmt.Errorf("e2b_templates: %q stands for the template %q, which is not there for the driver %s", name, names[name], driverName)
		}
	}
	return nil
}

// imagesOf is where a driver has its images.
func imagesOf(d driver.Driver, caps driver.Capabilities) template.Home {
	_, remote := d.(driver.Remote)
	switch {
	case caps.AtService:
		return template.AtService
	case remote:
		return template.InCluster
	case caps.HostRootfs:
		return template.InFolder
	}
	return template.InEngine
}

// daemon finds skerry-sandboxd: where the configuration says, else beside this program. It returns a copy below dir
// that has a sealed one beside it. Pods have theirs from an image; a service's sandboxes are sent that copy.
func daemon(ctx context.Context, cfg config.Config, d driver.Driver, dir string) (string, error) {
	path := cfg.Sandboxd
	caps, err := d.Capabilities(ctx)
	if err != nil {
		return "", err
	}
	if _, remote := d.(driver.Remote); remote && !caps.AtService {
		return sandbox.DaemonPath, nil
	}
	if path == "" {
		self, err := os.Executable()
		if err != nil {
			return "", err
		}
		path = filepath.Join(filepath.Dir(self), "skerry-sandboxd")
	}
	if info, err := os.Stat(path); err != nil || info.Mode()&0o111 == 0 {
		return "", fmt.Errorf("sandboxd: %s is not a program; build it with `make build` or say where it is (SKERRY_SANDBOXD)", path)
	}
	path, err = sealed(path, dir)
	if err != nil {
		return "", fmt.Errorf("sandboxd: %w", err)
	}
	return path, nil
}
