package examination

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/skerry-sandbox/skerry/internal/api/rest"
	"github.com/skerry-sandbox/skerry/internal/app"
	"github.com/skerry-sandbox/skerry/internal/app/buckets"
	"github.com/skerry-sandbox/skerry/internal/app/cli/output"
	"github.com/skerry-sandbox/skerry/internal/config/extensions"
	"github.com/skerry-sandbox/skerry/internal/observe/doctor"
	"github.com/skerry-sandbox/skerry/internal/platform/s3"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/skills"
	"github.com/skerry-sandbox/skerry/internal/skills/runnable"
	"github.com/skerry-sandbox/skerry/internal/tools/egress"
)

// toolChecks look at MCP servers, skills and the network.
type toolChecks struct{ *examination }

// toolChecks look at what agents get in their sandboxes, and where it comes from.
func (e toolChecks) toolChecks() []doctor.Check {
	warn := doctor.Line{State: doctor.Warning}
	list := []doctor.Check{
		{Name: "extensions", Within: hostWait, Run: e.extensions},
		{Name: "policy", Within: hostWait, Run: e.policy},
		{Name: "mcp server", Within: mcpWait + 15*time.Second, Run: e.mcpServers, OnTimeout: warn},
	}
	if os.Geteuid() == 0 {
		list = append(list, doctor.Check{Name: "skills", Within: skillWait, Run: e.skills, OnTimeout: warn})
	}
	return append(list,
		doctor.Check{Name: "s3", Within: stateWait, Run: e.s3, OnTimeout: doctor.Line{State: doctor.Warning, Fix: "look whether s3.endpoint can be reached from here"}},
		doctor.Check{Name: "egress", Within: hostWait, Run: e.egress, OnTimeout: warn},
	)
}

const (
	mendFile = "mend the file; nothing in it is in force until then"
	// maxUserFiles is how many users' files are read.
	maxUserFiles = 10_000
	// maxNamed is how many of the same kind are named; the others are counted.
	maxNamed = 50
)

// extensions reads extensions_config.json and the files of the users beside it.
func (e toolChecks) extensions(ctx context.Context, r *doctor.Report) {
	files, err := extensions.New(e.cfg.Extensions)
	if err == nil {
		err = files.Problem()
	}
	if err != nil {
		r.Problem("", mendFile, "%s: %s", e.cfg.Extensions, err)
		return
	}
	users, _ := filepath.Glob(strings.TrimSuffix(e.cfg.Extensions, ".json") + ".d/*/*.json") //nolint:errcheck // a bad pattern only
	broken := 0
	for _, file := range users[:min(len(users), maxUserFiles)] {
		o := sandbox.Owner{Tenant: filepath.Base(filepath.Dir(file)), User: strings.TrimSuffix(filepath.Base(file), ".json")}
		if _, err := files.Raw(o, extensions.SkillsSection); err != nil && ctx.Err() == nil {
			if broken++; broken <= maxNamed {
				r.Warn(o.Tenant+"/"+o.User, "mend the file; this user gets no skills and plugins until then", "%s: %s", file, err)
			}
		}
	}
	if broken > maxNamed {
		r.Warn("", "mend them", "%d more files of users are broken", broken-maxNamed)
	}
	if _, err := os.Stat(e.cfg.Extensions); err != nil {
		r.OK("", "there is no %s: no MCP servers, and every skill is on; %s", e.cfg.Extensions, output.Count(len(users), "file")+" of users")
		return
	}
	r.OK("", "%s is right; %s of users", e.cfg.Extensions, output.Count(len(users), "file"))
}

