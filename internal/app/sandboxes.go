package app

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/skerry-sandbox/skerry/internal/approval"
	"github.com/skerry-sandbox/skerry/internal/config"
	"github.com/skerry-sandbox/skerry/internal/execution"
	"github.com/skerry-sandbox/skerry/internal/execution/run"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/instance/lifecycle"
	"github.com/skerry-sandbox/skerry/internal/instance/start"
	"github.com/skerry-sandbox/skerry/internal/limits"
	"github.com/skerry-sandbox/skerry/internal/observe/metrics"
	"github.com/skerry-sandbox/skerry/internal/orchestrator"
	"github.com/skerry-sandbox/skerry/internal/policy"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	skill "github.com/skerry-sandbox/skerry/internal/skills"
	"github.com/skerry-sandbox/skerry/internal/threadevents"
	"github.com/skerry-sandbox/skerry/internal/tools/bridge"
	"github.com/skerry-sandbox/skerry/internal/tools/call"
	"github.com/skerry-sandbox/skerry/internal/tools/codeapi"
)

// work is what runs on this server: its instances and execs, and the calls of them that wait for people.
type work struct {
	live      *instance.Map
	execs     *execution.Registry
	approvals *approval.Approvals
	feeds     *threadevents.Feeds
}

// newWork makes it: nothing runs yet.
func (b *builder) newWork(f *foundation) *work {
	feeds := &threadevents.Feeds{}
	w := &work{live: &instance.Map{}, execs: execution.NewRegistry(feeds), feeds: feeds}
	holds := run.NewHolds(run.HoldOptions{Execs: w.execs, Live: w.live, Most: b.cfg.Approvals.WaitPerExec, Log: b.log})
	b.onClose(func() error { holds.Close(); return nil })
	w.approvals = b.openApprovals(f, holds, feeds)
	return w
}

// sandboxes are the orchestrator, and what others need of that which it is built on.
type sandboxes struct {
	orch    *orchestrator.Orchestrator
	library *skill.Library
	metrics *metrics.Metrics
	limits  *limits.Gate
}

// openSandboxes opens the orchestrator on all parts before it. decider is what the policy says.
func (b *builder) openSandboxes(
	ctx context.Context, f *foundation, m *materials, x *extensionSet, w *work, t *toolSet, decider policy.Decider,
) (*sandboxes, error) {
	library, views, err := b.openSkills(ctx, f.data, x, slices.Collect(maps.Keys(m.templates)))
	if err != nil {
		return nil, err
	}
	if code := b.cfg.CodeExecution; code.AutoThreshold != nil {
		b.log.Warn("code_execution.auto_threshold counts tools and is read as tokens: write auto_threshold_tokens", "auto_threshold_tokens", code.AutoTokens())
	}
	generated, err := wrapperStore(b.cfg.CodeExecution, f.data)
	if err != nil {
		return nil, err
	}
	s := &sandboxes{library: library, metrics: m.metrics, limits: m.limits}
	snapshots, err := b.openSnapshots(ctx, f, s.metrics)
	if err != nil {
		return nil, err
	}
	guard := policy.New(policy.Options{
		Hub: t.channels.Before(t.hub.Catalog), Upstream: t.hub.Upstream, Changes: t.hub, Decider: policy.Untrusted{Decider: decider}, Approver: approver{w.approvals}, Counter: rateCounter{f.store}, Log: b.log,
		Narrowed: start.NewNarrowing(w.live, f.store).Capabilities,
	})
	records := call.NewRecorder(f.audit, s.metrics)
	s.orch, err = orchestrator.New(ctx, orchestrator.Options{
		Driver: m.driver, Store: f.store, Audit: f.audit, Skills: library, Views: views, Switches: x.files,
		Templates: m.templates, Default: b.cfg.DefaultTemplate, Daemon: m.sandboxd, Install: f.data.install,
		Tools: orchestrator.Tools{
			Hub: guard, Channels: t.channels, CodeAPI: generated, CodeSettings: codeSettings(b.cfg.CodeExecution), Commands: x.commands, Secrets: f.secrets,
			ApprovalWait: b.cfg.Approvals.WaitPerExec, ForgetApprovals: w.approvals.Forget,
			Bridge: bridge.New(bridge.Options{
				Calls:    call.NewMaker(call.MakerOptions{Guard: guard, Records: records, Admit: limits.CodeToolCall(s.limits), Log: b.log}),
				Refusals: records, Log: b.log, Tracer: f.tracer,
				Limits: bridge.Limits{Calls: b.cfg.ToolCalls, Bytes: int64(b.cfg.ToolMiB) << 20, CallTime: b.cfg.ToolTimeout},
			}),
		},
		Storage: orchestrator.Storage{
			DataDir: f.data.path, Disk: m.disk, Folders: m.folders, Snapshots: snapshots, SnapshotDelay: b.cfg.SnapshotDelay(), OnVolumes: b.cfg.OnVolumes(),
			Sealer: f.sealer, UserEnvBytes: int64(b.cfg.UserEnvMiB) << 20,
		},
		Replicas: orchestrator.Replicas{
			Peers: f.data.peers, SettleReplicas: f.data.settle, OpenAudit: f.audits.open, SweepReplica: m.isolation.sandboxes.Sweep,
		},
		Lifecycle: lifecycle.Bounds{
			PerTenant: b.cfg.MaxSandboxesPerTenant, Queue: b.cfg.QueueLength, QueueTime: b.cfg.QueueTimeout, ReclaimIdle: b.cfg.ReclaimIdle,
			MaxAge: b.cfg.MaxAge, AgeGrace: b.cfg.MaxAgeGrace, Activity: b.cfg.Activity,
		},
		Instances: orchestrator.Instances{MaxInstances: b.cfg.MaxSandboxes, Live: w.live, Execs: w.execs, Feeds: w.feeds},
		Limits:    s.limits, Metrics: s.metrics, Tracer: f.tracer, StartTime: b.cfg.StartTimeout, Log: b.log,
	})
	if err != nil {
		return nil, err
	}
	b.onClose(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), b.cfg.DrainTimeout)
		defer cancel()
		return s.orch.Close(ctx)
	})
	f.sealKept(ctx, s.orch.Specs, b.log)
	return s, nil
}

