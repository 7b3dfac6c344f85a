package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/policy"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/skills"
)

func TestVirtualSkillIsLikeAnyOther(t *testing.T) {
	t.Parallel()
	h := newHouse(t, daemon{run: exits})
	if _, err := h.exec(t, "t1", time.Minute); err != nil { // its sandbox runs
		t.Fatal(err)
	}
	sk := sandbox.VirtualSkill{Name: "now", Description: "Counts the beans", Body: "Run ${CLAUDE_SKILL_DIR}/scripts/run.py\n", Files: map[string]string{"scripts/run.py": "print(1)"}}
	if _, err := h.Skills.Threads.AddVirtualSkill(t.Context(), caller, "t1", sk); err != nil {
		t.Fatal(err)
	}
	inst := h.live.Find(sandbox.Thread{Owner: caller.Owner, ID: "t1"})
	shown := filepath.Join(h.seen(inst, sandbox.SkillsDir, inst.Skills.Folder.Skills()), "virtual", "now", "scripts", "run.py")
	if text, err := os.ReadFile(shown); err != nil || string(text) != "print(1)" {
		t.Errorf("in the sandbox: %q, %v", text, err)
	}
	a, err := h.Skills.Threads.ActivateSkill(t.Context(), caller, "t1", "now")
	if err != nil || a.Body != "\nRun /mnt/skills/virtual/now/scripts/run.py\n" || !slices.Equal(a.Resources, []string{"scripts/run.py"}) || a.Location != "/mnt/skills/virtual/now/SKILL.md" {
		t.Errorf("%+v, %v", a, err)
	}
	p, err := h.Prompts.Prompt(t.Context(), caller, "t1")
	if err != nil || !strings.Contains(p.Sections["skills"], "<name>now</name>") {
		t.Errorf("prompt: %s, %v", p.Text, err)
	}
	found, n, err := h.Skills.Threads.SearchSkills(t.Context(), caller, "t1", "count beans")
	if err != nil || n != 1 || len(found) != 1 || found[0].Name != "now" {
		t.Errorf("%+v, %v", found, err)
	}
	id, err := h.Runs.RunScript(t.Context(), caller, "t1", sandbox.Script{Skill: "now", Path: "scripts/run.py"})
	if err == nil {
		_, err = h.Execs.Wait(t.Context(), caller, "t1", id)
	}
	if err != nil {
		t.Errorf("run: %v", err)
	}
	if list, err := h.Skills.Threads.ThreadSkills(t.Context(), caller, "t2"); err != nil || len(list) != 0 {
		t.Errorf("another thread has %+v, %v", list, err)
	}
	if err := h.Skills.Threads.RemoveVirtualSkill(t.Context(), caller, "t1", "now"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Dir(filepath.Dir(shown))); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("still in the sandbox: %v", err)
	}
	if _, err := h.Skills.Threads.ActivateSkill(t.Context(), caller, "t1", "now"); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("%v", err)
	}
	if err := h.Skills.Threads.RemoveVirtualSkill(t.Context(), caller, "t1", "now"); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("%v", err)
	}
	if _, err := h.Skills.Threads.AddVirtualSkill(t.Context(), caller, "t1", sk); err != nil {
		t.Fatal(err)
	}
	if err := h.Threads.DeleteThread(t.Context(), caller, "t1"); err != nil {
		t.Fatal(err)
	}
	if err := h.Skills.Threads.RemoveVirtualSkill(t.Context(), caller, "t1", "now"); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("a skill of a thread that is gone: %v", err)
	}
}

