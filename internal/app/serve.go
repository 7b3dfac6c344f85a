package app

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/api/auth"
	"github.com/skerry-sandbox/skerry/internal/api/deerflow"
	"github.com/skerry-sandbox/skerry/internal/api/e2b"
	"github.com/skerry-sandbox/skerry/internal/api/rest"
	"github.com/skerry-sandbox/skerry/internal/approval"
	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/config"
	"github.com/skerry-sandbox/skerry/internal/config/extensions"
	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/driver/containerd"
	"github.com/skerry-sandbox/skerry/internal/driver/docker"
	"github.com/skerry-sandbox/skerry/internal/driver/oci"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/instance/lifecycle"
	"github.com/skerry-sandbox/skerry/internal/limits"
	"github.com/skerry-sandbox/skerry/internal/observe/metrics"
	"github.com/skerry-sandbox/skerry/internal/observe/tracing"
	"github.com/skerry-sandbox/skerry/internal/orchestrator"
	"github.com/skerry-sandbox/skerry/internal/ownership/peer"
	"github.com/skerry-sandbox/skerry/internal/platform/buildinfo"
	"github.com/skerry-sandbox/skerry/internal/platform/tlsfiles"
	"github.com/skerry-sandbox/skerry/internal/plugins"
	"github.com/skerry-sandbox/skerry/internal/policy"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/secrets"
	"github.com/skerry-sandbox/skerry/internal/service"
	skill "github.com/skerry-sandbox/skerry/internal/skills"
	"github.com/skerry-sandbox/skerry/internal/skills/runnable"
	"github.com/skerry-sandbox/skerry/internal/store"
	"github.com/skerry-sandbox/skerry/internal/template"
	"github.com/skerry-sandbox/skerry/internal/tools/bridge"
	"github.com/skerry-sandbox/skerry/internal/tools/call"
	"github.com/skerry-sandbox/skerry/internal/tools/codeapi"
	"github.com/skerry-sandbox/skerry/internal/tools/drift"
	"github.com/skerry-sandbox/skerry/internal/tools/hub"
	"github.com/skerry-sandbox/skerry/internal/workspace/quota"
)

// Deadlines of the server as a process.
const (
	// startTimeout bounds opening the parts; the longest of it is importing the images of templates, once, and
	// adopting the sandboxes of a former server.
	startTimeout = 5 * time.Minute
	// HeaderTimeout is how long a client may take to send its request's head; idleTimeout how long a
	// connection without a request is kept. Bodies and answers are bounded by the handlers.
	HeaderTimeout = 10 * time.Second
	IdleTimeout   = 2 * time.Minute
)

// App is a server, or some parts of one, in the order in which they are opened.
type App struct {
	cfg     config.Config
	log     *slog.Logger
	install string
	closers []func() error

	tls    *tlsfiles.Server // nil: http
	peers  *peer.Peers      // nil in what needs no server
	store  *store.Store
	audit  *audit.Log
	signer auditSigner
	keys   *auth.Keys
	hub    *hub.Hub
	policy *policy.Engine
	driver driver.Driver
	orch   *orchestrator.Orchestrator

	approvals *approval.Approvals

	metrics *metrics.Metrics
	limits  *limits.Gate
	tracer  *tracing.Tracer // nil: nothing is traced
	traffic traffic
	halt    *time.Timer // ends the process when it does not stop; nil before it is told to
	api     http.Handler

	endStart context.CancelFunc // ends the context of New

	sealer  *secrets.Keys
	secrets *secrets.Service
	drift   *drift.Service

	extensions *extensions.Files
	plugins    *plugins.Service
	skills     *skill.Library
	templates  map[string]instance.Template
	sandboxd   string // host path
	isolation  *isolation
	disk       *quota.Volume
}

