package plugins

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/platform/download"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Marketplaces lists what was added for the caller's tenant, by name.
func (s *Service) Marketplaces(_ context.Context, c sandbox.Caller) ([]sandbox.Marketplace, error) {
	set, err := s.Set(c.Owner)
	if err != nil {
		return nil, err
	}
	list := []sandbox.Marketplace{}
	for _, name := range sorted(set.shared.Marketplaces) {
		v, err := set.marketplace(name)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, nil
}

func (set *Set) marketplace(name string) (sandbox.Marketplace, error) {
	rec, ok := set.shared.Marketplaces[name]
	if !ok {
		return sandbox.Marketplace{}, sandbox.Errorf(sandbox.NotFound, "there is no marketplace %.80q", name)
	}
	m, err := ParseMarketplace(rec.List)
	if err != nil {
		return sandbox.Marketplace{}, errDamagedList(err)
	}
	v := sandbox.Marketplace{
		Name: name, Owner: m.Owner, Description: m.Description, AddedAt: rec.AddedAt, Plugins: []sandbox.MarketplaceEntry{}, Findings: append([]sandbox.Finding{}, m.Findings...),
		Source: sandbox.PluginSource{Kind: rec.Source.Kind, From: download.Shown(rec.Source.URL), Ref: rec.Source.Ref, Commit: rec.Commit, Path: rec.Source.Path, SHA256: rec.SHA256},
	}
	if rec.Source.Kind == SourceFolder {
		v.Source.From = filepath.Base(rec.Source.URL)
	}
	for _, e := range m.Entries {
		shown := e.view()
		shown.Installed = slices.ContainsFunc(set.list, func(p *member) bool { return p.name == e.Name && p.record.Source.Marketplace == name })
		v.Plugins = append(v.Plugins, shown)
	}
	for _, e := range m.Skills {
		v.Skills = append(v.Skills, e.view())
	}
	return v, nil
}

func (e *Entry) view() sandbox.MarketplaceEntry {
	return sandbox.MarketplaceEntry{
		Name: e.Name, DisplayName: e.DisplayName, Description: e.Description, Version: e.Version, Category: e.Category, Source: e.Source.Kind,
		Pinned: e.Source.SHA != "" || e.Source.SHA256 != "" || e.Source.Kind == SourcePath, Problem: e.Problem,
	}
}

// AddMarketplace adds a marketplace for the caller's tenant, or reads one anew that was added. Forbidden for who is no
// administrator; else as Install.
func (s *Service) AddMarketplace(ctx context.Context, c sandbox.Caller, req sandbox.PluginInstall) (sandbox.Marketplace, error) {
	ctx, cancel := context.WithTimeout(ctx, installTime)
	defer cancel()
	var done sandbox.Marketplace
	err := s.recorded(ctx, c, audit.ActionMarketplaceAdd, download.Shown(req.From), "", func(rec *audit.Record) error {
		if !c.Admin() {
			return errShared
		}
		src, err := sourceOf(req)
		if err != nil {
			return err
		}
		name, m, err := s.fetch.marketplace(ctx, src)
		if err != nil {
			return err
		}
		rec.Detail = name + " " + m.Commit
		shared, _, err := s.states.of(c.Owner)
		if err != nil {
			return err
		}
		err = shared.edit(ctx, func(st *state) error {
			if old, ok := st.Marketplaces[name]; ok && old.Source.URL != m.Source.URL && !req.Replace {
				return sandbox.Errorf(sandbox.Conflict, "there is a marketplace %q from another address already; remove it first", name)
			}
			if st.Marketplaces[name] = m; len(st.Marketplaces) > maxMarketplaces {
				return sandbox.Errorf(sandbox.QuotaExceeded, "there are %d marketplaces already", maxMarketplaces)
			}
			return nil
		})
		if err != nil {
			return err
		}
		set, err := s.Set(c.Owner)
		if err == nil {
			done, err = set.marketplace(name)
		}
		return err
	})
	return done, err
}

// marketplace fetches a list, and remembers which version of its source it is from.
func (f *fetcher) marketplace(ctx context.Context, src Source) (string, marketplace, error) {
	m := marketplace{Source: src, AddedAt: time.Now().UTC()}
	switch src.Kind {
	case SourceGit:
		repo, err := f.repo(ctx, src)
		if err != nil {
			return "", m, err
		}
		m.Commit = repo.Commit()
		m.List, err = repo.File(path.Join(folderOf(src.Path), marketplaceFile), MaxMarketplace)
		if errors.Is(err, sandbox.NotFound) {
			m.List, err = repo.File(path.Join(folderOf(src.Path), plainMarketFile), MaxMarketplace)
		}
		if err != nil {
			return "", m, err
		}
	default:
		got, err := f.fetch(ctx, src)
		if err != nil {
			return "", m, err
		}
		defer got.Remove() //nolint:errcheck // the folder for installs is emptied at the next start
		root, err := os.OpenRoot(got.Dir)
		if err != nil {
			return "", m, sandbox.Wrap(sandbox.Internal, err, "the marketplace cannot be read")
		}
		defer root.Close() //nolint:errcheck // it was read
		l := &loader{root: root, p: &Plugin{}}
		if m.List, err = l.read(l.marketFile(), MaxMarketplace); err != nil {
			return "", m, err
		}
		m.SHA256 = got.source.SHA256
	}
	list, err := ParseMarketplace(m.List)
	if err != nil {
		return "", m, err
	}
	if len(list.Name) == 0 || !json.Valid(m.List) {
		return "", m, sandbox.Errorf(sandbox.Invalid, "marketplace.json is damaged")
	}
	return list.Name, m, nil
}

// RemoveMarketplace removes a marketplace; what was installed from it stays. Forbidden, NotFound.
func (s *Service) RemoveMarketplace(ctx context.Context, c sandbox.Caller, name string) error {
	return s.recorded(ctx, c, audit.ActionMarketplaceRemove, name, "", func(*audit.Record) error {
		if !c.Admin() {
			return errShared
		}
		shared, _, err := s.states.of(c.Owner)
		if err != nil {
			return err
		}
		return shared.edit(ctx, func(st *state) error {
			if _, ok := st.Marketplaces[name]; !ok {
				return sandbox.Errorf(sandbox.NotFound, "there is no marketplace %.80q", name)
			}
			delete(st.Marketplaces, name)
			return nil
		})
	})
}

// entry returns the source of a plugin of a marketplace, pinned as the marketplace is, and what this says of it.
func (st *state) entry(req sandbox.PluginInstall) (Source, json.RawMessage, error) {
	src, e, err := st.listed(req.Marketplace, func(m *Marketplace) (*Entry, error) { return m.Find(req.Plugin) })
	if err != nil {
		return src, nil, err
	}
	raw, err := json.Marshal(e.fields)
	if err != nil {
		return Source{}, nil, errDamagedList(err)
	}
	return src, raw, nil
}

func errDamagedList(err error) error {
	return sandbox.Wrap(sandbox.Internal, err, "the list of the marketplace is damaged; add it again")
}

// listed returns what find finds in a marketplace, and its source, pinned as the marketplace is.
func (st *state) listed(market string, find func(*Marketplace) (*Entry, error)) (Source, *Entry, error) {
	rec, ok := st.Marketplaces[market]
	if !ok {
		return Source{}, nil, sandbox.Errorf(sandbox.NotFound, "there is no marketplace %.80q", market)
	}
	m, err := ParseMarketplace(rec.List)
	if err != nil {
		return Source{}, nil, errDamagedList(err)
	}
	e, err := find(m)
	if err != nil {
		return Source{}, nil, err
	}
	if e.Problem != "" {
		return Source{}, nil, sandbox.Errorf(sandbox.NotSupported, "%q cannot be installed: %s", e.Name, e.Problem)
	}
	src := e.Source
	if src.Kind == SourcePath {
		inner := src.Path
		src = rec.Source
		src.Path = strings.TrimPrefix(path.Join(folderOf(rec.Source.Path), inner), "./")
		if rec.Commit != "" {
			src.SHA = rec.Commit
		}
		if rec.SHA256 != "" {
			src.SHA256 = rec.SHA256
		}
	}
	return src, e, nil
}
