package app

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/api/console"
	"github.com/skerry-sandbox/skerry/internal/api/deerflow"
	"github.com/skerry-sandbox/skerry/internal/api/e2b"
	"github.com/skerry-sandbox/skerry/internal/api/held"
	"github.com/skerry-sandbox/skerry/internal/api/jupyter"
	"github.com/skerry-sandbox/skerry/internal/api/librechat"
	"github.com/skerry-sandbox/skerry/internal/api/rest"
	"github.com/skerry-sandbox/skerry/internal/api/rest/overview"
	"github.com/skerry-sandbox/skerry/internal/app/findings"
	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/config"
	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/orchestrator"
	"github.com/skerry-sandbox/skerry/internal/platform/buildinfo"
	"github.com/skerry-sandbox/skerry/internal/platform/tlsfiles"
	"github.com/skerry-sandbox/skerry/internal/plugins/typed"
	"github.com/skerry-sandbox/skerry/internal/policy/replay"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/service"
	"github.com/skerry-sandbox/skerry/internal/skills/runnable"
	"github.com/skerry-sandbox/skerry/internal/store"
	"github.com/skerry-sandbox/skerry/internal/template/contents"
	"github.com/skerry-sandbox/skerry/internal/threadevents"
	"github.com/skerry-sandbox/skerry/internal/tools/hub"
	"github.com/skerry-sandbox/skerry/internal/workspace/quota"
)

// readiness is what the server depends on.
type readiness struct {
	store   *store.Store
	driver  driver.Driver
	install string
	disk    *quota.Volume
	hub     *hub.Hub
	audit   *audit.Log
	tls     *tlsfiles.Server // nil: http
	orch    *orchestrator.Orchestrator
	log     *slog.Logger
}

// checks is the state of what the server depends on.
func (p *readiness) checks(ctx context.Context) []rest.Check {
	check := func(name string, err error) rest.Check {
		c := rest.Check{Name: name, OK: err == nil}
		var known *sandbox.Error
		switch {
		case errors.As(err, &known): // /readyz needs no key: the engine's own words stay in the log
			c.Detail = known.Detail
			p.log.Debug("not ready", "what", name, "error", err)
		case err != nil:
			c.Detail = err.Error()
		}
		return c
	}
	_, driverErr := p.driver.List(ctx, map[string]string{sandbox.LabelInstall: p.install})
	checks := []rest.Check{
		{Name: "disk quota", OK: true, Detail: p.disk.State().String()},
		check("state", p.store.Ping(ctx)),
		check("driver", driverErr),
		check("mcp servers", p.hub.ConfigError()),
		check("audit log", p.audit.State().Err),
	}
	if p.tls != nil {
		checks = append(checks, tlsCheck(p.tls))
	}
	checks = append(append(checks, sinkChecks(p.audit)...), archiveCheck(p.audit)...)
	if p.orch.Shutdown.Draining() {
		checks = append(checks, rest.Check{Name: "drain", Detail: "the server is stopping"})
	}
	return checks
}

// parts are those that operators see findings about.
func (p *readiness) parts(cfg config.Config, levels overview.Series) findings.Parts {
	parts := findings.Parts{
		Data: cfg.Data, Install: p.install, Store: p.store, Driver: p.driver, Disk: p.disk, DiskQuota: cfg.DiskQuota, Audit: p.audit, Levels: levels,
		Tools: p.hub.ConfigError, Draining: p.orch.Shutdown.Draining,
	}
	if p.tls != nil {
		parts.TLS = func() (string, bool) {
			c := tlsCheck(p.tls)
			return c.Detail, c.OK
		}
	}
	return parts
}