// mcpServers starts every MCP server, or connects to it, and counts its tools.
func (e toolChecks) mcpServers(ctx context.Context, r *doctor.Report) {
	if e.hubErr != nil {
		r.Problem("", "see the line of the data folder", "no MCP server can be started: %s", e.hubErr)
		return
	}
	if err := e.hub.ConfigError(); err != nil {
		r.Problem("", mendFile, "the configuration is broken: %s", err)
		return
	}
	began := time.Now()
	list, err := e.hub.Catalog.Servers(ctx, sandbox.Thread{Owner: app.LocalOwner, ID: "doctor"})
	if err != nil {
		r.Warn("", "run doctor again", "not looked at: %s", sandbox.TextOf(err))
		return
	}
	if len(list) == 0 {
		r.OK("", "none is configured")
	}
	for _, s := range list {
		switch {
		case s.State == "needs_login":
			r.Warn(s.Name, "log in: skerry mcp login "+s.Name, "wants a login first (%s)", s.Transport)
		case s.Error != "":
			r.Warn(s.Name, "try it alone: skerry mcp ls --server "+s.Name+" --config "+e.cfg.Extensions, "%s: %s", s.Transport, s.Error)
		case s.State == "ready":
			r.OK(s.Name, "%s; connected, %s", s.Transport, output.Count(s.ToolCount, "tool"))
			e.toolFindings(ctx, r, s.Name)
		default:
			r.Warn(s.Name, "try it alone: skerry mcp ls --server "+s.Name+" --config "+e.cfg.Extensions+" (a first start may fetch packages)", "%s; did not answer within %s", s.Transport, time.Since(began).Round(time.Second))
		}
	}
}

// toolFindings names tools whose descriptions look poisoned.
func (e toolChecks) toolFindings(ctx context.Context, r *doctor.Report, server string) {
	tools, err := e.hub.Servers.ServerTools(ctx, sandbox.Caller{Owner: app.LocalOwner}, server)
	if err != nil {
		return // its line says so
	}
	named := 0
	for _, t := range tools {
		if sandbox.FindingScore(t.Findings) < suspicious || named == maxNamed {
			continue
		}
		named++
		f := t.Findings[0]
		r.Warn(server+"."+t.Name, "read what it says before agents do, and hide it (\"disabledTools\") when it should not be there: docs/tool-drift.md", "looks poisoned (score %d): its %s %s", sandbox.FindingScore(t.Findings), f.File, f.Message)
	}
}

// suspicious is the score from which on a tool is named.
const suspicious = 10

// skills reads the library, and says of each skill whether it loads and runs.
func (e toolChecks) skills(ctx context.Context, r *doctor.Report) {
	p, noServer := e.server.get(ctx)
	var skills *app.SkillLibrary
	if noServer == nil {
		skills = p.SkillLibrary
	} else { // their files can be read all the same
		var err error
		if skills, err = e.openLibrary(ctx); err != nil {
			r.Problem("", "mend what it names; `skills` and `skill_sources` say where skills are", "%s", err)
			return
		}
	}
	for _, n := range e.notes.about("a source of skills is left out") {
		r.Warn("source", "mend or remove it in "+e.cfg.SkillSources, "is left out: %s", n.attrs)
	}
	t := &skillTally{r: r, ctx: ctx, template: e.cfg.DefaultTemplate}
	if noServer == nil {
		t.prober = runnable.NewProber(p.Orchestrator().Probes, e.log)
		defer t.prober.Close()
		t.wait()
	}
	if set, err := skills.Library().Set(app.LocalOwner); err != nil {
		r.Warn("", "see the line of the extensions", "not looked at: %s", sandbox.TextOf(err))
	} else {
		t.look("", set)
	}
	e.customSkills(t)
	t.sum()
}

// customSkills looks at the skills that users have of their own.
func (e toolChecks) customSkills(t *skillTally) {
	dir, users := filepath.Join(e.cfg.Data, "skills"), filepath.Join(e.cfg.Data, "tenants")
	lists, _ := filepath.Glob(filepath.Join(users, "*/users/*/skills.json")) //nolint:errcheck // a bad pattern only
	if len(lists) == 0 {
		return
	}
	lib, err := skills.Open(skills.Options{Dir: dir, Users: users, Log: e.log, State: func(sandbox.Owner) (skills.State, error) { return everySkillOn{}, nil }})
	if err != nil {
		t.r.Warn("users", "see the line of the data folder", "their skills are not looked at: %s", err)
		return
	}
	for _, file := range lists[:min(len(lists), maxUserFiles)] {
		if t.ctx.Err() != nil {
			return
		}
		user := filepath.Dir(file)
		o := sandbox.Owner{Tenant: filepath.Base(filepath.Dir(filepath.Dir(user))), User: filepath.Base(user)}
		set, err := lib.Set(o)
		if err != nil {
			t.warn(o.Tenant+"/"+o.User, "restore "+file+" from a copy", "the list of this user's skills is broken: %s", sandbox.TextOf(err))
			continue
		}
		t.look(o.Tenant+"/"+o.User+" ", set)
	}
}

