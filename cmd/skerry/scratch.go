package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"

	"github.com/skerry-sandbox/skerry/internal/config"
	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/driver/kubernetes"
	"github.com/skerry-sandbox/skerry/internal/orchestrator"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	skill "github.com/skerry-sandbox/skerry/internal/skills"
	"github.com/skerry-sandbox/skerry/internal/template"
	"github.com/skerry-sandbox/skerry/internal/tools/hub"
)

// firstScratchUID is far above the uids of workspaces, which are counted from a million. What runs in a scratch server
// never has the uid of a user's files.
const firstScratchUID = 2_000_000_000

// openScratch opens all parts of a server but its listener, on a driver and a hub that the caller opened and closes.
func openScratch(ctx context.Context, cfg config.Config, log *slog.Logger, d driver.Driver, h *hub.Hub) (*parts, error) {
	p := &parts{cfg: cfg, log: log, driver: d, hub: h}
	return p, p.open(ctx,
		p.openData, p.openState, p.openScratchSecrets, p.openApprovals,
		func(ctx context.Context) error { _, err := p.store.NextUID(ctx, firstScratchUID); return err },
		p.openTemplates, p.openIsolation, p.openPlugins, p.openOrchestrator)
}

// openSkillLibrary opens only the parts that the files of skills need. It starts no sandbox.
func openSkillLibrary(ctx context.Context, cfg config.Config, log *slog.Logger) (*parts, error) {
	p := &parts{cfg: cfg, log: log}
	return p, p.open(ctx,
		p.openData, p.openState, p.openScratchSecrets, p.openPlugins,
		func(ctx context.Context) error { _, _, err := p.openSkills(ctx); return err })
}

// openOnlyDriver opens the driver of the configuration. closing closes it.
func openOnlyDriver(ctx context.Context, cfg config.Config, log *slog.Logger) (d driver.Driver, closing func() error, err error) {
	p := &parts{cfg: cfg, log: log}
	err = p.open(ctx, p.openDriver)
	return p.driver, p.close, err
}

// removeScratch removes a data folder and the sandboxes of its server. It refuses a folder that a server uses.
func removeScratch(ctx context.Context, cfg config.Config, log *slog.Logger) error {
	p := &parts{cfg: cfg, log: log}
	if err := p.open(ctx, p.openData, p.openDriver); err != nil {
		return err
	}
	defer p.close() //nolint:errcheck // its folder is removed
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
func (p *parts) open(ctx context.Context, steps ...func(context.Context) error) error {
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return errors.Join(err, p.close())
		}
	}
	return nil
}

// orchestrator is the orchestrator of the server; nil in a skill library.
func (p *parts) orchestrator() *orchestrator.Orchestrator { return p.orch }

// library is the library of skills.
func (p *parts) library() *skill.Library { return p.skills }

// template reports whether the driver has an image for a template, and what a sandbox is made of then.
func (p *parts) template(name string) (orchestrator.Template, bool) {
	t, ok := p.templates[name]
	return t, ok
}

// startIsolated starts an MCP server in a sandbox.
func (p *parts) startIsolated(ctx context.Context, s hub.IsolatedServer) (hub.IsolatedProcess, error) {
	return p.isolation.Start(ctx, s)
}

// kubernetesOptions are the driver's options by the configuration.
func kubernetesOptions(cfg config.Config, log *slog.Logger) (kubernetes.Options, error) {
	return (&parts{cfg: cfg, log: log}).kubernetesOptions()
}

// templateFiles are the templates of the configuration, whether or not they fit the driver.
func templateFiles(cfg config.Config) ([]template.Template, error) {
	return (&parts{cfg: cfg}).templateFiles()
}

// printPool prints the objects of a warm pool as YAML.
func printPool(ctx context.Context, cfg config.Config, w io.Writer, name string, replicas int) error {
	p := &parts{cfg: cfg, log: slog.New(slog.DiscardHandler)}
	return p.printPool(ctx, w, name, replicas)
}