// openSkills opens the library of skills. templates are those of the server; nil: they are not known.
func (b *builder) openSkills(ctx context.Context, data *dataFolder, x *extensionSet, templates []string) (*skill.Library, *skill.Views, error) {
	if err := x.files.Problem(); err != nil {
		b.log.Error("skills: the configuration is broken", "error", err)
	}
	dir := filepath.Join(data.path, "skills")
	public, err := (&skillSources{cfg: b.cfg, templates: templates, into: filepath.Join(dir, data.ofSlot("sourced")), addresses: x.from, log: b.log}).public(ctx)
	if err != nil {
		return nil, nil, err
	}
	lib, err := skill.Open(skill.Options{
		Dir: dir, Users: filepath.Join(data.path, "tenants"), Public: public, Log: b.log, Plugins: x.plugins.Mounts,
		State: func(o sandbox.Owner) (skill.State, error) { return x.files.State(o) },
	})
	if err != nil {
		return nil, nil, err
	}
	x.changes.listen(lib.Notify)
	if data.peers.Slot() > 1 {
		dir = filepath.Join(dir, data.ofSlot("slot"))
	}
	views, err := skill.NewViews(dir)
	return lib, views, err
}

// wrapperStore opens the store of generated wrappers, emptied when they are to be made anew. Sandboxes of a
// former server keep theirs: they have links of their own to the files.
func wrapperStore(c config.CodeExecution, data *dataFolder) (*codeapi.Store, error) {
	dir := filepath.Join(data.path, "code-api")
	if c.RegenerateOnStartup && data.alone() {
		if err := os.RemoveAll(dir); err != nil {
			return nil, fmt.Errorf("code API: %w", err)
		}
	}
	return codeapi.NewStore(dir)
}

// codeSettings returns what the configuration says for a tenant.
func codeSettings(c config.CodeExecution) func(tenant string) sandbox.CodeSettings {
	return func(tenant string) sandbox.CodeSettings {
		r := c.Of(tenant)
		return sandbox.CodeSettings{
			Disabled: !r.Enabled, Mode: r.APIMode(), AutoTokens: r.AutoTokens(), Language: r.Language,
			Timeout: time.Duration(r.SandboxTimeout) * time.Second, MaxOutputChars: r.MaxOutputChars,
		}
	}
}
