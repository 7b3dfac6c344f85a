package examination

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/skerry-sandbox/skerry/internal/app"
	"github.com/skerry-sandbox/skerry/internal/app/findings"
	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/observe/doctor"
	"github.com/skerry-sandbox/skerry/internal/ownership/replica"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store"
	"github.com/skerry-sandbox/skerry/internal/template"
)

// templateChecks look at the driver, and at what sandboxes are made of.
type templateChecks struct{ *examination }

// Deadlines of checks. Checks that wait for other programs have longer ones than these.
const (
	hostWait     = 10 * time.Second // files and system calls; a network disk may hang
	stateWait    = 15 * time.Second
	driverWait   = 60 * time.Second // probes of two runtimes
	templateWait = 5 * time.Minute  // a start may take start_timeout, 60 s, and each template has smoke tests
	mcpWait      = 20 * time.Second // of one MCP server
	skillWait    = 88 * time.Second
)

// configCheck looks at the configuration as a whole.
func (e *examination) configCheck() doctor.Check {
	return doctor.Check{Name: "configuration", Within: hostWait, Run: func(_ context.Context, r *doctor.Report) {
		const fix = "mend the file of --config, the SKERRY_… variable or the flag that it names"
		if e.loaded != nil {
			r.Problem("", fix, "cannot be read: %s", e.loaded)
			return
		}
		if e.problems != nil {
			for line := range strings.Lines(e.problems.Error()) {
				r.Problem("", fix, "%s", strings.TrimSpace(line))
			}
			return
		}
		if os.Geteuid() != 0 {
			r.Problem("user", "run sudo skerry doctor, and the server as root", "not root, but uid %d: the server gives every workspace a uid of its own. Drivers, templates and skills are not looked at", os.Geteuid())
		}
		e.listener(r)
	}}
}

// listener looks whether the server could listen.
func (e *examination) listener(r *doctor.Report) {
	l, err := net.Listen("tcp", e.cfg.Listen)
	switch {
	case err == nil:
		_ = l.Close()
		r.OK("", "is right; the server would listen on %s", e.cfg.Listen)
	case errors.Is(err, syscall.EADDRINUSE) && running(e.cfg.Data):
		r.OK("", "is right; a server runs on %s", e.cfg.Listen)
	case errors.Is(err, syscall.EADDRINUSE):
		r.Problem("listen", "end that program, or choose another address with --listen", "another program, or a server with another data folder, listens on %s", e.cfg.Listen)
	default:
		r.Problem("listen", "choose an address of this machine with --listen", "nothing can listen on %s: %s", e.cfg.Listen, err)
	}
}

// running reports whether a server uses a data folder.
func running(data string) bool {
	living, err := replica.List(app.ReplicasDir(data))
	return err == nil && len(living) > 0
}

// checks are all checks, in the order in which they are shown.
func (e *examination) checks() []doctor.Check {
	later := doctor.Line{State: doctor.Problem, Fix: "look at the lines before: something that is needed here hangs"}
	list := []doctor.Check{
		e.configCheck(),
		{Name: "kernel", Within: hostWait, Run: doctor.Kernel},
		{Name: "cgroups", Within: hostWait, Run: doctor.Cgroups},
		{Name: "clock", Within: hostWait, Run: doctor.Clock},
		{Name: "data folder", Within: hostWait, Run: e.dataFolder, OnTimeout: doctor.Line{Fix: "the disk of the data folder hangs: mend it, or choose another one with --data"}},
		{Name: "disk quota", Within: hostWait, Run: e.diskQuota, OnTimeout: doctor.Line{State: doctor.Warning}},
		{Name: "state", Within: stateWait, Run: e.state},
		{Name: "workspaces", Within: stateWait, Run: e.workspaces, OnTimeout: doctor.Line{State: doctor.Problem, Fix: "look whether the bucket or the disk of workspaces answers"}},
		{Name: "audit", Within: stateWait, Run: auditChecks{e}.audit, OnTimeout: doctor.Line{State: doctor.Warning, Fix: "look whether audit.webhook, audit.syslog and audit.signer answer"}},
	}
	if os.Geteuid() == 0 {
		names := []string{"docker", "oci", "containerd"}
		if e.cfg.Driver == "kubernetes" { // else no cluster is expected here
			names = []string{"kubernetes"}
			list = append(list, doctor.Check{Name: "cluster", Within: stateWait, Run: clusterChecks{e}.cluster})
		}
		if e.cfg.Driver == "remote" { // else no service is named
			names = []string{"remote"}
		}
		for _, name := range names {
			state := doctor.Warning
			if e.cfg.Driver == name {
				state = doctor.Problem
			}
			list = append(list, doctor.Check{Name: "driver", Within: driverWait, OnTimeout: doctor.Line{Name: name, State: state, Fix: "restart what is behind the driver " + name}, Run: func(ctx context.Context, r *doctor.Report) { templateChecks{e}.driver(ctx, r, name) }})
		}
		list = append(list,
			doctor.Check{Name: "runtime", Within: driverWait, OnTimeout: later, Run: templateChecks{e}.runtimes},
			doctor.Check{Name: "template", Within: templateWait, OnTimeout: later, Run: templateChecks{e}.templates},
		)
		if e.cfg.Driver == "kubernetes" {
			list = append(list, doctor.Check{Name: "network policies", Within: templateWait, OnTimeout: later, Run: clusterChecks{e}.policies})
		}
	}
	list = append(list, toolChecks{e}.toolChecks()...)
	if e.asked {
		list = append(list, doctor.Check{Name: "server", Within: stateWait, Run: toolChecks{e}.readyz})
	}
	return list
}

