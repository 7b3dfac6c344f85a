package plugins

import (
	"bytes"
	"context"
	"io"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/skills/archive"
)

// SkillRegistry gets skills that are no part of a plugin from the marketplaces of a tenant.
type SkillRegistry struct{ service *Service }

// NewSkillRegistry makes one of the marketplaces that a service knows.
func NewSkillRegistry(s *Service) SkillRegistry { return SkillRegistry{s} }

// FetchSkill returns a skill of a marketplace as a .skill archive. Errors: NotFound (there is no such
// marketplace, or it has no such skill), NotSupported, and those of fetching and packing.
func (r SkillRegistry) FetchSkill(ctx context.Context, o sandbox.Owner, market, name string) (_ io.Reader, err error) {
	set, err := r.service.Set(o)
	if err != nil {
		return nil, err
	}
	src, e, err := set.shared.listed(market, func(m *Marketplace) (*Entry, error) { return m.FindSkill(name) })
	if err != nil {
		return nil, err
	}
	leave, err := r.service.installer.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	got, err := r.service.fetch.fetch(ctx, src)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err := got.Remove(); err != nil {
			r.service.o.Log.Warn("the folder of an install stays behind", "error", err)
		}
	}()
	var packed bytes.Buffer
	if err := archive.Pack(ctx, &packed, got.Dir, e.Name, archive.DefaultLimits()); err != nil {
		return nil, stageError(err)
	}
	return &packed, nil
}
