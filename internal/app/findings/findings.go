package findings

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/skerry-sandbox/skerry/internal/api/rest/overview"
	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/observe/doctor"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store"
	"github.com/skerry-sandbox/skerry/internal/workspace/quota"
)

const (
	// kept is how long findings are shown before the server looks again.
	kept = 30 * time.Second
	// lookWait bounds one check of a running server.
	lookWait = 4 * time.Second
)

// Parts are what the findings are about.
type Parts struct {
	Data    string // folder
	Install string // names it; sandboxes bear it
	Store   *store.Store
	Driver  driver.Driver
	Disk    *quota.Volume
	// DiskQuota is the setting.
	DiskQuota string
	Audit     *audit.Log
	Levels    overview.Series
	// Tools is nil when the configuration of MCP servers is right.
	Tools func() error
	// TLS says whether the certificate is good, in words; nil: http.
	TLS func() (words string, good bool)
	// Draining reports whether the server is stopping.
	Draining func() bool
}

// Open returns what lets operators see of `skerry doctor` what the running server sees itself, until it is closed.
func Open(p Parts, onClose func(func() error)) func(context.Context) (overview.ServerFindings, error) {
	f := findings{p}
	look := func(name, fix string, run func(context.Context, *doctor.Report)) doctor.Check {
		return doctor.Check{Name: name, Within: lookWait, Run: run, OnTimeout: doctor.Line{State: doctor.Problem, Fix: fix}}
	}
	examiner := doctor.NewExaminer(kept, []doctor.Check{
		look("kernel", "look whether this host hangs", doctor.Kernel),
		look("cgroups", "look whether this host hangs", doctor.Cgroups),
		look("clock", "look whether this host hangs", doctor.Clock),
		look("data folder", "the disk of the data folder hangs: mend it", func(_ context.Context, r *doctor.Report) { doctor.Folder(r, p.Data) }),
		look("disk quota", "the disk of the data folder hangs: mend it", f.quota),
		look("state", "look whether Redis answers", f.state),
		look("driver", "restart what starts sandboxes", f.driver),
		look("audit log", "look whether its disk answers", f.audit),
		look("capacity", "", f.capacity),
		look("server", "", f.server),
	})
	onClose(examiner.Close)
	return func(ctx context.Context) (overview.ServerFindings, error) {
		lines, at, err := examiner.Lines(ctx)
		if err != nil {
			return overview.ServerFindings{}, sandbox.Wrap(sandbox.Unavailable, err, "the server still looks: ask again in a few seconds")
		}
		out := overview.ServerFindings{At: at.UTC(), Items: make([]overview.ServerFinding, len(lines))}
		for i, l := range lines {
			out.Items[i] = overview.ServerFinding{Check: l.Check, Name: l.Name, State: string(l.State), Detail: cut(l.Detail), Fix: l.Fix}
		}
		return out, nil
	}
}

// maxDetail bounds what is told of one thing: errors of engines may be long.
const maxDetail = 1000

func cut(text string) string {
	if len(text) <= maxDetail {
		return text
	}
	return strings.ToValidUTF8(text[:maxDetail], "") + "…"
}

// findings are the checks of a server that runs.
type findings struct{ Parts }

func (f findings) quota(_ context.Context, r *doctor.Report) {
	switch s := f.Disk.State(); {
	case s.Enforced:
		r.OK("", "%s", s)
	case f.DiskQuota == quota.Off:
		r.Warn("", "set disk_quota to auto", "%s", s)
	default:
		r.Warn("", "mount the data folder with usrquota and prjquota (ext4, xfs), switch on its quotas (btrfs quota enable --simple), or set disk_image_mib", "%s", s)
	}
}

func (f findings) state(ctx context.Context, r *doctor.Report) {
	if !f.Store.Embedded() {
		Redis(ctx, r, f.Store)
		return
	}
	if err := f.Store.Ping(ctx); err != nil {
		r.Problem("", "look whether the disk of the data folder is full, and restart the server", "%s", err)
		return
	}
	r.OK("", "embedded: threads and keys are in the data folder, for one server")
}

func (f findings) driver(ctx context.Context, r *doctor.Report) {
	const fix = "restart it, and look into its log"
	found, err := f.Driver.List(ctx, map[string]string{sandbox.LabelInstall: f.Install})
	if err != nil {
		r.Problem("", fix, "sandboxes cannot be listed: %s", err)
		return
	}
	what := ""
	if teller, ok := f.Driver.(driver.Describer); ok {
		about, err := teller.About(ctx)
		if err != nil {
			r.Problem("", fix, "it does not tell its version: %s", err)
			return
		}
		what = about.Engine
	}
	r.OK("", "%s", strings.TrimPrefix(fmt.Sprintf("%s; it has %d containers of this server", what, len(found)), "; "))
}