// handler builds the API on all parts before it.
func (b *builder) handler(
	ctx context.Context, tls *tlsfiles.Server, f *foundation, m *materials, x *extensionSet, t *toolSet, w *work, s *sandboxes,
) (http.Handler, error) {
	access := &access{cfg: b.cfg, log: b.log, store: f.store, keys: f.keys, audit: f.audit}
	if err := access.open(ctx); err != nil {
		return nil, err
	}
	b.onClose(access.close)
	installs, err := b.skillInstalls(f, x, s.library)
	if err != nil {
		return nil, err
	}
	prober := runnable.NewProber(s.orch.Probes, b.log)
	b.onClose(func() error { prober.Close(); return nil })
	images := contents.New(s.orch.Probes, buildinfo.Version(), b.log)
	b.onClose(images.Close)
	_, remote := m.driver.(driver.Remote)
	use := service.Service{
		Threads: s.orch.Threads, Sandboxes: s.orch.Sandboxes, Runs: s.orch.Runs, Execs: s.orch.Execs, Terminals: s.orch.Execs, Processes: s.orch.Execs, Contexts: s.orch.Contexts, Files: threadevents.Files{Files: orchestrator.Files{Files: s.orch.Files, Roots: s.orch.Roots}, Events: s.orch.Events}, Events: s.orch.Events,
		Tools: s.orch.Calls, ActiveTools: s.orch.ActiveTools, Upstream: s.orch.Calls, Prompts: s.orch.Prompts, Skills: s.orch.Skills, ThreadSkills: s.orch.ThreadSkills, SkillChannels: s.orch.ThreadSkills, SkillInstalls: installs,
		Approvals: w.approvals, PluginUse: service.PluginUse{Plugins: pluginUse{x.plugins, s.orch}, Marketplaces: x.plugins, Messages: typed.New(pluginUse{x.plugins, s.orch})},
	}
	servers := mcpAdmin{t.hub.Servers, t.hub.Logins, access, b.cfg.Plugins.PackageHosts}
	ready := &readiness{
		store: f.store, driver: m.driver, install: f.data.install, disk: m.disk, hub: t.hub, audit: f.audit, tls: tls, orch: s.orch, log: b.log,
	}
	kept := openOverview(f, s.metrics, b.onClose)
	kept.Examine = findings.Open(ready.parts(b.cfg, kept.Series), b.onClose)
	o := rest.Options{
		Runnable: func(ctx context.Context, c sandbox.Caller, sk sandbox.Skill, template string) (sandbox.Runnable, error) {
			template = cmp.Or(template, b.cfg.DefaultTemplate)
			if _, ok := m.templates[template]; !ok {
				return sandbox.Runnable{}, sandbox.Errorf(sandbox.NotFound, "there is no template %.80q; there are: %s", template, strings.Join(slices.Sorted(maps.Keys(m.templates)), ", "))
			}
			if sk.Broken || sk.Digest == "" {
				return sandbox.Runnable{Template: sandbox.RunnableUnknown, Missing: []string{}, Unsure: []string{"the skill does not load"}}, nil
			}
			return prober.Of(ctx, template, sk.Digest, func() (*os.Root, error) { return s.orch.Probes.OpenSkill(c, sk.Name) }), nil
		},
		SBOM:    images.SBOM,
		Service: use,
		Administration: rest.Administration{
			MCPServers: servers, MCPLogins: servers, Secrets: secretAdmin{f.secrets, access}, Drift: driftAdmin{t.drift, t.hub},
			Policy: policyAdmin{t.policy, &replay.Replay{Engine: t.policy, Log: f.audit, Catalog: t.hub.Catalog}, access}, Audit: f.audit, AuditProof: f.audit, Overview: kept,
			Fleet: openFleet(f.data.peers, s.orch, kept.Series.Levels),
		},
		Clients: rest.Clients{
			Keys: access, OperatorTenant: b.cfg.OperatorTenant, AuthRefused: access.refusals.Add,
			AllowedHosts: append([]string{b.cfg.Listen}, b.cfg.AllowedHosts...), AllowedOrigins: b.cfg.AllowedOrigins,
		},
		Placement: routing{s.orch.Placement, s.orch.Shutdown, f.data.peers}, RemoteFiles: remote,
		Limits: s.limits, Tracer: f.tracer, Observe: s.metrics.Request, Idempotency: f.store,
		Ready: ready.checks, Metrics: s.metrics.Handler(), Version: buildinfo.Version(), Log: b.log,
	}
	if f.logins != nil {
		o.Logins = f.logins
	}
	if b.cfg.Console.Enabled {
		if o.Console, err = console.New(); err != nil {
			return nil, err
		}
	}
	if t.packs != nil {
		o.Packs = t.packs
	}
	holds := held.New()
	o.Held = holds
	if b.cfg.E2B.Enabled {
		adapter := e2b.New(e2b.Options{Service: use, DefaultTemplate: b.cfg.DefaultTemplate, Templates: b.cfg.E2B.Templates, Held: holds, Log: b.log})
		b.onClose(func() error { adapter.Close(); return nil })
		o.Adapters = append(o.Adapters, adapter.Routes())
	}
	h, err := access.handlers(o)
	if err == nil && b.cfg.LibreChat.Enabled {
		h, err = librechat.New(librechat.Options{API: h, Template: b.cfg.LibreChat.Template, Held: holds})
	}
	if err == nil && b.cfg.Jupyter.Enabled {
		h, err = jupyter.New(jupyter.Options{API: h, Template: b.cfg.Jupyter.Template, Held: holds})
	}
	if err != nil || !b.cfg.DeerFlow.Enabled {
		return h, err
	}
	return deerflow.New(deerflow.Options{API: h, Keys: derivedKeys{access}, URL: b.cfg.DeerFlow.URL, Held: holds})
}
