package plugins

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/config/extensions"
	"github.com/skerry-sandbox/skerry/internal/platform/oneline"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/skills/scan"
)

// installation is how a plugin comes and goes.
type installation struct{ *Service }

// installTime bounds one install, from the first byte to the last.
const installTime = 5 * time.Minute

var errShared = sandbox.Errorf(sandbox.Forbidden, "what all users of the tenant have is changed by administrators")

// Install installs a plugin for the caller, or for all users of the tenant. r is the archive when it is sent along, else nil.
// It happens whole or not at all, and is in force when Install returns. Errors: Invalid (it is no plugin, or refused),
// Conflict (there is one of that name, or it is another one than was asked for), Forbidden, NotFound, NotSupported,
// QuotaExceeded, Timeout, Unavailable.
func (s *Service) Install(ctx context.Context, c sandbox.Caller, r io.Reader, req sandbox.PluginInstall) (sandbox.Plugin, error) {
	ctx, cancel := context.WithTimeout(ctx, installTime)
	defer cancel()
	var done sandbox.Plugin
	subject := shownURL(req.From)
	if req.Marketplace != "" {
		subject = req.Plugin + "@" + req.Marketplace
	}
	err := s.recorded(ctx, c, audit.ActionPluginInstall, subject, req.Thread, func(rec *audit.Record) (err error) {
		if req.Shared && !c.Admin() {
			return errShared
		}
		select {
		case s.slots <- struct{}{}:
			defer func() { <-s.slots }()
		case <-ctx.Done():
			return sandbox.Wrap(sandbox.Timeout, ctx.Err(), "other installs are under way")
		}
		done, err = installation{s}.install(ctx, c, r, req)
		rec.Detail = done.Name + " " + done.Digest
		return err
	})
	return done, err
}

// ready is a plugin that is fetched and looked at.
type ready struct {
	*fetched
	plugin *Plugin
	found  []sandbox.Finding // findings of the fetch and of the scan of its files
	record record
}

func (s installation) install(ctx context.Context, c sandbox.Caller, r io.Reader, req sandbox.PluginInstall) (sandbox.Plugin, error) {
	none := sandbox.Plugin{}
	got, entry, err := s.obtain(ctx, c, r, req)
	if err != nil {
		return none, err
	}
	defer func() {
		if err := got.Remove(); err != nil {
			s.o.Log.Warn("the folder of an install stays behind", "error", err)
		}
	}()
	p, err := s.check(ctx, got, entry, req)
	if err != nil {
		return none, err
	}
	p.record.InstalledBy = c.User
	if err := s.keep(ctx, c.Owner, p, req); err != nil {
		return none, err
	}
	s.changed()
	set, err := s.Set(c.Owner)
	if err != nil {
		return none, err
	}
	m, err := set.find(p.plugin.Name)
	if err != nil {
		return none, err
	}
	v := set.view(m)
	v.Findings = append(v.Findings, p.found...)
	return v, nil
}

// obtain gets the files of a plugin, and what a marketplace says of it.
func (s installation) obtain(ctx context.Context, c sandbox.Caller, r io.Reader, req sandbox.PluginInstall) (*fetched, json.RawMessage, error) {
	if r != nil {
		got, err := s.fetch.unpack(ctx, r, Source{Path: req.Path, SHA256: req.SHA256})
		if err == nil {
			got.source.From = oneline.Of(path.Base(req.From), maxDescriptor)
		}
		return got, nil, err
	}
	if req.Marketplace != "" {
		src, entry, err := s.fromMarketplace(c.Owner, req)
		if err != nil {
			return nil, nil, err
		}
		got, err := s.fetch.fetch(ctx, src)
		if err == nil {
			got.source.Marketplace = req.Marketplace
		}
		return got, entry, err
	}
	src, err := sourceOf(req)
	if err != nil {
		return nil, nil, err
	}
	got, err := s.fetch.fetch(ctx, src)
	return got, nil, err
}

// sourceOf reads what a request names. Without a kind it is what From looks like.
func sourceOf(req sandbox.PluginInstall) (Source, error) {
	src := Source{Kind: req.Kind, URL: strings.TrimSpace(req.From), Path: req.Path, Ref: req.Ref, SHA: strings.ToLower(req.SHA), SHA256: strings.ToLower(req.SHA256)}
	if src.Kind == "" {
		base := strings.ToLower(path.Base(shownURL(src.URL)))
		switch {
		case githubRepo.MatchString(src.URL):
			src.Kind, src.URL = SourceGit, "https://github.com/"+src.URL+".git"
		case strings.HasSuffix(base, ".zip"), strings.HasSuffix(base, ".tar.gz"), strings.HasSuffix(base, ".tgz"), strings.HasSuffix(base, ".tar"), strings.HasSuffix(base, ".plugin"):
			src.Kind = SourceArchive
		case filepath.IsAbs(src.URL):
			src.Kind = SourceFolder
		default:
			src.Kind = SourceGit
		}
	}
	if bad := src.check(); bad != "" {
		return src, sandbox.Errorf(sandbox.Invalid, "the source cannot be used: %s", bad)
	}
	return src, nil
}