// TestScriptsOfUntrustedSourcesWantAnApproval: they run once a person agrees, as they are then, and else have an end
// in the log that says why not.
func TestScriptsOfUntrustedSourcesWantAnApproval(t *testing.T) {
	t.Parallel()
	h := newHouseWith(t, daemon{run: exits}, noTools{}, func(o *Options) { o.Tools.Secrets = values{"RUN": "secret-of-the-run"} })
	add := func(name, script string, trusted bool) {
		t.Helper()
		files := fstest.MapFS{
			"SKILL.md": {Data: fmt.Appendf(nil, "---\nname: %s\ndescription: does\n---\n", name)}, "run.sh": {Data: []byte(script)},
		}
		if _, err := h.o.Skills.Add(t.Context(), caller.Owner, name, files, skills.AddOptions{Trusted: trusted}); err != nil {
			t.Fatal(err)
		}
		if _, err := h.Skills.Threads.ActivateSkill(t.Context(), caller, "t1", name); err != nil {
			t.Errorf("its instructions: %v", err)
		}
	}
	run := func(name string) error {
		t.Helper()
		id, err := h.Runs.RunScript(t.Context(), caller, "t1", sandbox.Script{Skill: name, Path: "run.sh", Args: []string{"word"}, EnvSecrets: map[string]string{"K": "RUN"}, Stdin: "secret-of-the-run"})
		if err == nil {
			_, err = h.Execs.Wait(t.Context(), caller, "t1", id)
		}
		return err
	}
	add("mine", "true", true)
	add("theirs", "true", false)
	if err := run("mine"); err != nil {
		t.Errorf("a trusted one: %v", err)
	}
	if err := run("theirs"); !errors.Is(err, sandbox.Forbidden) || !strings.Contains(err.Error(), "denied by nobody") {
		t.Errorf("nobody approves: %v", err)
	}
	list, _, err := h.audit.List(t.Context(), audit.Filter{Tenant: caller.Tenant, Action: audit.ActionSkillRun, Outcome: "denied"})
	if err != nil || len(list) != 1 || list[0].Detail != "denied by nobody" || list[0].Parent == "" {
		t.Errorf("its end: %+v, %v", list, err)
	}
	var asked policy.ApprovalRequest
	h.approve = func(_ context.Context, r policy.ApprovalRequest) error { asked = r; return nil }
	if err := run("theirs"); err != nil {
		t.Errorf("approved: %v", err)
	}
	text := string(asked.Shown)
	if asked.Request.Skill != "theirs" || asked.Attempt == "" || !strings.Contains(text, `"script":"run.sh","digest":"`) || !strings.Contains(text, `"args":["word"]`) || strings.Contains(text, "secret-of") {
		t.Errorf("%+v: %s", asked.Request, text)
	}
	h.approve = func(context.Context, policy.ApprovalRequest) error {
		if err := h.o.Skills.Remove(t.Context(), caller.Owner, "theirs"); err != nil {
			return err
		}
		add("theirs", "false", false)
		return nil
	}
	if err := run("theirs"); !errors.Is(err, sandbox.Conflict) {
		t.Errorf("it changed while somebody thought about it: %v", err)
	}
}

// TestSearchInManySkills: the right one comes first.
func TestSearchInManySkills(t *testing.T) {
	t.Parallel()
	h := newHouse(t, daemon{run: exits})
	files := fstest.MapFS{}
	for i := range 300 {
		name := fmt.Sprintf("s%d", i)
		files["SKILL.md"] = &fstest.MapFile{Data: fmt.Appendf(nil, "---\nname: %s\ndescription: handles number %d of things\n---\n", name, i)}
		if i == 77 {
			files["SKILL.md"] = &fstest.MapFile{Data: []byte("---\nname: s77\ndescription: Prepares invoices for customers\n---\n")}
		}
		if _, err := h.o.Skills.Add(t.Context(), caller.Owner, name, files, skills.AddOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for query, want := range map[string]string{"write an invoice": "s77", "": "s0", "number 12 of things": "s12"} {
		found, n, err := h.Skills.Threads.SearchSkills(t.Context(), caller, "t1", query)
		if err != nil || len(found) == 0 || found[0].Name != want || len(found) > 15 || n < len(found) {
			t.Errorf("%q: %d of %d, first %+v, %v", query, len(found), n, found[:min(len(found), 1)], err)
		}
	}
}
