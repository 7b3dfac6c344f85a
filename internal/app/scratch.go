package app

import (
	"context"
	"errors"
	"log/slog"
	"os"

	"github.com/skerry-sandbox/skerry/internal/config"
	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/orchestrator"
	"github.com/skerry-sandbox/skerry/internal/policy"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	skill "github.com/skerry-sandbox/skerry/internal/skills"
	"github.com/skerry-sandbox/skerry/internal/tools/channels"
	"github.com/skerry-sandbox/skerry/internal/tools/hub"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/transport"
)

// firstScratchUID is far above the uids of workspaces, which are counted from a million. What runs in a scratch
// server never has the uid of a user's files.
const firstScratchUID = 2_000_000_000

// Scratch is a server without a listener, whose data folder is gone in a moment.
type Scratch struct {
	*SkillLibrary
	orch *orchestrator.Orchestrator
	m    *materials
}

// SkillLibrary is the library of skills, with the parts that their files need.
type SkillLibrary struct {
	builder *builder
	library *skill.Library
}

// OpenScratch opens all parts of a server but its listener. The caller opened the driver and the hub, and closes
// them.
func OpenScratch(ctx context.Context, cfg config.Config, log *slog.Logger, d driver.Driver, h *hub.Hub) (*Scratch, error) {
	b := &builder{cfg: cfg, log: log}
	s, err := b.scratch(ctx, d, h)
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return s, nil
}

func (b *builder) scratch(ctx context.Context, d driver.Driver, h *hub.Hub) (*Scratch, error) {
	f, err := b.openFoundation(ctx, b.openScratchVault)
	if err != nil {
		return nil, err
	}
	if _, err := f.store.NextUID(ctx, firstScratchUID); err != nil {
		return nil, err
	}
	w := b.newWork(f)
	m, err := b.openMaterials(ctx, f, d, nil)
	if err != nil {
		return nil, err
	}
	x, err := b.openExtensions(f, m.folders)
	if err != nil {
		return nil, err
	}
	x.changes.listen(h.LookAgain)
	s, err := b.openSandboxes(ctx, f, m, x, w, &toolSet{hub: h, channels: channels.New(channels.Options{})}, policy.AllowAll{})
	if err != nil {
		return nil, err
	}
	return &Scratch{SkillLibrary: &SkillLibrary{builder: b, library: s.library}, orch: s.orch, m: m}, nil
}

// OpenSkillLibrary opens only the parts that the files of skills need. It starts no sandbox.
func OpenSkillLibrary(ctx context.Context, cfg config.Config, log *slog.Logger) (*SkillLibrary, error) {
	b := &builder{cfg: cfg, log: log}
	l, err := b.skillLibrary(ctx)
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return &SkillLibrary{builder: b, library: l}, nil
}

func (b *builder) skillLibrary(ctx context.Context) (*skill.Library, error) {
	f, err := b.openFoundation(ctx, b.openScratchVault)
	if err != nil {
		return nil, err
	}
	x, err := b.openExtensions(f, f.folders(nil, b.log))
	if err != nil {
		return nil, err
	}
	l, _, err := b.openSkills(ctx, f.data, x, nil)
	return l, err
}

// OpenOnlyDriver opens the driver of the configuration. closing closes it.
func OpenOnlyDriver(ctx context.Context, cfg config.Config, log *slog.Logger) (d driver.Driver, closing func() error, err error) {
	b := &builder{cfg: cfg, log: log}
	if d, err = b.openDriver(ctx); err != nil {
		return nil, nil, errors.Join(err, b.Close())
	}
	return d, b.Close, nil
}

// RemoveScratch removes a data folder and the sandboxes of its server. It refuses a folder that a server uses.
func RemoveScratch(ctx context.Context, cfg config.Config, log *slog.Logger) error {
	b := &builder{cfg: cfg, log: log}
	defer b.Close() //nolint:errcheck // its folder is removed
	data, err := b.openData(ctx)
	if err != nil {
		return err
	}
	d, err := b.openDriver(ctx)
	if err != nil {
		return err
	}
	left, err := d.List(ctx, map[string]string{sandbox.LabelInstall: data.install})
	if err != nil {
		return err
	}
	for _, i := range left {
		if err := d.Remove(ctx, i.ID); err != nil {
			return err
		}
	}
	return os.RemoveAll(cfg.Data)
}

// Orchestrator is that of the server.
func (s *Scratch) Orchestrator() *orchestrator.Orchestrator { return s.orch }

// Library is the library of skills.
func (s *SkillLibrary) Library() *skill.Library { return s.library }

// Close closes the parts, last first.
func (s *SkillLibrary) Close() error { return s.builder.Close() }

// Template reports whether the driver has an image for a template, and what a sandbox is made of then.
func (s *Scratch) Template(name string) (instance.Template, bool) {
	t, ok := s.m.templates[name]
	return t, ok
}

// StartIsolated starts an MCP server in a sandbox.
func (s *Scratch) StartIsolated(ctx context.Context, server transport.IsolatedServer) (transport.IsolatedProcess, error) {
	return s.m.isolation.Start(ctx, server)
}