// check reads the plugin and refuses what must not be installed.
func (s installation) check(ctx context.Context, got *fetched, entry json.RawMessage, req sandbox.PluginInstall) (*ready, error) {
	p := &ready{fetched: got}
	var err error
	if p.plugin, err = loadFolder(got.Dir, fallbackName(got, req), entry); err != nil {
		return nil, err
	}
	if p.found, err = scan.Folder(ctx, os.DirFS(got.Dir)); err != nil {
		return nil, sandbox.Wrap(sandbox.Internal, err, "the plugin cannot be read")
	}
	p.found = slices.DeleteFunc(p.found, p.plugin.expects)
	if req.Strict && scan.Refuses(p.found) {
		return nil, refused(p.found)
	}
	for _, name := range got.left {
		p.found = append(p.found, sandbox.Finding{Rule: "left-out", Severity: sandbox.SeverityInfo, File: name, Message: "a link that leaves the plugin, a link to a folder, or a submodule: it is no part of what is installed"})
	}
	digest, err := treeDigest(got.Dir)
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Internal, err, "the plugin cannot be read")
	}
	if req.Digest != "" && req.Digest != digest {
		return nil, sandbox.Errorf(sandbox.Conflict, "plugin %q is another one: its digest is %s, and %.100s was asked for", p.plugin.Name, digest, req.Digest)
	}
	p.record = record{Digest: digest, Source: got.source, Entry: entry, InstalledAt: time.Now().UTC()}
	return p, nil
}

// expects reports whether a finding of the scan, which knows skills only, is what a plugin is made of.
func (p *Plugin) expects(f sandbox.Finding) bool {
	switch f.Rule {
	case "nested-skill":
		return slices.ContainsFunc(p.Skills, func(sk Skill) bool { return path.Join(sk.Folder, skillFile) == f.File })
	case "hidden-file":
		return f.File == ".mcp.json"
	}
	return false
}

// refused names the findings that are to blame.
func refused(found []sandbox.Finding) error {
	e := &sandbox.Error{Kind: sandbox.Invalid, Detail: "the plugin is refused by the static scan of its files"}
	for _, f := range found {
		if f.Severity == sandbox.SeverityError {
			e.Fields = append(e.Fields, sandbox.Field{Name: f.File, Detail: f.Rule + ": " + f.Message})
		}
	}
	return e
}

// fallbackName is the name of a plugin that says none: that of its folder, or of its source.
func fallbackName(got *fetched, req sandbox.PluginInstall) string {
	for _, name := range []string{req.Plugin, path.Base(folderOf(got.source.Path)), got.Wrapper, path.Base(got.source.From)} {
		for _, end := range []string{".git", ".zip", ".tgz", ".tar.gz", ".tar", ".plugin"} {
			name = strings.TrimSuffix(name, end)
		}
		if CheckName(name) == nil {
			return name
		}
	}
	return ""
}

// keep puts the files into the store and the plugin onto its list.
func (s installation) keep(ctx context.Context, o sandbox.Owner, p *ready, req sandbox.PluginInstall) error {
	shared, own, err := states(s).files(o)
	if err != nil {
		return err
	}
	file := own
	if req.Shared {
		file = shared
	}
	name := p.plugin.Name
	if err := s.free(shared, name, req); err != nil {
		return err
	}
	s.changing.RLock()
	defer s.changing.RUnlock()
	if err := s.store.add(p.Dir, p.record.Digest); err != nil {
		return sandbox.Wrap(sandbox.Internal, err, "the plugin cannot be stored")
	}
	err = states(s).edit(ctx, file, func(st *state) error {
		if _, taken := st.Plugins[name]; taken && !req.Replace {
			return errTaken(name)
		}
		if st.Plugins[name] = p.record; len(st.Plugins) > maxInstalled {
			return sandbox.Errorf(sandbox.QuotaExceeded, "there are %d plugins already", maxInstalled)
		}
		return nil
	})
	if err != nil || !req.Disabled {
		return err
	}
	return s.o.Extensions.SetEnabled(ctx, scopeOf(o, req.Shared), extensions.PluginsSection, name, false)
}

func errTaken(name string) error {
	return sandbox.Errorf(sandbox.Conflict, "there is a plugin %q already; remove it first, or ask to replace it", name)
}

// free looks whether a name is taken by a plugin that all users have.
func (s installation) free(shared *stateFile, name string, req sandbox.PluginInstall) error {
	st, err := shared.current()
	if err != nil {
		return err
	}
	if _, taken := st.Plugins[name]; taken && !req.Replace {
		return errTaken(name)
	}
	return nil
}