// everySkillOn is the state in which nothing is switched off.
type everySkillOn struct{}

// Skill implements skill.State.
func (everySkillOn) Skill(string) (enabled, said bool) { return true, false }

// skillTally counts skills and tells of those with something wrong.
type skillTally struct {
	r        *doctor.Report
	ctx      context.Context //nolint:containedctx // of one check
	template string
	prober   *runnable.Prober // nil: no sandbox can be started
	why      string           // the server does not know what runs

	loaded, broken, findings, yes, no, unknown, told int
}

// wait waits until it is known what sandboxes have: a single question does not wait that long.
func (t *skillTally) wait() {
	for {
		_, err := t.prober.Profile(t.ctx, t.template)
		if err == nil {
			return
		}
		if errors.Unwrap(err) != nil || t.ctx.Err() != nil { // with a cause it failed, without one it goes on
			t.why = sandbox.TextOf(err)
			return
		}
		select {
		case <-t.ctx.Done():
		case <-time.After(250 * time.Millisecond):
		}
	}
}

func (t *skillTally) warn(name, fix, format string, args ...any) {
	if t.told++; t.told <= maxNamed {
		t.r.Warn(name, fix, format, args...)
	}
}

func (t *skillTally) look(whose string, set *skills.Set) {
	for _, sk := range set.List() {
		name := whose + sk.Name
		worst, serious := "", 0
		for _, f := range sk.Findings {
			if f.Severity == sandbox.SeverityInfo {
				continue
			}
			if serious++; worst == "" || f.Severity == sandbox.SeverityError {
				worst = f.Message
			}
		}
		if serious > 0 {
			t.findings++
		}
		if sk.Broken {
			t.broken++
			t.warn(name, "skerry skills lint on its folder names every problem", "does not load: %s", worst)
			continue
		}
		t.loaded++
		if serious > 0 {
			t.warn(name, "skerry skills lint on its folder names all of them", "loads with %s, such as: %s", output.Count(serious, "finding"), worst)
		}
		if t.prober != nil && t.why == "" {
			t.run(name, sk, set)
		}
	}
}

func (t *skillTally) run(name string, sk sandbox.Skill, set *skills.Set) {
	v := t.prober.Of(t.ctx, t.template, sk.Digest, func() (*os.Root, error) { return set.Open(sk.Name) })
	switch v.Template {
	case sandbox.RunnableYes:
		t.yes++
	case sandbox.RunnableNo:
		t.no++
		t.warn(name, "add that to the template's image, or switch the skill off", "does not run in the template %s, where this is missing: %s", t.template, strings.Join(v.Missing, ", "))
	default:
		t.unknown++
	}
}

func (t *skillTally) sum() {
	if t.told > maxNamed {
		t.r.Warn("", "skerry skills ls --json names all", "%d more notes on skills", t.told-maxNamed)
	}
	text := fmt.Sprintf("%d load, %d do not, %d have findings", t.loaded, t.broken, t.findings)
	if t.prober == nil {
		t.r.OK("", "%s; whether they run is not known, because no sandbox can be started", text)
		return
	}
	if t.why != "" {
		t.r.OK("", "%s; whether they run is not known: %s", text, t.why)
		return
	}
	t.r.OK("", "%s; in the template %s %d run, %d do not, and %d are unknown", text, t.template, t.yes, t.no, t.unknown)
}