// New builds a server of its configuration: each part gets the parts before it. The caller calls Run once, and Close.
func New(ctx context.Context, cfg config.Config, log *slog.Logger) (*App, error) {
	if err := cfg.Check(); err != nil {
		return nil, fmt.Errorf("configuration:\n%w", err)
	}
	if os.Geteuid() != 0 {
		return nil, errors.New("the server gives every workspace a uid of its own and so must run as root")
	}
	if err := noCoreFiles(); err != nil {
		return nil, err
	}
	p := &App{cfg: cfg, log: log}
	startCtx, cancel := context.WithTimeout(ctx, startTimeout)
	p.endStart = cancel
	err := p.open(startCtx,
		p.openTLS,
		p.openData,
		p.openTracing,
		p.openState,
		p.openSecrets,
		p.openApprovals,
		p.openDriver,
		p.openDisk,
		p.checkUIDs,
		p.openTemplates,
		p.openIsolation,
		p.openPlugins,
		p.openTools,
		p.openPolicy,
		p.openOrchestrator,
		func(context.Context) (err error) {
			p.api, err = p.handler(ctx)
			return err
		},
	)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// noCoreFiles switches off core files: the memory of this process, and of the MCP servers that it starts, has secrets.
// The highest limit stays: a runtime sets limits of its own in sandboxes, and could not raise it again.
func noCoreFiles() error {
	var core unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &core); err != nil {
		return fmt.Errorf("core files: %w", err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Max: core.Max}); err != nil {
		return fmt.Errorf("core files: %w", err)
	}
	return nil
}

// Run serves until ctx ends, and then drains. It calls ready with the address when the server listens.
func (p *App) Run(ctx context.Context, ready func(addr string)) error {
	return p.listen(ctx, p.api, ready)
}

// Close closes the parts, last first.
func (p *App) Close() error {
	if p.endStart != nil { // nil in a server that New did not build
		p.endStart()
	}
	var errs []error
	for i := len(p.closers) - 1; i >= 0; i-- {
		errs = append(errs, p.closers[i]())
	}
	p.closers = nil
	if p.halt != nil {
		p.halt.Stop()
	}
	return errors.Join(errs...)
}

func (p *App) onClose(f func() error) { p.closers = append(p.closers, f) }

// openData makes the data folder ours: with a state of its own no other server may use it at the same time.
func (p *App) openData(ctx context.Context) error {
	if err := os.MkdirAll(p.cfg.Data, 0o711); err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	// Sandboxes and MCP servers pass through it with uids of their own; only root lists it.
	if err := os.Chmod(p.cfg.Data, 0o711); err != nil { //nolint:gosec // see above
		return fmt.Errorf("data folder: %w", err)
	}
	lock, err := LockData(p.cfg.Data, p.cfg.Redis != "")
	if err != nil {
		return err
	}
	p.onClose(lock.Close)
	if err := store.CheckFolder(p.cfg.Data); err != nil {
		return err
	}
	if err := p.openReplica(ctx); err != nil {
		return err
	}
	p.install, err = installID(filepath.Join(p.cfg.Data, "install-id"))
	return err
}

