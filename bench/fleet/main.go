// Command fleet is a server whose sandboxes are played, for measuring what a server itself costs: the real HTTP API,
// orchestrator, state, audit log and links, on the memory driver. What plays sandboxd for all of them is a process of its
// own, so that the server's memory and time are the server's alone. Nothing is isolated: it serves on loopback only.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/skerry-sandbox/skerry/internal/api/rest"
	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/config/extensions"
	"github.com/skerry-sandbox/skerry/internal/driver/memory"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/instance/lifecycle"
	telemetry "github.com/skerry-sandbox/skerry/internal/observe/metrics"
	"github.com/skerry-sandbox/skerry/internal/orchestrator"
	"github.com/skerry-sandbox/skerry/internal/ownership/peer"
	"github.com/skerry-sandbox/skerry/internal/ownership/replica"
	"github.com/skerry-sandbox/skerry/internal/policy"
	"github.com/skerry-sandbox/skerry/internal/prompt"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/service"
	skill "github.com/skerry-sandbox/skerry/internal/skills"
	"github.com/skerry-sandbox/skerry/internal/store"
	"github.com/skerry-sandbox/skerry/internal/tools/bridge"
	"github.com/skerry-sandbox/skerry/internal/tools/call"
	"github.com/skerry-sandbox/skerry/internal/tools/codeapi"
	mcphub "github.com/skerry-sandbox/skerry/internal/tools/hub"
)

// playArg makes this program play the sandboxes.
const playArg = "play"

// local is who calls: all threads are of one user, the worst case for lists.
var local = sandbox.Owner{Tenant: "default", User: "local"}

func main() {
	if len(os.Args) > 1 && os.Args[1] == playArg {
		play(os.Stdin)
		return
	}
	data := flag.String("data", "", "data folder")
	url := flag.String("redis", "", "URL of Redis; embedded without one")
	seed := flag.Int("seed", 0, "make so many hibernated threads, and end")
	most := flag.Int("max", 100_000, "most sandboxes")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, *data, *url, *seed, *most); err != nil {
		fmt.Fprintln(os.Stderr, "fleet:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, data, url string, seed, most int) (err error) {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	if err := os.MkdirAll(filepath.Join(data, "run"), 0o711); err != nil {
		return err
	}
	st, err := store.Open(ctx, store.Options{URL: url, Journal: filepath.Join(data, "state.jsonl"), Log: log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	if seed > 0 {
		return hibernated(ctx, st, data, seed)
	}
	r, err := replica.Join(filepath.Join(data, "run", "replicas"))
	if err != nil {
		return err
	}
	defer r.Leave() //nolint:errcheck // the process ends
	peers := peer.New(r, nil)
	logged := audit.Options{Dir: filepath.Join(data, "audit"), Log: log}
	if !st.Embedded() {
		logged.Redis = st.Redis()
	}
	records, err := audit.Open(logged)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, records.Close()) }()
	records.Index()
	daemons, err := startPlayers()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, daemons.end()) }()
	orch, hub, metrics, err := openOrchestrator(ctx, data, st, records, peers, daemons, most, log)
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		err = errors.Join(err, orch.Close(closing), hub.Close())
	}()
	api, err := rest.New(rest.Options{
		Service: service.Service{
			Threads: orch.Threads, Sandboxes: orch.Sandboxes, Runs: orch.Runs, Execs: orch.Execs, Terminals: orch.Execs, Contexts: orch.Contexts, Files: orchestrator.Files{Files: orch.Files, Roots: orch.Roots},
			Tools: orch.Calls, Upstream: orch.Calls, Prompts: orch.Prompts, Skills: orch.Skills, ThreadSkills: orch.ThreadSkills, SkillChannels: orch.ThreadSkills,
		},
		Administration: rest.Administration{MCPServers: mcpServers{hub.Servers}, MCPLogins: hub.Logins, Audit: records},
		Clients:        rest.Clients{Anonymous: &local},
		Idempotency:    st, Metrics: metrics.Handler(), Version: "fleet", Log: log,
	})
	if err != nil {
		return err
	}
	return serve(ctx, api)
}