func (e *examination) dataFolder(_ context.Context, r *doctor.Report) {
	doctor.Folder(r, e.cfg.Data)
	if e.parent != e.cfg.Data {
		return
	}
	if running(e.cfg.Data) {
		r.OK("server", "a server uses it now; --server http://%s asks it, too", e.cfg.Listen)
	}
}

// state looks at Redis, or at the journal of the embedded state.
func (e *examination) state(ctx context.Context, r *doctor.Report) {
	if e.cfg.Redis != "" {
		e.redis(ctx, r)
		return
	}
	s, err := e.embedded(ctx)
	if path := (*fs.PathError)(nil); errors.As(err, &path) {
		r.Problem("journal", "see the line of the data folder", "it cannot be read: %s", err)
		return
	}
	if err != nil {
		r.Problem("journal", "restore "+filepath.Join(e.cfg.Data, "state.jsonl")+" from a copy, or move it away to begin without keys and labels", "%s", err)
		return
	}
	defer s.Close() //nolint:errcheck // a copy
	r.OK("", "embedded: threads and keys are in the data folder, for one server")
	e.keys(ctx, r, s)
}

// maxJournal is the largest journal that is read here: reading takes memory.
const maxJournal = 512 << 20

// embedded opens a copy of the journal, as the server would open the journal itself.
func (e *examination) embedded(ctx context.Context) (*store.Store, error) {
	file := filepath.Join(e.scratch, "journal-copy.jsonl")
	err := copyTo(file, filepath.Join(e.cfg.Data, "state.jsonl"), maxJournal)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return store.Open(ctx, store.Options{Journal: file, Log: e.log})
}

// copyTo copies a file of at most limit bytes. Only this user may read the copy.
func copyTo(to, from string, limit int64) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	n, err := io.Copy(out, io.LimitReader(in, limit+1))
	if n > limit {
		err = fmt.Errorf("%s has more than %d MiB", from, limit>>20)
	}
	return errors.Join(err, out.Close())
}

// keys says what a server would do about keys.
func (e *examination) keys(ctx context.Context, r *doctor.Report, s *store.Store) {
	has, err := s.HasKeys(ctx)
	switch {
	case err != nil:
		r.Problem("keys", "see the line of the state", "%s", err)
	case e.cfg.Auth == "none", e.cfg.Auth == "auto" && e.cfg.Loopback() && !has:
		r.OK("keys", "none is wanted: only this machine reaches %s", e.cfg.Listen)
	case len(e.cfg.OIDC) > 0:
		r.OK("keys", "every call needs a key, or a token of an identity provider")
	case !has:
		r.Problem("keys", "make one: skerry keys create --admin, with the same --data or --redis", "there is no key, and without one no client could call a server on %s", e.cfg.Listen)
	default:
		r.OK("keys", "there is one, and every call needs one")
	}
}

// redis looks at the Redis that the state is in.
func (e *examination) redis(ctx context.Context, r *doctor.Report) {
	const fix = "start Redis, or mend --redis (SKERRY_REDIS)"
	s, err := store.Open(ctx, store.Options{URL: e.cfg.Redis, Log: e.log})
	if err != nil {
		r.Problem("redis", fix, "%s", err)
		return
	}
	defer s.Close() //nolint:errcheck // only read
	findings.Redis(ctx, r, s)
	if s.Ping(ctx) != nil {
		return
	}
	e.keys(ctx, r, s)
}