// installID names the data folder; sandboxes bear it, so that a server touches only its own.
func installID(file string) (string, error) {
	raw, err := os.ReadFile(file)
	if err == nil && len(strings.TrimSpace(string(raw))) == 16 {
		return strings.TrimSpace(string(raw)), nil
	}
	if err == nil {
		return "", fmt.Errorf("data folder: %s does not hold an id", filepath.Base(file))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("data folder: %w", err)
	}
	var id [8]byte
	rand.Read(id[:]) //nolint:errcheck // never fails
	text := hex.EncodeToString(id[:])
	fresh := file + "." + text
	if err := os.WriteFile(fresh, []byte(text+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("data folder: %w", err)
	}
	defer os.Remove(fresh) //nolint:errcheck // it has another name by then
	if err := os.Link(fresh, file); errors.Is(err, fs.ErrExist) {
		return installID(file) // of another server, which begins at the same time
	} else if err != nil {
		return "", fmt.Errorf("data folder: %w", err)
	}
	return text, nil
}

func (p *App) openState(ctx context.Context) (err error) {
	if p.store, err = OpenStore(ctx, p.cfg, p.peers, p.log); err != nil {
		return err
	}
	p.onClose(p.store.Close)
	if err := p.awaitStore(ctx); err != nil {
		return err
	}
	if err := p.openSigner(ctx); err != nil {
		return err
	}
	if p.audit, err = p.openAudit(p.peers.Slot()); err != nil {
		return err
	}
	p.onClose(p.audit.Close)
	p.audit.Index()
	o := auth.Options{}
	if len(p.cfg.OIDC) > 0 {
		issuers, err := openIssuers(p.cfg.OIDC, p.log)
		if err != nil {
			return err
		}
		p.onClose(issuers.Close)
		o.Tokens = issuers
	}
	p.keys = auth.New(p.store, o)
	return nil
}

// storeWait is how long a start waits for Redis. Where a cluster starts both, or opens a new pod's network a moment after it runs, either may
// be late.
const storeWait = 20 * time.Second

// awaitStore waits until the state answers.
func (p *App) awaitStore(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, storeWait)
	defer cancel()
	for tries := 0; ; tries++ {
		err := p.store.Ping(ctx)
		if err == nil {
			return p.store.CheckFormat(ctx)
		}
		if tries == 0 {
			p.log.Warn("the state store does not answer; waiting for it", "at_most", storeWait, "error", err)
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// OpenStore opens the state. peers is nil in what is no server.
func OpenStore(ctx context.Context, cfg config.Config, peers *peer.Peers, log *slog.Logger) (*store.Store, error) {
	o := store.Options{
		URL: cfg.Redis, Journal: filepath.Join(cfg.Data, "state.jsonl"), Log: log,
		HighestUID: func() (int, error) { return highestUID(cfg.Data) },
	}
	if peers != nil { // a server, which has looked at its folder, and waits for Redis
		o.Replica, o.Alive = peers.ID(), peers.Alive
		return store.Open(ctx, o)
	}
	if cfg.Redis == "" {
		if err := store.CheckFolder(cfg.Data); err != nil {
			return nil, err
		}
	}
	s, err := store.Open(ctx, o)
	if err != nil {
		return nil, err
	}
	if err := s.CheckFormat(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (p *App) openTools(ctx context.Context) (err error) {
	p.drift = drift.New(drift.Options{Store: p.store, Audit: p.audit, Tenant: LocalOwner.Tenant, Log: p.log})
	p.hub, err = hub.Open(hub.Options{Pins: p.drift, Quarantine: p.cfg.ToolDrift == "quarantine", ConfigPath: p.cfg.Extensions, StateDir: filepath.Join(p.cfg.Data, "mcp"), Version: buildinfo.Version(), Log: p.log, Tracer: p.tracer, LookupEnv: p.lookupEnv, Secrets: p.secrets, Sealer: p.sealer, Isolation: p.isolation, UserServers: p.userServers()})
	if err != nil {
		return err
	}
	p.onClose(p.hub.Close)
	if err := p.hub.ConfigError(); err != nil {
		p.log.Error("MCP servers not configured", "error", err)
	}
	p.sealLogins(ctx)
	return nil
}

// openDriver opens the configured driver, or the best available one.
func (p *App) openDriver(ctx context.Context) (err error) {
	switch p.cfg.Driver {
	case "containerd":
		return p.openContainerd(ctx)
	case "kubernetes":
		return p.openKubernetes(ctx)
	}
	if p.cfg.Driver != "oci" {
		d, err := docker.New(docker.Options{Host: "unix://" + p.cfg.Docker.Address, Root: filepath.Join(p.cfg.Data, "docker"), Log: p.log})
		if err == nil {
			if _, err = d.Capabilities(ctx); err == nil {
				p.driver = d
				p.onClose(d.Close)
				return nil
			}
			err = errors.Join(err, d.Close())
		}
		if p.cfg.Driver == "docker" {
			return fmt.Errorf("driver docker: %w", err)
		}
		p.log.Info("no Docker daemon answers; using the oci driver")
	}
	d, err := oci.New(oci.Options{Root: filepath.Join(p.cfg.Data, "oci"), Log: p.log})
	if err != nil {
		return fmt.Errorf("driver oci: %w", err)
	}
	p.driver = d
	p.onClose(d.Close)
	return nil
}

func (p *App) openContainerd(ctx context.Context) error {
	d, err := containerd.New(containerd.Options{
		Address: p.cfg.Containerd.Address, Namespace: p.cfg.Containerd.Namespace, Pull: p.cfg.Containerd.Pull,
		Root: filepath.Join(p.cfg.Data, "containerd"), Log: p.log,
	})
	if err != nil {
		return err // says which driver
	}
	p.driver = d
	p.onClose(d.Close)
	if _, err := d.Capabilities(ctx); err != nil {
		return fmt.Errorf("driver containerd at %s: %w", p.cfg.Containerd.Address, err)
	}
	return nil
}

func (p *App) openOrchestrator(ctx context.Context) error {
	skills, views, err := p.openSkills(ctx)
	if err != nil {
		return err
	}
	wrappers, err := p.wrappers()
	if err != nil {
		return err
	}
	p.metrics = metrics.New(buildinfo.Version())
	p.openLimits()
	snapshots, err := p.openSnapshots(ctx)
	if err != nil {
		return err
	}
	var decider policy.Decider = policy.AllowAll{}
	if p.policy != nil { // doctor looks at templates without one
		decider = p.policy
	}
	guard := policy.New(policy.Options{
		Hub: p.hub.Catalog, Upstream: p.hub.Upstream, Changes: p.hub, Decider: policy.Untrusted{Decider: decider}, Approver: approver{p.approvals}, Counter: rateCounter{p.store}, Log: p.log,
		Narrowed: func(ctx context.Context, t sandbox.Thread) ([]string, error) {
			return p.orch.Narrowing.Capabilities(ctx, t)
		},
	})
	records := call.NewRecorder(p.audit, p.metrics)
	p.orch, err = orchestrator.New(ctx, orchestrator.Options{
		Driver: p.driver, Store: p.store, Audit: p.audit, Skills: skills, Views: views, Switches: p.extensions,
		Templates: p.templates, Default: p.cfg.DefaultTemplate, Daemon: p.sandboxd, Install: p.install,
		Tools: orchestrator.Tools{
			Hub: guard, CodeAPI: wrappers, CodeSettings: p.codeSettings, Commands: p.pluginCommands, Secrets: p.secrets,
			ApprovalWait: p.cfg.Approvals.WaitPerExec, ForgetApprovals: p.approvals.Forget,
			Bridge: bridge.New(bridge.Options{
				Calls:    call.NewMaker(call.MakerOptions{Guard: guard, Records: records, Admit: p.limits.ToolCall, Log: p.log}),
				Refusals: records, Log: p.log,
				// The bridge serves before the orchestrator is whole, but there is no exec before that.
				Keep: func(ctx context.Context, t sandbox.Thread, name string, result json.RawMessage) (sandbox.ResultFile, error) {
					return p.orch.Files.KeepResult(ctx, t, name, result)
				},
				Tracer: p.tracer,
				Limits: bridge.Limits{Calls: p.cfg.ToolCalls, Bytes: int64(p.cfg.ToolMiB) << 20, CallTime: p.cfg.ToolTimeout},
			}),
		},
		Storage: orchestrator.Storage{
			DataDir: p.cfg.Data, Disk: p.disk, Snapshots: snapshots, SnapshotDelay: p.cfg.KeepDelay(), OnVolumes: p.cfg.OnVolumes(), Sealer: p.sealer,
		},
		Replicas: orchestrator.Replicas{
			Peers: p.peers, SettleReplicas: p.settleReplicas, OpenAudit: p.openAudit, SweepReplica: p.isolation.sandboxes.Sweep,
		},
		Lifecycle: lifecycle.Bounds{
			PerTenant: p.cfg.MaxSandboxesPerTenant, Queue: p.cfg.QueueLength, QueueTime: p.cfg.QueueTimeout, ReclaimIdle: p.cfg.ReclaimIdle,
			MaxAge: p.cfg.MaxAge, AgeGrace: p.cfg.MaxAgeGrace, Activity: p.cfg.Activity,
		},
		Limits: p.limits, Metrics: p.metrics, Tracer: p.tracer, MaxInstances: p.cfg.MaxSandboxes, StartTime: p.cfg.StartTimeout, Log: p.log,
	})
	if err != nil {
		return err
	}
	p.sealKept(ctx)
	p.onClose(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), p.cfg.DrainTimeout)
		defer cancel()
		return p.orch.Close(ctx)
	})
	return nil
}

// openSkills opens the library of skills.
func (p *App) openSkills(ctx context.Context) (*skill.Library, *skill.Views, error) {
	if err := p.extensions.Problem(); err != nil {
		p.log.Error("skills: the configuration is broken", "error", err)
	}
	dir := filepath.Join(p.cfg.Data, "skills")
	public, err := p.publicSkills(ctx)
	if err != nil {
		return nil, nil, err
	}
	o := skill.Options{
		Dir: dir, Users: filepath.Join(p.cfg.Data, "tenants"), Public: public, Log: p.log,
		State: func(o sandbox.Owner) (skill.State, error) { return p.extensions.State(o) },
	}
	if p.plugins != nil { // doctor may look at skills alone
		o.Plugins = p.plugins.Mounts
	}
	lib, err := skill.Open(o)
	if err != nil {
		return nil, nil, err
	}
	p.skills = lib
	if p.peers != nil && p.peers.Slot() > 1 {
		dir = filepath.Join(dir, p.ofSlot("slot"))
	}
	views, err := skill.NewViews(dir)
	return lib, views, err
}

// wrappers opens the store of generated wrappers, emptied when they are to be made anew. Sandboxes of a
// former server keep theirs: they have links of their own to the files.
func (p *App) wrappers() (*codeapi.Store, error) {
	dir := filepath.Join(p.cfg.Data, "code-api")
	if p.cfg.CodeExecution.RegenerateOnStartup && p.onlyServer() {
		if err := os.RemoveAll(dir); err != nil {
			return nil, fmt.Errorf("code API: %w", err)
		}
	}
	return codeapi.NewStore(dir)
}

// codeSettings are what the configuration says for a tenant.
func (p *App) codeSettings(tenant string) sandbox.CodeSettings {
	r := p.cfg.CodeExecution.Of(tenant)
	return sandbox.CodeSettings{
		Disabled: !r.Enabled, Mode: r.APIMode(), AutoThreshold: r.AutoThreshold, Language: r.Language,
		Timeout: time.Duration(r.SandboxTimeout) * time.Second, MaxOutputChars: r.MaxOutputChars,
	}
}

// openTemplates finds what sandboxes are made of.
func (p *App) openTemplates(ctx context.Context) (err error) {
	if p.templates, err = p.readTemplates(ctx); err != nil {
		return err
	}
	p.sandboxd, err = p.daemon()
	return err
}

// readTemplates reads the templates and keeps those whose image fits the driver.
func (p *App) readTemplates(ctx context.Context) (map[string]instance.Template, error) {
	list, err := p.templateFiles()
	if err != nil {
		return nil, err
	}
	caps, err := p.driver.Capabilities(ctx)
	if err != nil {
		return nil, err
	}
	all := map[string]instance.Template{}
	for _, t := range list {
		image, ok := t.ImageFor(imagesOf(p.driver, caps), p.cfg.Images)
		if !ok {
			p.log.Warn("template left out: it has no image for this driver", "template", t.Name, "driver", caps.Name)
			continue
		}
		if _, err := os.Stat(image); caps.HostRootfs && image != "" && err != nil {
			p.log.Warn("the template's image is not unpacked here", "template", t.Name, "missing", image)
			if t.Image.OCI == baseImage { // what is in it, most hosts have
				p.log.Warn("using the host's own /usr", "template", t.Name)
				image = ""
			}
		}
		made := instance.Template{Template: t.Vocabulary(), Image: image}
		if store, ok := p.driver.(driver.ImageStore); ok {
			if made.Prepare, err = p.importing(ctx, store, t, image); err != nil {
				return nil, fmt.Errorf("template %s: %w", t.Name, err)
			}
		}
		all[t.Name] = made
	}
	if _, ok := all[p.cfg.DefaultTemplate]; !ok {
		return nil, fmt.Errorf("default_template: there is no template %q for the driver %s", p.cfg.DefaultTemplate, caps.Name)
	}
	return all, nil
}

// imagesOf is where a driver has its images.
func imagesOf(d driver.Driver, caps driver.Capabilities) template.Home {
	_, remote := d.(driver.Remote)
	switch {
	case remote:
		return template.InCluster
	case caps.HostRootfs:
		return template.InFolder
	}
	return template.InEngine
}

// daemon finds skerry-sandboxd: where the configuration says, else beside this program. Sandboxes on other machines have
// theirs from an image.
func (p *App) daemon() (string, error) {
	path := p.cfg.Sandboxd
	if _, remote := p.driver.(driver.Remote); remote {
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
	return path, nil
}

// ready is the state of what the server depends on.
func (p *App) ready(ctx context.Context) []rest.Check {
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
		checks = append(checks, p.tlsCheck())
	}
	checks = append(append(checks, p.sinkChecks()...), p.archiveCheck()...)
	if p.orch.Shutdown.Draining() {
		checks = append(checks, rest.Check{Name: "drain", Detail: "the server is stopping"})
	}
	return checks
}

func (p *App) handler(ctx context.Context) (http.Handler, error) {
	access := &access{App: p}
	if err := access.open(ctx); err != nil {
		return nil, err
	}
	p.onClose(access.close)
	installs, err := p.skillInstalls()
	if err != nil {
		return nil, err
	}
	prober := runnable.NewProber(p.orch.Probes, p.log)
	p.onClose(func() error { prober.Close(); return nil })
	_, remote := p.driver.(driver.Remote)
	use := service.Service{
		Threads: p.orch.Threads, Sandboxes: p.orch.Sandboxes, Runs: p.orch.Runs, Execs: p.orch.Execs, Terminals: p.orch.Execs, Contexts: p.orch.Contexts, Files: p.orch.Files,
		Tools: p.orch.Calls, Upstream: p.orch.Calls, Prompts: p.orch.Prompts, Skills: p.orch.Skills, ThreadSkills: p.orch.Skills.Threads, SkillInstalls: installs,
		Approvals: p.approvals, Plugins: pluginUse{p.plugins, p.orch}, Marketplaces: p.plugins,
	}
	servers := mcpAdmin{p.hub.Servers, p.hub.Logins, access}
	o := rest.Options{
		Runnable: func(ctx context.Context, c sandbox.Caller, sk sandbox.Skill) sandbox.Runnable {
			if sk.Broken || sk.Digest == "" {
				return sandbox.Runnable{Template: sandbox.RunnableUnknown, Missing: []string{}, Unsure: []string{"the skill does not load"}}
			}
			return prober.Of(ctx, p.cfg.DefaultTemplate, sk.Digest, func() (*os.Root, error) { return p.orch.Probes.OpenSkill(c, sk.Name) })
		},
		Service: use,
		Administration: rest.Administration{
			MCPServers: servers, MCPLogins: servers, Secrets: secretAdmin{p.secrets, access}, Drift: driftAdmin{p.drift, p.hub}, Policy: policyAdmin{p.policy, access},
			Audit: p.audit, AuditProof: p.audit,
		},
		Clients: rest.Clients{
			Keys: access, OperatorTenant: p.cfg.OperatorTenant, AuthRefused: access.refusals.Add,
			AllowedHosts: append([]string{p.cfg.Listen}, p.cfg.AllowedHosts...), AllowedOrigins: p.cfg.AllowedOrigins,
		},
		Placement: routing{p.orch.Placement, p.orch.Shutdown, p.peers}, RemoteFiles: remote,
		Limits: p.limits, Tracer: p.tracer, Observe: p.metrics.Request, Idempotency: p.store,
		Ready: p.ready, Metrics: p.metrics.Handler(), Version: buildinfo.Version(), Log: p.log,
	}
	if p.cfg.E2B {
		adapter := e2b.New(e2b.Options{Service: use, DefaultTemplate: p.cfg.DefaultTemplate, Log: p.log})
		p.onClose(func() error { adapter.Close(); return nil })
		o.Adapters = append(o.Adapters, adapter.Routes())
	}
	h, err := access.handlers(o)
	if err != nil || !p.cfg.DeerFlow.Enabled {
		return h, err
	}
	return deerflow.New(deerflow.Options{API: h, Keys: derivedKeys{access}, URL: p.cfg.DeerFlow.URL})
}
