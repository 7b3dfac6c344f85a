package app

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"

	"github.com/skerry-sandbox/skerry/internal/config"
	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/driver/kubernetes"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/orchestrator"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	skill "github.com/skerry-sandbox/skerry/internal/skills"
	"github.com/skerry-sandbox/skerry/internal/template"
	"github.com/skerry-sandbox/skerry/internal/tools/hub"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/transport"
)

// firstScratchUID is far above the uids of workspaces, which are counted from a million. What runs in a scratch
// server never has the uid of a user's files.
const firstScratchUID = 2_000_000_000

// OpenScratch opens all parts of a server but its listener. The caller opened the driver and the hub, and closes
// them.
func OpenScratch(ctx context.Context, cfg config.Config, log *slog.Logger, d driver.Driver, h *hub.Hub) (*App, error) {
	p := &App{cfg: cfg, log: log, driver: d, hub: h}
	return p, p.open(ctx,
		p.openData, p.openState, p.openScratchSecrets, p.openApprovals,
		func(ctx context.Context) error { _, err := p.store.NextUID(ctx, firstScratchUID); return err },
		p.openTemplates, p.openIsolation, p.openPlugins, p.openOrchestrator)
}

// OpenSkillLibrary opens only the parts that the files of skills need. It starts no sandbox.
func OpenSkillLibrary(ctx context.Context, cfg config.Config, log *slog.Logger) (*App, error) {
	p := &App{cfg: cfg, log: log}
	return p, p.open(ctx,
		p.openData, p.openState, p.openScratchSecrets, p.openPlugins,
		func(ctx context.Context) error { _, _, err := p.openSkills(ctx); return err })
}

// OpenOnlyDriver opens the driver of the configuration. closing closes it.
func OpenOnlyDriver(ctx context.Context, cfg config.Config, log *slog.Logger) (d driver.Driver, closing func() error, err error) {
	p := &App{cfg: cfg, log: log}
	err = p.open(ctx, p.openDriver)
	return p.driver, p.Close, err
}

// RemoveScratch removes a data folder and the sandboxes of its server. It refuses a folder that a server uses.
func RemoveScratch(ctx context.Context, cfg config.Config, log *slog.Logger) error {
	p := &App{cfg: cfg, log: log}
	if err := p.open(ctx, p.openData, p.openDriver); err != nil {
		return err
	}
	defer p.Close() //nolint:errcheck // its folder is removed
	left, err := p.driver.List(ctx, map[string]string{sandbox.LabelInstall: p.install})
	if err != nil {
		return err
	}
	for _, i := range left {
		if err := p.driver.Remove(ctx, i.ID); err != nil {
			return err
		}
	}
	return os.RemoveAll(cfg.Data)
}

// open calls each function in order. After an error it closes what the others opened.
func (p *App) open(ctx context.Context, steps ...func(context.Context) error) error {
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return errors.Join(err, p.Close())
		}
	}
	return nil
}

// Orchestrator is the orchestrator of the server; nil in a skill library.
func (p *App) Orchestrator() *orchestrator.Orchestrator { return p.orch }

// Library is the library of skills.
func (p *App) Library() *skill.Library { return p.skills }

// Template reports whether the driver has an image for a template, and what a sandbox is made of then.
func (p *App) Template(name string) (instance.Template, bool) {
	t, ok := p.templates[name]
	return t, ok
}

// StartIsolated starts an MCP server in a sandbox.
func (p *App) StartIsolated(ctx context.Context, s transport.IsolatedServer) (transport.IsolatedProcess, error) {
	return p.isolation.Start(ctx, s)
}

// KubernetesOptions are the driver's options by the configuration.
func KubernetesOptions(cfg config.Config, log *slog.Logger) (kubernetes.Options, error) {
	return (&App{cfg: cfg, log: log}).kubernetesOptions()
}

// TemplateFiles are the templates of the configuration, whether or not they fit the driver.
func TemplateFiles(cfg config.Config) ([]template.Template, error) {
	return (&App{cfg: cfg}).templateFiles()
}

// PrintPool prints the objects of a warm pool as YAML.
func PrintPool(ctx context.Context, cfg config.Config, w io.Writer, name string, replicas int) error {
	p := &App{cfg: cfg, log: slog.New(slog.DiscardHandler)}
	return p.printPool(ctx, w, name, replicas)
}
