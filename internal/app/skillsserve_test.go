package app

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/config"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/skills"
)

// TestSkillSources: a server's list of sources makes public skills of everything readable, and the earlier
// source wins. A source that cannot be read does not affect the others.
func TestSkillSources(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	skillFolder(t, dir, "skills/public/first")
	skillFolder(t, dir, "many/second")
	skillFolder(t, dir, "many/first", "other.md", "x")
	skillFolder(t, dir, "single")
	list := filepath.Join(dir, "skills.json")
	text := `{"sources":[{"type":"file","path":"none.skill"},{"type":"dir","path":"many"},{"type":"dir","path":"single","trusted":false},{"type":"embedded"}]}`
	if err := os.WriteFile(list, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	p := &skillSources{cfg: config.Default(), log: slog.New(slog.NewTextHandler(&log, nil))}
	p.cfg.Data, p.cfg.Skills, p.cfg.SkillSources = filepath.Join(dir, "data"), filepath.Join(dir, "skills"), list
	p.into = filepath.Join(p.cfg.Data, "skills", "sourced")
	for range 2 { // a second start finds the same
		public, err := p.public(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		lib, err := skills.Open(skills.Options{
			Dir: filepath.Join(dir, "lib"), Users: filepath.Join(dir, "tenants"), Public: public, Log: p.log,
			State: func(sandbox.Owner) (skills.State, error) { return everySkill{}, nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		set, err := lib.Set(sandbox.Owner{Tenant: "default", User: "ann"})
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, s := range set.List() {
			if s.Trusted != (s.Name != "single") && !s.Broken {
				t.Errorf("%s: trusted is %v", s.Name, s.Trusted)
			}
			if !s.Broken {
				names = append(names, s.Name)
			}
		}
		if got := strings.Join(names, " "); got != "charts csv-profile documents first pdf research-notes second single spreadsheets" {
			t.Errorf("%s", got)
		}
	}
	if !strings.Contains(log.String(), "none.skill") {
		t.Errorf("the log does not name the source that failed: %s", &log)
	}
	p.cfg.Skills, p.cfg.SkillSources = "", ""
	if public, err := p.public(t.Context()); err != nil || len(public) != 1 {
		t.Errorf("%v, %v", public, err)
	} else if _, err := fs.Stat(public[0].FS, "csv-profile/SKILL.md"); err != nil {
		t.Errorf("without any setting: %v", err)
	}
	p.cfg.SkillSources, p.templates = list, []string{"base", "data"}
	if err := os.WriteFile(list, []byte(`{"sources":[{"type":"dir","path":"single","template":"dta"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := p.public(t.Context()); !errors.Is(err, sandbox.Invalid) || !strings.Contains(err.Error(), `"dta"; this server has the templates base, data`) {
		t.Errorf("a template that is not there: %v", err)
	}
	p.cfg.SkillSources = filepath.Join(dir, "none.json")
	if _, err := p.public(t.Context()); !errors.Is(err, sandbox.NotFound) {
		t.Error(err)
	}
}

// everySkill is a configuration that switches every skill on.
type everySkill struct{}

func (everySkill) Skill(string) (enabled, said bool) { return true, false }

// skillFolder makes the folder of a skill. extra are pairs of a path and a text.
func skillFolder(t *testing.T, dir, name string, extra ...string) {
	t.Helper()
	folder := filepath.Join(dir, name)
	files := append([]string{"SKILL.md", "---\nname: " + filepath.Base(name) + "\ndescription: does it\n---\nRead.\n"}, extra...)
	for i := 0; i < len(files); i += 2 {
		p := filepath.Join(folder, files[i])
		if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(files[i+1]), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
}