func openOrchestrator(ctx context.Context, data string, st *store.Store, records *audit.Log, peers *peer.Peers, daemons *players, most int, log *slog.Logger) (*orchestrator.Orchestrator, *mcphub.Hub, *telemetry.Metrics, error) {
	config := filepath.Join(data, "extensions_config.json")
	switches, err := extensions.New(config)
	if err != nil {
		return nil, nil, nil, err
	}
	skills, err := skill.Open(skill.Options{
		Dir: filepath.Join(data, "skills"), Users: filepath.Join(data, "tenants"), Log: log,
		State: func(o sandbox.Owner) (skill.State, error) { return switches.State(o) },
	})
	if err != nil {
		return nil, nil, nil, err
	}
	views, err := skill.NewViews(filepath.Join(data, "skills"))
	if err != nil {
		return nil, nil, nil, err
	}
	wrappers, err := codeapi.NewStore(filepath.Join(data, "code-api"))
	if err != nil {
		return nil, nil, nil, err
	}
	hub, err := mcphub.Open(mcphub.Options{ConfigPath: config, Log: log, LookupEnv: os.LookupEnv, Version: "fleet"})
	if err != nil {
		return nil, nil, nil, err
	}
	metrics := telemetry.New("fleet")
	limits := sandbox.Limits{MemoryBytes: 1 << 26, CPUMillis: 1000, PIDs: 64, OpenFiles: 64, FileBytes: 1 << 20, TmpBytes: 1 << 20, DiskBytes: 1 << 20}
	guard := policy.New(policy.Options{Hub: hub.Catalog, Upstream: hub.Upstream, Changes: hub, Log: log})
	calls := call.NewRecorder(records, metrics)
	orch, err := orchestrator.New(ctx, orchestrator.Options{
		Storage:  orchestrator.Storage{DataDir: data},
		Replicas: orchestrator.Replicas{Peers: peers},
		Tools:    orchestrator.Tools{Hub: guard, CodeAPI: wrappers, Bridge: bridge.New(bridge.Options{Calls: call.NewMaker(call.MakerOptions{Guard: guard, Records: calls, Log: log}), Refusals: calls, Log: log}), CodeSettings: func(string) sandbox.CodeSettings { return sandbox.DefaultCodeSettings() }, Commands: func(sandbox.Owner) ([]prompt.Command, error) { return nil, nil }},
		Driver:   played{memory.New(memory.Options{Log: log}), daemons}, Store: st, Audit: records, Skills: skills, Views: views, Switches: switches,
		Templates: map[string]instance.Template{"base": {Template: sandbox.Template{Name: "base", Runtime: "runc", Limits: limits, IdleSeconds: 3600}}},
		Default:   "base", Daemon: "/bin/true", Install: "fleet", Instances: orchestrator.Instances{MaxInstances: most}, StartTime: time.Minute, Metrics: metrics, Log: log,
		Lifecycle: lifecycle.Bounds{Queue: most, QueueTime: time.Minute},
	})
	return orch, hub, metrics, err
}

// serve serves the API, and at /memory what the server needs.
func serve(ctx context.Context, api http.Handler) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/", api)
	mux.HandleFunc("GET /memory", func(w http.ResponseWriter, _ *http.Request) {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		_ = json.NewEncoder(w).Encode(map[string]uint64{"heap": m.HeapAlloc, "stacks": m.StackInuse, "goroutines": uint64(runtime.NumGoroutine())}) //nolint:errcheck,gosec // the client sees it
	})
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	fmt.Printf("serving on http://%s\n", l.Addr())
	go func() {
		<-ctx.Done()
		_ = srv.Close()
	}()
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// seeders is how many threads are made side by side.
const seeders = 32

// hibernated makes threads as they are when their sandbox was put away: a record, a workspace, and what the
// sandbox was.
func hibernated(ctx context.Context, st *store.Store, data string, n int) error {
	kept := filepath.Join(data, "sandboxes", local.Tenant, local.User)
	threads := filepath.Join(data, "tenants", local.Tenant, "users", local.User, "threads")
	if err := errors.Join(os.MkdirAll(kept, 0o700), os.MkdirAll(threads, 0o711)); err != nil {
		return err
	}
	var work errgroup.Group
	work.SetLimit(seeders)
	for i := range n {
		work.Go(func() error {
			t := sandbox.Thread{Owner: local, ID: fmt.Sprintf("asleep-%06d", i)}
			uid, err := st.NextUID(ctx, 1_000_000)
			if err != nil {
				return err
			}
			now := time.Now().UTC()
			info := sandbox.Info{ID: sandbox.NewID(), State: sandbox.Hibernated, Template: "base", Driver: memory.Name, Runtime: "runc", CreatedAt: now}
			text, err := json.Marshal(map[string]any{"template": "base", "hibernated": info})
			if err != nil {
				return err
			}
			workspace := filepath.Join(threads, t.ID, "workspace")
			_, err = st.ChangeThread(ctx, t, func(info *sandbox.ThreadInfo, _ bool) error {
				info.Labels, info.CreatedAt, info.LastActiveAt = map[string]string{}, now, now
				return nil
			})
			return errors.Join(err, st.TouchThread(ctx, t, now),
				os.WriteFile(filepath.Join(kept, t.ID+".json"), text, 0o600), os.MkdirAll(workspace, 0o700), os.Lchown(workspace, uid, uid))
		})
	}
	return work.Wait()
}

// played is the memory driver with sandboxes that another process plays.
type played struct {
	*memory.Driver
	daemons *players
}

// Create implements driver.Driver.
func (p played) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Instance, error) {
	inst, err := p.Driver.Create(ctx, spec)
	if err == nil {
		err = p.daemons.start(spec)
	}
	return inst, err
}

// players is the process that plays the sandboxes.
type players struct {
	cmd *exec.Cmd
	to  io.WriteCloser
}

func startPlayers() (*players, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &players{cmd: exec.Command(self, playArg)} //nolint:gosec // this program
	p.cmd.Stderr = os.Stderr
	if p.to, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	return p, p.cmd.Start()
}

// start has a sandbox dial the server.
func (p *players) start(spec sandbox.Spec) error {
	for _, m := range spec.Mounts {
		if m.Target == sandbox.RunDir {
			_, err := fmt.Fprintln(p.to, filepath.Join(m.Source, filepath.Base(sandbox.ControlSocket)))
			return err
		}
	}
	return errors.New("a sandbox without a socket")
}

func (p *players) end() error { return errors.Join(p.to.Close(), p.cmd.Wait()) }

// mcpServers are the hub's servers, where nothing is installed.
type mcpServers struct{ *mcphub.Servers }

// InstallServer installs from no host.
func (s mcpServers) InstallServer(ctx context.Context, c sandbox.Caller, name string) (int, error) {
	return s.Servers.InstallServer(ctx, c, name, nil)
}
