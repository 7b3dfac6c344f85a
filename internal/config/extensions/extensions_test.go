package extensions

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

var (
	anna     = sandbox.Owner{Tenant: "t", User: "anna"}
	bert     = sandbox.Owner{Tenant: "t", User: "bert"}
	everyone = sandbox.Owner{}
)

func files(t *testing.T, text string) *Files {
	t.Helper()
	path := filepath.Join(t.TempDir(), "extensions_config.json")
	if text != "" {
		if err := os.WriteFile(path, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	f, err := New(path)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func skill(t *testing.T, f *Files, o sandbox.Owner, name string) bool {
	t.Helper()
	s, err := f.State(o)
	if err != nil {
		t.Fatal(err)
	}
	on, _ := s.Skill(name)
	return on
}

func TestUserWins(t *testing.T) {
	f := files(t, `{"skills":{"off":{"enabled":false},"plain":false,"other":{"x":1}}}`)
	for name, want := range map[string]bool{"off": false, "plain": false, "other": true, "unheard": true} {
		if skill(t, f, anna, name) != want {
			t.Errorf("%s is %v", name, !want)
		}
	}
	ctx := t.Context()
	if err := errors.Join(f.SetEnabled(ctx, anna, SkillsSection, "off", true), f.SetEnabled(ctx, bert, SkillsSection, "unheard", false)); err != nil {
		t.Fatal(err)
	}
	if !skill(t, f, anna, "off") || skill(t, f, bert, "off") || !skill(t, f, anna, "unheard") || skill(t, f, bert, "unheard") {
		t.Error("one user's choice is not that user's alone")
	}
	if err := f.SetEnabled(ctx, everyone, SkillsSection, "off", true); err != nil || !skill(t, f, bert, "off") {
		t.Errorf("the global file is not in force: %v", err)
	}
	if err := f.Forget(ctx, bert, SkillsSection, "unheard"); err != nil || !skill(t, f, bert, "unheard") {
		t.Errorf("%v", err)
	}
	if err := f.Forget(ctx, sandbox.Owner{Tenant: "t", User: "new"}, SkillsSection, "unheard"); err != nil {
		t.Error(err)
	}
	s, err := f.State(anna)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := f.State(anna); err != nil || again != s {
		t.Errorf("the state of files that stay is another one: %v", err)
	}
}

// TestAnotherProcessWrites: a second reader of the same files stands for another process.
func TestAnotherProcessWrites(t *testing.T) {
	f := files(t, "")
	other, err := New(f.Path())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		on := i%2 == 1
		if err := other.SetEnabled(t.Context(), anna, SkillsSection, "a", on); err != nil {
			t.Fatal(err)
		}
		if skill(t, f, anna, "a") != on {
			t.Fatalf("round %d: the write is not seen", i)
		}
	}
}

func TestWritesKeepWhatTheyDoNotKnow(t *testing.T) {
	const text = "{\n  \"unknown\" : [1,2.50],\n\t\"mcpServers\": {\"a\": {\"env\": {\"KEY\": \"${SECRET:-x}\"}}},\n  \"skills\": {\"a\": {\"enabled\": true, \"note\": \"mine\"}}\n}\n"
	t.Setenv("SECRET", "expanded")
	f := files(t, text)
	if err := f.SetEnabled(t.Context(), everyone, SkillsSection, "a", false); err != nil {
		t.Fatal(err)
	}
	out, err := os.ReadFile(f.Path())
	if want := strings.Replace(text, "true", "false", 1); err != nil || string(out) != want {
		t.Errorf("%s, %v", out, err)
	}
	if info, err := os.Stat(f.Path()); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("the mode is another one: %v, %v", info, err)
	}
	if raw, err := f.Raw(everyone, "mcpServers"); err != nil || !strings.Contains(string(raw), "${SECRET:-x}") {
		t.Errorf("%s, %v", raw, err)
	}
	left, err := os.ReadDir(filepath.Dir(f.Path()))
	if err != nil || len(left) != 1 {
		t.Errorf("%v, %v", left, err)
	}
}

func TestBrokenFiles(t *testing.T) {
	f := files(t, `{"skills":{"a":{"enabled":false}}}`)
	if skill(t, f, anna, "a") {
		t.Fatal("a is on")
	}
	for _, broken := range []string{`{"skills":`, `{"skills":[]}`, `{"skills":{"a":{"enabled":"no"}}}`, "\xff"} {
		if err := os.WriteFile(f.Path(), []byte(broken), 0o600); err != nil {
			t.Fatal(err)
		}
		if skill(t, f, anna, "a") || f.Problem() == nil {
			t.Errorf("%q: the last good state is not in force", broken)
		}
		if err := f.SetEnabled(t.Context(), everyone, SkillsSection, "a", true); !errors.Is(err, sandbox.Conflict) {
			t.Errorf("%q: %v", broken, err)
		}
		if fresh, err := New(f.Path()); err != nil {
			t.Error(err)
		} else if _, err := fresh.State(anna); !errors.Is(err, sandbox.Unavailable) || strings.Contains(err.(*sandbox.Error).Detail, filepath.Dir(f.Path())) { //nolint:errorlint,forcetypeassert // made by Wrap
			t.Errorf("%q at the start: %v", broken, err)
		}
	}
	if _, err := f.State(sandbox.Owner{Tenant: "..", User: "x"}); !errors.Is(err, sandbox.Invalid) {
		t.Errorf("%v", err)
	}
	none, err := New("")
	if err != nil || !skill(t, none, anna, "a") || !errors.Is(none.SetEnabled(t.Context(), anna, SkillsSection, "a", false), sandbox.NotSupported) {
		t.Errorf("without a file: %v", err)
	}
}

// TestNoWriteIsLost: many writers of one file, through readers of their own as if in other processes.
func TestNoWriteIsLost(t *testing.T) {
	f := files(t, "")
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			own, err := New(f.Path())
			for i := range 10 {
				err = errors.Join(err, own.SetEnabled(t.Context(), anna, SkillsSection, fmt.Sprintf("s%d-%d", w, i), false))
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for w := range 4 {
		for i := range 10 {
			if skill(t, f, anna, fmt.Sprintf("s%d-%d", w, i)) {
				t.Errorf("the write of s%d-%d is lost", w, i)
			}
		}
	}
}