// driver looks at one driver, and passes it to the checks that need it.
func (e templateChecks) driver(ctx context.Context, r *doctor.Report, name string) {
	d, err := e.openDriver(ctx, name)
	e.drivers[name].set(d, err)
	var about driver.About
	if teller, ok := d.(driver.Describer); ok && err == nil {
		about, err = teller.About(ctx)
	}
	what := "no engine, starts runtimes itself"
	if about.Engine != "" {
		what = strings.TrimSuffix(about.Engine+", API "+about.API, ", API ")
	}
	chosen, _, _ := e.chosen(ctx) //nolint:errcheck // the others say what is wrong with them
	fixes := map[string]string{
		"docker": "start dockerd (systemctl start docker), or choose another driver with --driver", "oci": "install runc or runsc where PATH leads",
		"containerd": "start containerd (systemctl start containerd), or mend containerd.address",
		"kubernetes": "see the lines of the cluster", "remote": "mend remote.url, remote.sandbox_url or remote.api_key, or wait until the service answers",
	}
	switch {
	case err == nil && chosen == name:
		r.OK(name, "%s; sandboxes are started by it", what)
	case err == nil:
		r.OK(name, "%s; not used, because driver is %s", what, e.cfg.Driver)
	case chosen == name:
		r.Problem(name, fixes[name], "%s", err)
	case name == "docker" && e.cfg.Driver == "auto" && e.dockerIsThere():
		r.Warn(name, fixes[name], "there is a socket, but the engine cannot be used, and so %s is: %s", chosen, err)
	default:
		r.OK(name, "is not there, and not needed, because driver is %s", e.cfg.Driver)
	}
}

// dockerIsThere reports whether a Docker engine is expected to answer.
func (e templateChecks) dockerIsThere() bool {
	_, err := os.Stat(e.cfg.Docker.Address)
	return err == nil
}

// runtimes says which runtimes hold what a sandbox needs, and what to do about the others.
func (e templateChecks) runtimes(ctx context.Context, r *doctor.Report) {
	name, d, err := e.chosen(ctx)
	if err != nil {
		r.Problem("", "mend the driver "+name, "none can be used without a driver")
		return
	}
	caps, err := d.Capabilities(ctx)
	if err != nil {
		r.Problem("", "mend the driver "+name, "they could not be probed: %s", err)
		return
	}
	var about driver.About
	if teller, ok := d.(driver.Describer); ok {
		about, _ = teller.About(ctx) //nolint:errcheck // then nothing is told
	}
	wanted := e.wantedRuntimes()
	if caps.AtService {
		e.service(r, caps)
		caps.Runtimes = nil // what it says of them is not shown
	}
	for _, rt := range caps.Runtimes {
		userns := "it has a user namespace of its own"
		if without := caps.NoUserNamespace[rt]; without != "" {
			userns = "it has no user namespace of its own: " + without
		}
		r.OK(rt, "%s; a sandbox starts, reaches the server, and its filter and memory limit hold; %s", version(ctx, about.Programs[rt]), userns)
	}
	for _, rt := range slices.Sorted(maps.Keys(caps.RuntimeProblems)) {
		why := caps.RuntimeProblems[rt]
		by := wanted[rt]
		switch {
		case slices.Contains(by, e.cfg.DefaultTemplate):
			r.Problem(rt, about.Advice[rt], "cannot be used: %s. The default template wants it", why)
		case len(by) > 0:
			r.Warn(rt, about.Advice[rt], "cannot be used: %s. Wanted by the template %s", why, strings.Join(by, ", "))
		case about.Programs[rt] == "":
			r.OK(rt, "is not there (%s), and no template wants it", why)
		default:
			r.Warn(rt, about.Advice[rt], "cannot be used: %s", why)
		}
	}
}

// service says what is a service's to promise, and not this server's.
func (templateChecks) service(r *doctor.Report, caps driver.Capabilities) {
	r.OK("service", "isolation, memory, CPU time and disk of sandboxes are the service's to promise; it sees their files, code and calls of tools")
	for _, p := range slices.Sorted(maps.Keys(caps.Unkept)) {
		r.OK(string(p), "not promised by this server: %s", caps.Unkept[p])
	}
	r.OK("calls", "sandboxes are not paused, weighed or measured, and have no ports")
}

// versionWait bounds asking a program for its version.
const versionWait = 5 * time.Second

// version is the first line that a runtime says of itself. An engine's runtime need not be on this host's PATH.
func version(ctx context.Context, program string) string {
	path, err := exec.LookPath(program)
	if err != nil {
		return "version unknown"
	}
	ctx, cancel := context.WithTimeout(ctx, versionWait)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "--version") //nolint:gosec // the runtime that starts sandboxes
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	line, _, _ := strings.Cut(string(out), "\n")
	if err != nil || line == "" {
		return path + " does not tell its version"
	}
	return line + " (" + path + ")"
}

// templateList reads the templates as the server does.
func (e templateChecks) templateList() ([]template.Template, error) {
	return app.TemplateFiles(e.cfg)
}

