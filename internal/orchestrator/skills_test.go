package orchestrator

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/config/extensions"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	skill "github.com/skerry-sandbox/skerry/internal/skills"
	"github.com/skerry-sandbox/skerry/internal/workspace/paths"
)

func skillText(name string) string {
	return "---\nname: " + name + "\ndescription: does " + name + "\n---\nbody\n"
}

func (h *house) publicSkill(t *testing.T, name string) {
	t.Helper()
	dir := filepath.Join(h.public, name)
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "SKILL.md"), []byte(skillText(name)), 0o644)); err != nil {
		t.Fatal(err)
	}
}

func (h *house) customSkill(t *testing.T, o sandbox.Owner, name string) {
	t.Helper()
	files := fstest.MapFS{"SKILL.md": {Data: []byte(skillText(name))}, "run.py": {Data: []byte("print(1)\n")}}
	if _, err := h.o.Skills.Add(t.Context(), o, name, files, skill.AddOptions{}); err != nil {
		t.Fatal(err)
	}
}

// inside lists the skills that a thread's sandbox shows.
func (h *house) inside(t *testing.T, thread string) (all []string) {
	t.Helper()
	inst := h.live.Find(sandbox.Thread{Owner: caller.Owner, ID: thread})
	if inst == nil {
		t.Fatalf("thread %s has no sandbox", thread)
	}
	return below(t, h.seen(inst, sandbox.SkillsDir, inst.Skills.Folder.Skills()))
}

