package plugins

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/config/extensions"
	"github.com/skerry-sandbox/skerry/internal/platform/download"
	"github.com/skerry-sandbox/skerry/internal/platform/oneline"
	"github.com/skerry-sandbox/skerry/internal/plugins/tree"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/skills/scan"
)

// installer puts plugins into the store and onto lists, and removes them.
type installer struct {
	extensions *extensions.Files
	log        *slog.Logger
	fetch      *fetcher
	store      *tree.Store
	states     *stateFiles
	slots      chan struct{} // installs at once: each may take much memory

	// changing is held for reading from when files are put into the store until a list names them. It is
	// held for writing while files that no list names are removed.
	changing sync.RWMutex
}

const maxInstalls = 2

// installTime bounds one install, from the first byte to the last.
const installTime = 5 * time.Minute

var errShared = sandbox.Errorf(sandbox.Forbidden, "what all users of the tenant have is changed by administrators")

// Install installs a plugin for the caller, or for all users of the tenant. r is the archive when it is sent
// along, else nil. It happens whole or not at all, and is in force when Install returns. Errors: Invalid (it
// is no plugin, or refused), Conflict (there is one of that name, or it differs from the requested one).
// Also Forbidden, NotFound, NotSupported, QuotaExceeded, Timeout, Unavailable.
func (s *Service) Install(ctx context.Context, c sandbox.Caller, r io.Reader, req sandbox.PluginInstall) (sandbox.Plugin, error) {
	ctx, cancel := context.WithTimeout(ctx, installTime)
	defer cancel()
	var done sandbox.Plugin
	subject := download.Shown(req.From)
	if req.Marketplace != "" {
		subject = req.Plugin + "@" + req.Marketplace
	}
	err := s.recorded(ctx, c, audit.ActionPluginInstall, subject, req.Thread, func(rec *audit.Record) (err error) {
		if req.Shared && !c.Admin() {
			return errShared
		}
		leave, err := s.installer.enter(ctx)
		if err != nil {
			return err
		}
		defer leave()
		done, err = s.install(ctx, c, r, req)
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

func (s *Service) install(ctx context.Context, c sandbox.Caller, r io.Reader, req sandbox.PluginInstall) (sandbox.Plugin, error) {
	none := sandbox.Plugin{}
	src, entry, err := s.sourceFor(c.Owner, r, req)
	if err != nil {
		return none, err
	}
	p, err := s.installer.install(ctx, c, r, src, entry, req)
	if err != nil {
		return none, err
	}
	s.o.Changed()
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

// sourceFor says where the files of a plugin are, and what a marketplace says of it.
func (s *Service) sourceFor(o sandbox.Owner, r io.Reader, req sandbox.PluginInstall) (Source, json.RawMessage, error) {
	switch {
	case r != nil: // they are sent along
		return Source{Path: req.Path, SHA256: req.SHA256}, nil, nil
	case req.Marketplace != "":
		set, err := s.Set(o)
		if err != nil {
			return Source{}, nil, err
		}
		return set.shared.entry(req)
	}
	src, err := sourceOf(req)
	return src, nil, err
}

// enter waits until one more install may run.
func (i *installer) enter(ctx context.Context) (leave func(), err error) {
	select {
	case i.slots <- struct{}{}:
		return func() { <-i.slots }, nil
	case <-ctx.Done():
		return nil, sandbox.Wrap(sandbox.Timeout, ctx.Err(), "other installs are under way")
	}
}

func (i *installer) install(ctx context.Context, c sandbox.Caller, r io.Reader, src Source, entry json.RawMessage, req sandbox.PluginInstall) (*ready, error) {
	got, err := i.obtain(ctx, r, src, req)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err := got.Remove(); err != nil {
			i.log.Warn("the folder of an install stays behind", "error", err)
		}
	}()
	p, err := check(ctx, got, entry, req)
	if err != nil {
		return nil, err
	}
	p.record.InstalledBy = c.User
	if err := i.keep(ctx, c.Owner, p, req); err != nil || !req.Replace {
		return p, err
	}
	if err := i.sweep(); err != nil { // the one that was replaced has no user any more
		i.log.Warn("files of a replaced plugin stay behind", "error", err)
	}
	return p, nil
}

// obtain gets the files of a plugin.
func (i *installer) obtain(ctx context.Context, r io.Reader, src Source, req sandbox.PluginInstall) (*fetched, error) {
	if r != nil {
		got, err := i.fetch.unpack(ctx, r, src)
		if err == nil {
			got.source.From = oneline.Of(path.Base(req.From), maxDescriptor)
		}
		return got, err
	}
	got, err := i.fetch.fetch(ctx, src)
	if err == nil {
		got.source.Marketplace = req.Marketplace
	}
	return got, err
}

// sourceOf reads what a request names. Without a kind it is what From looks like.
func sourceOf(req sandbox.PluginInstall) (Source, error) {
	src := Source{Kind: req.Kind, URL: strings.TrimSpace(req.From), Path: req.Path, Ref: req.Ref, SHA: strings.ToLower(req.SHA), SHA256: strings.ToLower(req.SHA256)}
	if src.Kind == "" {
		base := strings.ToLower(path.Base(download.Shown(src.URL)))
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
func check(ctx context.Context, got *fetched, entry json.RawMessage, req sandbox.PluginInstall) (*ready, error) {
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
	digest, err := tree.Digest(got.Dir)
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Internal, err, "the plugin cannot be read")
	}
	if req.Digest != "" && req.Digest != digest {
		return nil, sandbox.Errorf(sandbox.Conflict, "plugin %q is another one: its digest is %s, and %.100s was asked for", p.plugin.Name, digest, req.Digest)
	}
	p.record = record{Digest: digest, Bytes: p.Bytes, Source: got.source, Entry: entry, InstalledAt: time.Now().UTC()}
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
func (i *installer) keep(ctx context.Context, o sandbox.Owner, p *ready, req sandbox.PluginInstall) error {
	shared, own, err := i.states.of(o)
	if err != nil {
		return err
	}
	file := own
	if req.Shared {
		file = shared
	}
	name := p.plugin.Name
	if err := free(shared, name, req); err != nil {
		return err
	}
	now, err := file.current()
	if err != nil {
		return err
	}
	if err := hasRoom(now, name, p.record.Bytes, req); err != nil { // before its files take space that nobody's quota counts
		return err
	}
	i.changing.RLock()
	defer i.changing.RUnlock()
	if err := i.store.Add(p.Dir, p.record.Digest); err != nil {
		return sandbox.Wrap(sandbox.Internal, err, "the plugin cannot be stored")
	}
	if req.Disabled { // before it is listed: nothing of it is in use for a moment, nor when the switch cannot be written
		if err := i.extensions.SetEnabled(ctx, scopeOf(o, req.Shared), extensions.PluginsSection, name, false); err != nil {
			return err
		}
	}
	err = file.edit(ctx, func(st *state) error {
		if err := hasRoom(st, name, p.record.Bytes, req); err != nil {
			return err
		}
		st.Plugins[name] = p.record
		return nil
	})
	if _, there := now.Plugins[name]; err != nil && req.Disabled && !there {
		err = errors.Join(err, i.extensions.Forget(ctx, scopeOf(o, req.Shared), extensions.PluginsSection, name))
	}
	return err
}

// hasRoom says why a list cannot have a plugin of that name and size.
func hasRoom(st *state, name string, bytes int64, req sandbox.PluginInstall) error {
	total := bytes
	for n, r := range st.Plugins {
		if n != name {
			total += r.Bytes
		}
	}
	switch _, taken := st.Plugins[name]; {
	case taken && !req.Replace:
		return errTaken(name)
	case !taken && len(st.Plugins) >= maxInstalled:
		return sandbox.Errorf(sandbox.QuotaExceeded, "there are %d plugins already", maxInstalled)
	case total > maxInstalledBytes:
		return sandbox.Errorf(sandbox.QuotaExceeded, "the plugins would have %d bytes together, of at most %d; remove one first", total, maxInstalledBytes)
	}
	return nil
}

func errTaken(name string) error {
	return sandbox.Errorf(sandbox.Conflict, "there is a plugin %q already; remove it first, or ask to replace it", name)
}

// free looks whether a name is taken by a plugin that all users have.
func free(shared *stateFile, name string, req sandbox.PluginInstall) error {
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
func (s *Service) Sweep() error { return s.installer.sweep() }

func (i *installer) sweep() error {
	i.changing.Lock()
	defer i.changing.Unlock()
	used, err := i.states.used()
	if err != nil {
		return err
	}
	return i.store.Sweep(used)
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
		case m.ofServer:
			return errOfServer
		case m.shared && !c.Admin():
			return errShared
		}
		rec.Detail = m.record.Digest
		if err := s.installer.unlist(ctx, c.Owner, m); err != nil {
			return err
		}
		s.o.Changed()
		err = errors.Join(s.installer.forget(ctx, c.Owner, m), s.forgetServers(c.Owner, m))
		if swept := s.installer.sweep(); swept != nil {
			err = errors.Join(err, sandbox.Wrap(sandbox.Internal, swept, "the plugin is removed, but files of it stay behind"))
		}
		return err
	})
}

// unlist takes a plugin off its list.
func (i *installer) unlist(ctx context.Context, o sandbox.Owner, m *member) error {
	shared, file, err := i.states.of(o)
	if err != nil {
		return err
	}
	if m.shared {
		file = shared
	}
	return file.edit(ctx, func(st *state) error {
		if _, ok := st.Plugins[m.name]; !ok {
			return sandbox.Errorf(sandbox.NotFound, "there is no plugin %.80q", m.name)
		}
		delete(st.Plugins, m.name)
		return nil
	})
}

// forgetServers has what a plugin's MCP servers kept removed.
func (s *Service) forgetServers(o sandbox.Owner, m *member) error {
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

// forget removes what was said of a plugin: by its user, or by all users for a plugin that all have.
func (i *installer) forget(ctx context.Context, o sandbox.Owner, m *member) error {
	if !m.shared {
		return i.extensions.Forget(ctx, o, extensions.PluginsSection, m.name)
	}
	var errs []error
	for _, user := range i.extensions.Users(o.Tenant) {
		st, err := i.states.at(filepath.Join(i.states.dir, "tenants", o.Tenant, "users", user, "plugins.json")).current()
		if err == nil && st.Plugins[m.name].Digest == "" { // else it was said of the user's own
			errs = append(errs, i.extensions.Forget(ctx, sandbox.Owner{Tenant: o.Tenant, User: user}, extensions.PluginsSection, m.name))
		}
	}
	return errors.Join(errs...)
}

// Switch switches a plugin on or off for the caller. NotFound.
func (s *Service) Switch(ctx context.Context, c sandbox.Caller, name string, on bool) (sandbox.Plugin, error) {
	return change(ctx, s, c, name, func(_ *member, rec *audit.Record) error {
		rec.Detail = map[bool]string{true: "on", false: "off"}[on]
		return s.o.Extensions.SetEnabled(ctx, c.Owner, extensions.PluginsSection, name, on)
	})
}

// SetValues sets values that a plugin asks the caller for: nil removes one, "***" keeps a sensitive one. NotFound; Invalid
// naming the values that are wrong.
func (s *Service) SetValues(ctx context.Context, c sandbox.Caller, name string, values map[string]any) (sandbox.Plugin, error) {
	return change(ctx, s, c, name, func(m *member, rec *audit.Record) error {
		if err := checkValues(m.plugin, values); err != nil {
			return err
		}
		rec.Detail = "values: " + strings.Join(sorted(values), ", ")
		return s.values.set(ctx, c.Owner, m.plugin, name, values)
	})
}

func change(ctx context.Context, s *Service, c sandbox.Caller, name string, how func(*member, *audit.Record) error) (sandbox.Plugin, error) {
	var done sandbox.Plugin
	err := s.recorded(ctx, c, audit.ActionPluginChange, name, "", func(rec *audit.Record) error {
		set, err := s.Set(c.Owner)
		if err != nil {
			return err
		}
		m, err := set.find(name)
		if err != nil {
			return err
		}
		if err := how(m, rec); err != nil {
			return err
		}
		s.o.Changed()
		done, err = s.Get(ctx, c, name)
		return err
	})
	return done, err
}