// s3 looks whether the store that skills are installed from answers.
func (e toolChecks) s3(ctx context.Context, r *doctor.Report) {
	c := e.cfg.S3
	if len(c.Buckets) == 0 {
		r.OK("", "not configured: nothing is installed from s3://")
		return
	}
	const fix = "mend s3.endpoint, s3.access_key, s3.secret_key, s3.buckets and s3.addresses"
	o, err := buckets.Options(c)
	if err == nil {
		o.Buckets = c.Buckets
	}
	client, clientErr := s3.New(o)
	if err = errors.Join(err, clientErr); err != nil {
		r.Problem("", fix, "the configuration is wrong: %s", sandbox.TextOf(err))
		return
	}
	defer client.Close() //nolint:errcheck // only kept connections
	for _, bucket := range c.Buckets {
		object, err := client.Fetch(ctx, "s3://"+strings.TrimSuffix(bucket, "/")+"/skerry-doctor-looks.skill")
		if err == nil {
			_ = object.Close()
		}
		switch kind := sandbox.KindOf(err); {
		case err == nil, kind == sandbox.NotFound:
			r.OK(bucket, "the store answers")
		default:
			r.Warn(bucket, fix, "%s", sandbox.TextOf(err))
		}
	}
}

// egress reads the lists of hosts that MCP servers in sandboxes may reach.
func (e toolChecks) egress(_ context.Context, r *doctor.Report) {
	files, err := extensions.New(e.cfg.Extensions)
	if err != nil {
		return
	}
	raw, err := files.Raw(sandbox.Owner{}, "mcpServers")
	var servers map[string]struct {
		Sandbox json.RawMessage `json:"sandbox"`
	}
	if err != nil || raw != nil && json.Unmarshal(raw, &servers) != nil {
		return // the check of the MCP servers says so
	}
	hosts := map[string]bool{}
	for _, h := range e.cfg.Plugins.Egress {
		hosts[h] = true
	}
	for _, name := range sortedKeys(servers) {
		var isolation struct {
			Egress []string `json:"egress"`
		}
		if json.Unmarshal(servers[name].Sandbox, &isolation) != nil { // true, or absent
			continue
		}
		if _, err := egress.ParseRules(isolation.Egress); err != nil {
			r.Warn(name, "mend mcpServers."+name+".sandbox.egress", "%s", sandbox.TextOf(err))
			continue
		}
		for _, h := range isolation.Egress {
			hosts[h] = true
		}
	}
	if len(hosts) == 0 {
		r.OK("", "nothing in a sandbox has a way out")
		return
	}
	r.OK("", "MCP servers in sandboxes reach %s and nothing else: %s", output.Count(len(hosts), "host"), strings.Join(sortedKeys(hosts), ", "))
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// maxReady bounds what is read of a server.
const maxReady = 1 << 20

// readyz asks a server that runs whether it is ready.
func (e toolChecks) readyz(ctx context.Context, r *doctor.Report) {
	const fix = "start it (skerry serve), or name its address with --server"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(e.address, "/")+"/readyz", nil)
	if err != nil {
		r.Problem("", fix, "%s is no address of a server", e.address)
		return
	}
	req.Header.Set("Accept", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		r.Problem("", fix, "does not answer: %s", err)
		return
	}
	defer res.Body.Close()
	var answer struct {
		Ready  bool         `json:"ready"`
		Checks []rest.Check `json:"checks"`
	}
	if err := json.NewDecoder(io.LimitReader(res.Body, maxReady)).Decode(&answer); err != nil {
		r.Problem("", fix, "what answers at %s is no Skerry server (%s)", e.address, res.Status)
		return
	}
	for _, c := range answer.Checks {
		if c.OK {
			r.OK(c.Name, "it says: ready")
		} else {
			r.Problem(c.Name, "see the lines above and its log", "it says: not ready: %s", c.Detail)
		}
	}
	if answer.Ready {
		r.OK("", "%s is ready", e.address)
	} else {
		r.Problem("", "mend what it names", "%s is not ready", e.address)
	}
}