// wantedRuntimes are the templates that want each runtime.
func (e templateChecks) wantedRuntimes() map[string][]string {
	wanted := map[string][]string{}
	list, err := e.templateList()
	if err != nil {
		return wanted // the check of the templates says so
	}
	for _, t := range list {
		wanted[t.Runtime] = append(wanted[t.Runtime], t.Name)
	}
	return wanted
}

// templates starts a sandbox of each template and runs a command in it.
func (e templateChecks) templates(ctx context.Context, r *doctor.Report) {
	defer e.tried.set(struct{}{}, nil)
	list, err := e.templateList()
	if err != nil {
		e.server.set(nil, err)
		for line := range strings.Lines(err.Error()) {
			r.Problem("", "mend it, or leave `templates` away for the built-in ones", "%s", strings.TrimSpace(line))
		}
		return
	}
	p, err := e.openServer(ctx)
	e.server.set(p, err)
	if err != nil {
		r.Problem("", "see what it names, and the lines of driver and runtime", "no sandbox can be started: %s", err)
		return
	}
	for _, t := range list {
		made, ok := p.Template(t.Name)
		if !ok {
			r.Warn(t.Name, "name an image for this driver in the template", "is left out: it has no image for the driver in use")
			continue
		}
		e.template(ctx, r, p, t, made)
	}
	e.pools(r, list)
}

// pools reports how many sandboxes wait for threads, and whether there is room for them.
func (e templateChecks) pools(r *doctor.Report, list []template.Template) {
	all := 0
	for _, t := range list {
		if t.Pool == nil {
			continue
		}
		all += t.Pool.Target
		r.OK(t.Name+" pool", "%d sandboxes wait for threads; each may use up to %d MiB of memory once a thread has it", t.Pool.Target, t.Limits.Memory>>20)
	}
	if all > e.cfg.MaxSandboxes {
		r.Warn("pools", fmt.Sprintf("set max_sandboxes to more than %d, or lower the targets", all),
			"%d sandboxes are to wait for threads, and this server may run %d: those of threads come first, so that fewer wait. Servers of one data folder share the targets", all, e.cfg.MaxSandboxes)
	}
}

func (e templateChecks) template(ctx context.Context, r *doctor.Report, p *app.Scratch, t template.Template, made instance.Template) {
	image := made.Image
	if image == "" {
		image = "the host's own /usr"
	}
	began := time.Now()
	out, err := p.Orchestrator().Probes.Probe(ctx, t.Name, "echo there")
	took := time.Since(began).Round(time.Millisecond)
	add := r.Warn
	if t.Name == e.cfg.DefaultTemplate {
		add = r.Problem
	}
	switch {
	case sandbox.KindOf(err) == sandbox.NotFound:
		add(t.Name, "the package skerry-image-"+t.Image.OCI+", or make images IMAGES="+t.Image.OCI+", has that of a built-in template; docker pull fetches others", "its image %s is not there: %s", image, err)
	case err != nil:
		add(t.Name, "look at the lines of driver and runtime, and whether the image has the right architecture", "a sandbox of %s does not work: %s", image, err)
	case strings.TrimSpace(string(out)) != "there":
		r.OK(t.Name, "%s; sandboxd runs in it, %s to start; it has no shell", image, took)
	case made.Image == "" && t.Image.OCI != template.HostImage:
		r.Warn(t.Name, "install the package skerry-image-"+t.Image.OCI+", or make images unpacks it into "+e.cfg.Images, "its image is not unpacked here; sandboxes see the programs of this host's /usr. sandboxd runs in it")
	default:
		r.OK(t.Name, "%s; sandboxd runs in it, %s for a start, a command and the end", image, took)
	}
	if err == nil && made.Image != "" && len(t.Smoke) > 0 {
		e.smoke(ctx, r, p, t, add)
	}
}

// smoke runs a template's own tests. For the host's own programs there is no promise.
func (e templateChecks) smoke(ctx context.Context, r *doctor.Report, p *app.Scratch, t template.Template, add func(name, fix, format string, args ...any)) {
	began := time.Now()
	failed, err := p.Orchestrator().Probes.Smoke(ctx, t.Name)
	if err != nil {
		add(t.Name+" smoke", "look at the line of the template", "its smoke tests could not be run: %s", err)
		return
	}
	for _, f := range failed {
		add(t.Name+" smoke", "skerry templates test "+t.Name+" shows more; images/build.sh "+t.Image.OCI+" makes the image of a built-in template anew", "the test %q fails: %s", f.Name, f.Why)
	}
	if len(failed) == 0 {
		r.OK(t.Name+" smoke", "%d smoke tests pass, in %s", len(t.Smoke), time.Since(began).Round(time.Millisecond))
	}
}