func below(t *testing.T, dir string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) { // it is changed while it is read
			return nil
		}
		if err == nil && d.Name() == "SKILL.md" {
			p, err = filepath.Rel(dir, filepath.Dir(p))
			all = append(all, p)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// throughFiles lists them by the file API.
func (h *house) throughFiles(t *testing.T, thread string) (all []string) {
	t.Helper()
	err := h.Files.ReadFiles(t.Context(), caller, thread, func(f *paths.FS) error {
		for _, group := range []string{"custom", "public", "virtual"} {
			list, err := f.List(t.Context(), sandbox.SkillsDir+"/"+group, 1, 100)
			if err != nil {
				return err
			}
			for _, e := range list.Items {
				all = append(all, strings.TrimPrefix(e.Path, sandbox.SkillsDir+"/"))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func (h *house) acquire(t *testing.T, thread string, skills []string) error {
	t.Helper()
	_, err := h.Starts.Acquire(t.Context(), caller, thread, sandbox.AcquireOptions{Skills: skills})
	return err
}

func (h *house) named(t *testing.T, thread string) (all []string) {
	t.Helper()
	list, err := h.Skills.Threads.ThreadSkills(t.Context(), caller, thread)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range list {
		all = append(all, m.Name)
	}
	return all
}

var promptedName = regexp.MustCompile(`<skill><name>(.*?)</name>`)

// prompted lists the skills in the prompt of a thread.
func (h *house) prompted(t *testing.T, thread string) (all []string) {
	t.Helper()
	p, err := h.Prompts.Prompt(t.Context(), caller, thread)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range promptedName.FindAllStringSubmatch(p.Sections["skills"], -1) {
		all = append(all, m[1])
	}
	return all
}

func TestThreadsSeeTheirSkills(t *testing.T) {
	t.Parallel()
	h := newHouse(t, daemon{run: exits})
	h.publicSkill(t, "a")
	h.publicSkill(t, "b")
	h.customSkill(t, caller.Owner, "c")
	h.customSkill(t, sandbox.Owner{Tenant: "t", User: "other"}, "foreign")
	if err := errors.Join(h.acquire(t, "all", nil), h.acquire(t, "narrow", []string{"c", "a"})); err != nil {
		t.Fatal(err)
	}
	check := func(thread string, want ...string) {
		t.Helper()
		if got := h.inside(t, thread); !slices.Equal(got, want) {
			t.Errorf("%s shows %q, want %q", thread, got, want)
		}
		if got := h.throughFiles(t, thread); !slices.Equal(got, want) {
			t.Errorf("%s by files: %q, want %q", thread, got, want)
		}
		var names []string
		for _, w := range want {
			names = append(names, filepath.Base(w))
		}
		slices.Sort(names)
		if got := h.named(t, thread); !slices.Equal(got, names) {
			t.Errorf("%s lists %q, want %q", thread, got, names)
		}
		if got := h.prompted(t, thread); !slices.Equal(got, names) {
			t.Errorf("the prompt of %s lists %q, want %q", thread, got, names)
		}
	}
	check("all", "custom/c", "public/a", "public/b")
	check("narrow", "custom/c", "public/a")
	if _, err := h.Skills.SwitchSkill(t.Context(), caller, "a", false, false); err != nil {
		t.Fatal(err)
	}
	check("all", "custom/c", "public/b") // at once: no waiting
	check("narrow", "custom/c")
	if err := h.Skills.DeleteSkill(t.Context(), caller, "c"); err != nil {
		t.Fatal(err)
	}
	check("all", "public/b")
	check("narrow")
	if err := h.acquire(t, "narrow", []string{sandbox.AllSkills}); err != nil {
		t.Fatal(err)
	}
	check("narrow", "public/b")
	if err := h.acquire(t, "narrow", []string{}); err != nil {
		t.Fatal(err)
	}
	check("narrow")
	if err := h.acquire(t, "narrow", []string{"typo"}); !errors.Is(err, sandbox.Invalid) {
		t.Errorf("%v", err)
	}
	// Without a sandbox the thread has the same: its list outlives it.
	if err := errors.Join(h.Threads.ReleaseSandbox(t.Context(), caller, "narrow"), h.Threads.ReleaseSandbox(t.Context(), caller, "all")); err != nil {
		t.Fatal(err)
	}
	if got := h.throughFiles(t, "narrow"); len(got) != 0 {
		t.Errorf("%q", got)
	}
	if got := h.throughFiles(t, "all"); !slices.Equal(got, []string{"public/b"}) {
		t.Errorf("%q", got)
	}
	if err := h.acquire(t, "narrow", nil); err != nil {
		t.Fatal(err)
	}
	check("narrow")
}

// TestReadsOfANewThread: agents read their skills and an empty workspace before anything made the thread, and do not
// make it by that.
func TestReadsOfANewThread(t *testing.T) {
	t.Parallel()
	h := newHouse(t, daemon{run: exits})
	h.publicSkill(t, "pdf")
	h.customSkill(t, caller.Owner, "mine")
	if got := h.throughFiles(t, "new"); !slices.Equal(got, []string{"custom/mine", "public/pdf"}) {
		t.Errorf("skills: %q", got)
	}
	err := h.Files.ReadFiles(t.Context(), caller, "new", func(f *paths.FS) error {
		if text, err := f.Read(sandbox.SkillsDir+"/public/pdf/SKILL.md", 0, 0); err != nil || !strings.Contains(text.Content, "does pdf") {
			t.Errorf("SKILL.md: %q, %v", text.Content, err)
		}
		if _, err := f.Read(sandbox.UserDataDir+"/workspace/a", 0, 0); !errors.Is(err, sandbox.NotFound) {
			t.Errorf("a file that is not there: %v", err)
		}
		list, err := f.List(t.Context(), sandbox.UserDataDir, 2, 100)
		var names []string
		for _, e := range list.Items {
			names = append(names, strings.TrimPrefix(e.Path, sandbox.UserDataDir+"/"))
		}
		if !slices.Equal(names, []string{"outputs", "uploads", "workspace"}) {
			t.Errorf("%s has %q", sandbox.UserDataDir, names)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if _, err := h.Threads.Thread(t.Context(), caller, "new"); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("reading made the thread: %v", err)
	}
}

// TestChangesOfOthersArePushed: what another process writes reaches sandboxes in which nothing runs.
func TestChangesOfOthersArePushed(t *testing.T) {
	t.Parallel()
	h := newHouse(t, daemon{run: exits})
	h.publicSkill(t, "a")
	if err := h.acquire(t, "x", nil); err != nil {
		t.Fatal(err)
	}
	other, err := extensions.New(h.extensions.Path())
	if err != nil {
		t.Fatal(err)
	}
	shows := func(want ...string) func() bool {
		return func() bool { return slices.Equal(h.inside(t, "x"), want) }
	}
	for range 3 {
		if err := other.SetEnabled(t.Context(), caller.Owner, "skills", "a", false); err != nil {
			t.Fatal(err)
		}
		t.Logf("off: %v", within(t, 20*time.Second, "a skill that was switched off", shows()))
		if err := other.SetEnabled(t.Context(), caller.Owner, "skills", "a", true); err != nil {
			t.Fatal(err)
		}
		t.Logf("on: %v", within(t, 20*time.Second, "a skill that was switched on", shows("public/a")))
	}
	h.publicSkill(t, "b")
	t.Logf("new: %v", within(t, 20*time.Second, "a new public skill", shows("public/a", "public/b")))
	h.customSkill(t, caller.Owner, "c")
	t.Logf("installed: %v", within(t, 20*time.Second, "a skill that was installed", shows("custom/c", "public/a", "public/b")))
	// An exec does not wait for the next round.
	if err := other.SetEnabled(t.Context(), caller.Owner, "skills", "b", false); err != nil {
		t.Fatal(err)
	}
	if _, err := h.exec(t, "x", time.Minute); err != nil || !shows("custom/c", "public/a")() {
		t.Errorf("an exec finds %q, %v", h.inside(t, "x"), err)
	}
}

func TestSkillChangesAreRecorded(t *testing.T) {
	t.Parallel()
	h := newHouse(t, daemon{run: exits})
	h.publicSkill(t, "a")
	h.customSkill(t, caller.Owner, "c")
	if sk, err := h.Skills.SwitchSkill(t.Context(), caller, "a", false, false); err != nil || sk.Enabled {
		t.Errorf("%+v, %v", sk, err)
	}
	if sk, err := h.Skills.WriteSkillText(t.Context(), caller, "c", []byte(skillText("new"))); err != nil || sk.Description != "does new" {
		t.Errorf("%+v, %v", sk, err)
	}
	if text, err := h.Skills.SkillText(t.Context(), caller, "c"); err != nil || string(text) != skillText("new") {
		t.Errorf("%s, %v", text, err)
	}
	_, e1 := h.Skills.WriteSkillText(t.Context(), caller, "c", []byte("none"))
	_, e2 := h.Skills.SwitchSkill(t.Context(), caller, "a", true, true)
	_, e3 := h.Skills.SwitchSkill(t.Context(), caller, "none", true, false)
	if !errors.Is(e1, sandbox.Invalid) || !errors.Is(e2, sandbox.Forbidden) || !errors.Is(e3, sandbox.NotFound) {
		t.Errorf("%v, %v, %v", e1, e2, e3)
	}
	admin := caller
	admin.Role, admin.Operator = sandbox.RoleAdmin, true
	if sk, err := h.Skills.SwitchSkill(t.Context(), admin, "a", true, true); err != nil || sk.Enabled { // the caller's own choice wins
		t.Errorf("%+v, %v", sk, err)
	}
	if err := h.Skills.DeleteSkill(t.Context(), caller, "c"); err != nil {
		t.Fatal(err)
	}
	var got []string
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for len(got) < 5 {
		items, _, err := h.audit.List(ctx, audit.Filter{Tenant: caller.Tenant})
		if err != nil {
			t.Fatal(err)
		}
		got = nil
		for _, r := range items {
			if r.Phase == audit.PhaseResult && strings.HasPrefix(r.Action, "skill_") {
				got = append(got, strings.TrimSpace(r.Action+" "+r.Subject+" "+r.Outcome+" "+r.Detail))
			}
		}
	}
	slices.Reverse(got)
	want := []string{"skill_switch a ok off", "skill_write c ok", "skill_write c error invalid", "skill_switch a ok on for everybody", "skill_delete c ok"}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// TestVirtualSkills: what a thread has in memory is in its view, and only there.
func TestVirtualSkills(t *testing.T) {
	t.Parallel()
	h := newHouse(t, daemon{run: exits})
	h.publicSkill(t, "a")
	if _, err := h.Skills.Threads.AddVirtualSkill(t.Context(), caller, "x", sandbox.VirtualSkill{Name: "v", Description: "v", Body: "Do it.\n"}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(h.acquire(t, "x", []string{"v"}), h.acquire(t, "y", nil)); err != nil {
		t.Fatal(err)
	}
	if got := h.inside(t, "x"); !slices.Equal(got, []string{"virtual/v"}) {
		t.Errorf("%q", got)
	}
	if got := h.inside(t, "y"); !slices.Equal(got, []string{"public/a"}) {
		t.Errorf("%q", got)
	}
	p, err := h.Prompts.Prompt(t.Context(), caller, "x")
	if err != nil || !strings.Contains(p.Text, "/mnt/skills/virtual/v/SKILL.md") || !strings.Contains(p.Sections["commands"], "/sales:call-prep") || strings.Contains(p.Text, "/public/a") {
		t.Errorf("%s, %v", p.Text, err)
	}
}

// TestBrokenSwitchesHideAll: when it cannot be known what is on, a new sandbox has nothing.
func TestBrokenSwitchesHideAll(t *testing.T) {
	t.Parallel()
	h := newHouse(t, daemon{run: exits})
	h.publicSkill(t, "a")
	if err := os.WriteFile(h.extensions.Path(), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := h.acquire(t, "x", nil); err != nil {
		t.Fatal(err)
	}
	if got := h.inside(t, "x"); len(got) != 0 {
		t.Errorf("%q", got)
	}
	if _, err := h.Skills.UserSkills(t.Context(), caller); !errors.Is(err, sandbox.Unavailable) {
		t.Errorf("%v", err)
	}
	if err := os.WriteFile(h.extensions.Path(), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	within(t, 20*time.Second, "the skills of a mended file", func() bool { return slices.Equal(h.inside(t, "x"), []string{"public/a"}) })
}