// scopeOf is whose switches count: those of the user, or those of all users.
func scopeOf(o sandbox.Owner, shared bool) sandbox.Owner {
	if shared {
		return sandbox.Owner{}
	}
	return o
}

// Sweep removes from the store what no list names any more.
func (s *Service) Sweep() error {
	s.changing.Lock()
	defer s.changing.Unlock()
	used := map[string]bool{}
	for _, pattern := range []string{"tenants/*/plugins.json", "tenants/*/users/*/plugins.json"} {
		files, err := filepath.Glob(filepath.Join(s.o.Dir, pattern))
		if err != nil {
			return err
		}
		for _, file := range files {
			st, err := states{s}.follow(file).current()
			if err != nil {
				return err // what it names is not known
			}
			for _, r := range st.Plugins {
				used[r.Digest] = true
			}
		}
	}
	return s.store.sweep(used)
}

// Remove removes a plugin of the caller, or a plugin of all users, with its files and all that was said of it. NotFound; Forbidden
// when it is all users' and the caller is no administrator.
func (s *Service) Remove(ctx context.Context, c sandbox.Caller, name string) error {
	return s.recorded(ctx, c, audit.ActionPluginRemove, name, "", func(rec *audit.Record) error {
		set, err := s.Set(c.Owner)
		if err != nil {
			return err
		}
		m, err := set.find(name)
		switch {
		case err != nil:
			return err
		case m.shared && !c.Admin():
			return errShared
		}
		rec.Detail = m.record.Digest
		shared, file, err := states{s}.files(c.Owner)
		if err != nil {
			return err
		}
		if m.shared {
			file = shared
		}
		err = states{s}.edit(ctx, file, func(st *state) error {
			if _, ok := st.Plugins[name]; !ok {
				return sandbox.Errorf(sandbox.NotFound, "there is no plugin %.80q", name)
			}
			delete(st.Plugins, name)
			return nil
		})
		if err != nil {
			return err
		}
		s.changed()
		return errors.Join(installation{s}.forget(ctx, c.Owner, m), installation{s}.forgetServers(c.Owner, m), installation{s}.sweep())
	})
}

func (s installation) forgetServers(o sandbox.Owner, m *member) error {
	if s.o.Removed == nil {
		return nil
	}
	var names []string
	for _, srv := range m.plugin.Servers {
		names = append(names, Registered(m.name, srv.Name))
	}
	if err := s.o.Removed(o, m.shared, names); err != nil {
		return sandbox.Wrap(sandbox.Internal, err, "the plugin is removed, but what its MCP servers kept stays behind")
	}
	return nil
}

func (s installation) sweep() error {
	if err := s.Sweep(); err != nil {
		return sandbox.Wrap(sandbox.Internal, err, "the plugin is removed, but files of it stay behind")
	}
	return nil
}

// forget removes what was said of a plugin: by its user, or by all users for a plugin that all have.
func (s installation) forget(ctx context.Context, o sandbox.Owner, m *member) error {
	if !m.shared {
		return s.o.Extensions.Forget(ctx, o, extensions.PluginsSection, m.name)
	}
	var errs []error
	for _, user := range s.o.Extensions.Users(o.Tenant) {
		st, err := states(s).follow(filepath.Join(s.o.Dir, "tenants", o.Tenant, "users", user, "plugins.json")).current()
		if err == nil && st.Plugins[m.name].Digest == "" { // else it was said of the user's own
			errs = append(errs, s.o.Extensions.Forget(ctx, sandbox.Owner{Tenant: o.Tenant, User: user}, extensions.PluginsSection, m.name))
		}
	}
	return errors.Join(errs...)
}

// Change switches a plugin on or off for the caller (enabled may be nil), and sets values that it asks for. NotFound; Invalid
// naming the values that are wrong.
func (s *Service) Change(ctx context.Context, c sandbox.Caller, name string, enabled *bool, values map[string]any) (sandbox.Plugin, error) {
	var done sandbox.Plugin
	err := s.recorded(ctx, c, audit.ActionPluginChange, name, "", func(rec *audit.Record) error {
		set, err := s.Set(c.Owner)
		if err != nil {
			return err
		}
		m, err := set.find(name)
		if err == nil {
			err = checkValues(m.plugin, values)
		}
		if err != nil {
			return err
		}
		if len(values) > 0 {
			rec.Detail = "values: " + strings.Join(sorted(values), ", ") + " "
			if err := (optionValues{s}).setValues(ctx, c.Owner, m.plugin, name, values); err != nil {
				return err
			}
		}
		if enabled != nil {
			rec.Detail += map[bool]string{true: "on", false: "off"}[*enabled]
			if err := s.o.Extensions.SetEnabled(ctx, c.Owner, extensions.PluginsSection, name, *enabled); err != nil {
				return err
			}
		}
		s.changed()
		done, err = s.Get(ctx, c, name)
		return err
	})
	return done, err
}
