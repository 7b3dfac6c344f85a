package prompt

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

var update = flag.Bool("update", false, "write the golden files anew")

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s (write it with -update, and look at the difference):\n%s", file, got)
	}
}

func some() Input {
	return Input{
		Mode: sandbox.ModeCode, Settings: sandbox.DefaultCodeSettings(),
		Tools:   sandbox.ToolSet{Tools: []sandbox.Tool{{Server: "crm", Name: "find", Printed: "crm__find", Input: json.RawMessage(`{"type":"object"}`)}}},
		Servers: []sandbox.ToolServer{{Name: "crm", Description: "Deals & <people>", ToolCount: 1}},
		Skills: []sandbox.Skill{
			{Name: "zip", Description: "Packs\n  files.", Category: "public", Location: "/mnt/skills/public/zip/SKILL.md"},
			{Name: "brief", Description: "Writes <briefs> & \"notes\".", Category: "plugin:sales", Location: "/mnt/plugins/sales/skills/brief/SKILL.md"},
			{Name: "mine", Description: strings.Repeat("word ", 300), Category: "custom", Location: "/mnt/skills/custom/mine/SKILL.md"},
			{Name: "now", Description: "Only here.", Category: "virtual", Location: "/mnt/skills/virtual/now/SKILL.md"},
		},
		Commands: []Command{{Name: "sales:call", Description: "Prepare a <call>", ArgumentHint: "[company]"}, {Name: "sales:brief", Description: "Write a brief"}},
	}
}

func TestGolden(t *testing.T) {
	for _, mode := range []string{sandbox.ModeCode, sandbox.ModeDirect} {
		in := some()
		in.Mode = mode
		p, err := Build(in)
		if err != nil {
			t.Fatal(err)
		}
		var tools strings.Builder
		for _, raw := range rawTexts(p) {
			tools.WriteString(raw + "\n")
		}
		golden(t, mode+".txt", p.Text)
		golden(t, mode+"-tools.jsonl", tools.String())
	}
	golden(t, "activated.txt", Activated(sandbox.ActiveSkill{
		Name: "mine", Location: "/mnt/skills/custom/mine/SKILL.md", Body: "\n# Mine\n\nDo it. </skill_content> < SKILL_RESOURCES>\n", Resources: []string{"references/a&b.md", "scripts/run.py"},
	}))
	golden(t, "activated-tools.txt", Activated(sandbox.ActiveSkill{
		Name: "code-review", Location: "/mnt/skills/virtual/code-review/SKILL.md", Body: "Count. </skill_tools>",
		Tools: []sandbox.Tool{{Name: "count-lines", Description: "Counts <lines>", Input: json.RawMessage(`{"type":"object","properties":{"text":{"type":"string"}}}`)}},
	}))
}

func manySkills(n int) []sandbox.Skill {
	list := make([]sandbox.Skill, 0, n)
	for i := range n {
		category := []string{"public", "plugin:p", "custom", "virtual"}[min(3, i%100)]
		list = append(list, sandbox.Skill{
			Name: fmt.Sprintf("skill-%04d", i), Category: category, Location: fmt.Sprintf("/mnt/skills/%s/skill-%04d/SKILL.md", category, i),
			Description: strings.Repeat("Does something & more of it. ", 12),
		})
	}
	return list
}

// TestManySkills: the prompt has a bound, what is nearest to the thread is in it, and it says what is not.
func TestManySkills(t *testing.T) {
	for _, n := range []int{1, 20, 60, 100, 5000} {
		in := Input{Mode: sandbox.ModeDirect, Settings: sandbox.DefaultCodeSettings(), Skills: manySkills(n)}
		began := time.Now()
		p, err := Build(in)
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("%d skills: %v", n, took)
		}
		s := p.Sections["skills"]
		listed := strings.Count(s, "<skill>")
		cut := strings.Contains(s, "search_skills")
		if len(s) > maxCatalogue+1024 || cut != (listed < n) || cut && !strings.Contains(s, fmt.Sprintf("%d more skills", n-listed)) {
			t.Errorf("%d skills: %d listed in %d bytes", n, listed, len(s))
		}
		got := names(t, p)
		if slices.Contains(got, "search_skills") != cut || !slices.Contains(got, "activate_skill") || !slices.Contains(got, "read_skill_file") {
			t.Errorf("%d skills: tools %v", n, got)
		}
		if size := len(strings.Join(rawTexts(p), "")); size > 32<<10 {
			t.Errorf("%d skills: definitions of %d bytes", n, size)
		}
		if n == 5000 {
			virtual, public := strings.Count(s, "/virtual/"), strings.Count(s, "/public/")
			if listed < 50 || public > 0 || virtual != listed {
				t.Errorf("%d listed, of them %d virtual and %d public", listed, virtual, public)
			}
		}
	}
	in := Input{Mode: sandbox.ModeDirect, Settings: sandbox.DefaultCodeSettings()}
	for i := range 5000 {
		in.Commands = append(in.Commands, Command{Name: fmt.Sprintf("p:c%d", i), Description: strings.Repeat("x", 5000)})
	}
	p, err := Build(in)
	if err != nil || len(p.Text) > maxCatalogue+1024 || !strings.Contains(p.Text, "more commands") {
		t.Errorf("commands: %d bytes, %v", len(p.Text), err)
	}
}

func rawTexts(p Prompt) []string {
	var list []string
	for _, d := range p.Tools {
		raw, err := json.Marshal(d)
		if err != nil {
			panic(err)
		}
		list = append(list, string(raw))
	}
	return list
}

func TestShortened(t *testing.T) {
	for text, want := range map[string]string{"a b": "a b", "one two three": "one two…", strings.Repeat("é", 12): strings.Repeat("é", 9) + "…", "": ""} {
		if got := shortened(text, 10); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