func (f findings) audit(_ context.Context, r *doctor.Report) {
	if err := f.Audit.State().Err; err != nil {
		r.Problem("", "make room on the disk of the data folder, or mend it", "it cannot be written: %s", err)
	} else {
		r.OK("", "is written")
	}
	for _, s := range f.Audit.Sinks() {
		if s.Error != "" {
			r.Warn(s.Name, "start what listens there, or mend audit."+s.Name+"; records wait on the disk until then", "it does not take records now, %d wait: %s", s.Behind, s.Error)
		} else {
			r.OK(s.Name, "%d records wait for it", s.Behind)
		}
	}
	if s, ok := f.Audit.Archive(); ok {
		if s.Err != nil {
			r.Warn("archive", "look whether the folder or bucket of audit.archive can be written", "%d segments wait: %s", s.Behind, s.Err)
		} else {
			r.OK("archive", "%d segments wait for it", s.Behind)
		}
	}
}

// capacity says what is at its end of the places for sandboxes and of the pools.
func (f findings) capacity(_ context.Context, r *doctor.Report) {
	l, ok := f.Levels.Levels()
	if !ok {
		return
	}
	n := 0
	for _, of := range l.Sandboxes {
		n += of
	}
	switch {
	case l.Waiting > 0:
		r.Warn("sandboxes", "end sandboxes that nobody needs, set reclaim_idle, or raise max_sandboxes when the host has room", "%d of %d; %d requests wait for a place", n, l.Places, l.Waiting)
	case l.Places > 0 && n >= l.Places:
		r.Warn("sandboxes", "end sandboxes that nobody needs, set reclaim_idle, or raise max_sandboxes when the host has room", "%d of %d: the next one waits for a place", n, l.Places)
	default:
		r.OK("sandboxes", "%d of %d", n, l.Places)
	}
	for _, p := range l.Pools {
		name := "pool of " + p.Template
		if p.Target > 0 && p.Waiting == 0 && p.Starting == 0 {
			r.Warn(name, "look into the server's log why none starts, or wait for a place", "is empty, and none starts: threads wait for a cold start")
		} else {
			r.OK(name, "%d wait for a thread, of %d on all servers", p.Waiting, p.Target)
		}
	}
}

// server says what else /readyz knows.
func (f findings) server(_ context.Context, r *doctor.Report) {
	if err := f.Tools(); err != nil {
		r.Problem("mcp servers", "mend extensions_config.json; until then the former one counts", "%s", err)
	}
	if f.TLS != nil {
		if words, good := f.TLS(); good {
			r.OK("tls", "%s", words)
		} else {
			r.Problem("tls", "put a certificate that is good into tls.cert and tls.key", "%s", words)
		}
	}
	if f.Draining() {
		r.Warn("drain", "send requests to another server", "the server is stopping")
	}
}

// clockDrift is how far Redis' clock may be from ours.
const clockDrift = 2 * time.Second

// Redis looks at the Redis that the state is in.
func Redis(ctx context.Context, r *doctor.Report, s *store.Store) {
	if err := s.Ping(ctx); err != nil {
		r.Problem("redis", "start Redis, or mend --redis (SKERRY_REDIS)", "%s", err)
		return
	}
	told, err := s.Redis().Info(ctx).Result()
	info := redisInfo(told)
	if err != nil || info["redis_version"] == "" {
		r.OK("redis", "answers; it does not tell its version")
	} else {
		r.OK("redis", "answers, version %.40s", info["redis_version"])
	}
	if info["role"] == "slave" {
		r.Problem("redis role", "name the primary in --redis", "it is a replica, which nothing can be written to")
	}
	if p := info["maxmemory_policy"]; p != "" && p != "noeviction" && info["maxmemory"] != "0" {
		r.Warn("redis memory", "CONFIG SET maxmemory-policy noeviction", "it drops keys when its memory is full (%.40s): threads and bearer keys could be lost", p)
	}
	if save, err := s.Redis().ConfigGet(ctx, "save").Result(); err == nil && save["save"] == "" && info["aof_enabled"] == "0" {
		r.Warn("redis disk", "CONFIG SET appendonly yes, and the same in redis.conf", "it keeps nothing on disk: with its end, threads, labels and bearer keys are lost")
	}
	if now, err := s.Redis().Time(ctx).Result(); err == nil {
		if d := time.Since(now).Abs(); d > clockDrift {
			r.Warn("redis clock", "run a time service on both machines", "its clock and ours differ by %s: leases end too early or too late", d.Round(time.Millisecond))
		}
	}
}

// redisInfo reads the answer of INFO.
func redisInfo(text string) map[string]string {
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[key] = value
		}
	}
	return info
}
