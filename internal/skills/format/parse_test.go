package format

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

func rules(findings []sandbox.Finding) []string {
	var all []string
	for _, f := range findings {
		all = append(all, f.Rule)
	}
	return all
}

func TestParse(t *testing.T) {
	long := strings.Repeat("é", maxDescription+1)
	for name, c := range map[string]struct {
		text, description string
		rules             []string
	}{
		"clean":           {"---\nname: pdf\ndescription: reads\n---\nbody\n", "reads", nil},
		"end at once":     {"---\nname: pdf\ndescription: reads\n---", "reads", []string{"body-empty"}},
		"crlf":            {"---\r\nname: pdf\r\ndescription: reads\r\n---\r\nbody\r\n", "reads", []string{"crlf"}},
		"bom":             {"\ufeff---\nname: pdf\ndescription: reads\n---\nbody", "reads", []string{"byte-order-mark"}},
		"blank before":    {"\n\n---\nname: pdf\ndescription: reads\n---\nbody", "reads", []string{"frontmatter-not-first"}},
		"dashes within":   {"---\nname: pdf\ndescription: >-\n  a\n  --- b\n----: 1\n---\nbody", "a --- b", []string{"unknown-key"}},
		"unknown keys":    {"---\nname: pdf\ndescription: reads\ntriggers: [a]\nversion: 1.0\n---\nbody", "reads", []string{"unknown-key", "unknown-key"}},
		"other name":      {"---\nname: PDF Reader\ndescription: reads\n---\nbody", "reads", []string{"name-not-folder", "name-syntax"}},
		"no name":         {"---\ndescription: reads\n---\nbody", "reads", []string{"name-missing"}},
		"long":            {"---\nname: pdf\ndescription: " + long + "\n---\nbody", long, []string{"description-too-long"}},
		"colon":           {"---\nname: pdf\ndescription: Use when: it's asked\n---\nbody", "Use when: it's asked", []string{"yaml-repaired"}},
		"colon, two rows": {"---\nname: pdf\ndescription: Use when: a\n  or: b\nlicense: MIT\n---\nbody", "Use when: a or: b", []string{"yaml-repaired"}},
		"brackets":        {"---\nname: pdf\ndescription: d\nargument-hint: [a] [b]\n---\nbody", "d", []string{"yaml-repaired", "unknown-key"}},
		"folded":          {"---\nname: pdf\ndescription: >\n  Use when: a\n  b\n---\nbody", "Use when: a b", nil},
		"number":          {"---\nname: pdf\ndescription: 12\n---\nbody", "12", []string{"wrong-type"}},
		"twice":           {"---\nname: pdf\ndescription: a\ndescription: b\n---\nbody", "b", []string{"duplicate-key"}},
		"alias":           {"---\nname: pdf\ndescription: &d a\nlicense: *d\n---\nbody", "a", nil},
		"metadata":        {"---\nname: pdf\ndescription: d\nmetadata: {a: 1, b: x}\n---\nbody", "d", []string{"metadata-type"}},
		"not utf-8":       {"---\nname: pdf\ndescription: d\n---\nbo\xffdy", "d", []string{"not-utf8"}},
	} {
		sk, findings, err := Parse("pdf", []byte(c.text))
		if err != nil || sk.Broken || sk.Name != "pdf" || sk.Description != c.description || !slices.Equal(rules(findings), c.rules) || len(sk.Findings) != len(findings) {
			t.Errorf("%s: %+v, %v", name, sk, err)
		}
		if !json.Valid(sk.Frontmatter) {
			t.Errorf("%s: frontmatter %q", name, sk.Frontmatter)
		}
	}
}

func TestParseSaysWhatDoesNotLoad(t *testing.T) {
	bomb := "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n"
	for i := range 9 {
		n := string(rune('0' + i))
		m := string(rune('1' + i))
		bomb += "a" + m + ": &a" + m + " [" + strings.Repeat("*a"+n+",", 9) + "*a" + n + "]\n"
	}
	for name, c := range map[string]struct {
		folder, text, rule string
		line               int
	}{
		"empty":          {"a", "", "no-frontmatter", 1},
		"none":           {"a", "# hello", "no-frontmatter", 1},
		"open":           {"a", "---\nname: a\n", "frontmatter-not-closed", 1},
		"no description": {"a", "---\nname: a\n---\nbody", "no-description", 0},
		"blank":          {"a", "---\nname: a\ndescription: ' '\n---\nbody", "no-description", 3},
		"a list":         {"a", "---\nname: a\ndescription: [b]\n---\nbody", "no-description", 3},
		"nothing":        {"a", "---\n---\nbody", "no-description", 0},
		"a sequence":     {"a", "---\n- a\n---\nbody", "yaml", 2},
		"not YAML":       {"a", "---\nname: a\ndescription: b\n]: [\n---\nbody", "yaml", 4},
		"bomb":           {"a", "---\ndescription: d\n" + bomb + "---\nbody", "yaml-too-much", 6},
		"deep":           {"a", "---\ndescription: d\nx: " + strings.Repeat("[", 40) + strings.Repeat("]", 40) + "\n---\nbody", "yaml-too-much", 3},
		"itself":         {"a", "---\ndescription: d\nx: &x [*x]\n---\nbody", "yaml-too-much", 3},
		"large front":    {"a", "---\ndescription: " + strings.Repeat("d", maxFrontBytes) + "\n---\nbody", "frontmatter-too-large", 2},
		"large":          {"a", "---\ndescription: d\n---\n" + strings.Repeat("b", MaxTextBytes), "too-large", 0},
		"folder":         {"../a", "---\ndescription: d\n---\nbody", "folder-name", 0},
	} {
		sk, findings, err := Parse(c.folder, []byte(c.text))
		last := findings[len(findings)-1]
		if !errors.Is(err, sandbox.Invalid) || !sk.Broken || last.Rule != c.rule || last.Line != c.line || last.Severity != sandbox.SeverityError || last.File != "SKILL.md" {
			t.Errorf("%s: %+v, %v", name, sk, err)
		}
	}
}

func TestParseFields(t *testing.T) {
	sk, findings, err := Parse("a", []byte("---\nname: a\ndescription: d\nlicense: MIT\ncompatibility: needs git\n"+
		"allowed-tools: Bash(git add:*), Read  Write\nargument-hint: [file]\nuser-invocable: no\ndisable-model-invocation: on\n---\nbody"))
	if err != nil || sk.License != "MIT" || sk.Compatibility != "needs git" || !sk.Hidden || !sk.NotCallable || sk.ArgumentHint != "[file]" {
		t.Errorf("%+v, %v, %v", sk, findings, err)
	}
	if with, _, err := Parse("a", []byte("---\nname: a\ndescription: d\nmetadata: {version: \"1\", n: 2}\n---\nb")); err != nil || string(with.Metadata) != `{"n":2,"version":"1"}` {
		t.Errorf("metadata: %s, %v", with.Metadata, err)
	}
	if want := []string{"Bash(git add:*)", "Read", "Write"}; !slices.Equal(sk.AllowedTools, want) {
		t.Errorf("%q", sk.AllowedTools)
	}
	if sk, _, err = Parse("a", []byte("---\nname: a\ndescription: d\nallowed-tools:\n- Read\n- Bash(ls *)\n---\nb")); err != nil || !slices.Equal(sk.AllowedTools, []string{"Read", "Bash(ls *)"}) {
		t.Errorf("%+v, %v", sk, err)
	}
	many := "---\nname: a\ndescription: d\n"
	for range 300 {
		many += "k" + strings.Repeat("x", len(many)%97) + ": 1\n"
	}
	if sk, _, err = Parse("a", []byte(many+"---\nb")); err != nil || len(sk.Findings) >= maxFindings {
		t.Errorf("%d findings, %v", len(sk.Findings), err)
	}
}

func TestCheckName(t *testing.T) {
	for _, good := range []string{"pdf", "csv-profile", "My Skill", "größe", "日本", "a.b_c+d", strings.Repeat("é", MaxName)} {
		if err := CheckName(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{"", ".", "..", ".git", "-rf", " a", "a ", "a/b", `a\b`, "a:b", "a\nb", "a\x00", "\xff", "a\u202eb", strings.Repeat("a", MaxName+1)} {
		if err := CheckName(bad); !errors.Is(err, sandbox.Invalid) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestRealSkills: all skills of the real plugins load, with what is unusual in them as findings.
func TestRealSkills(t *testing.T) {
	root := "../../../testdata/knowledge-work-plugins"
	if _, err := os.Stat(root); err != nil {
		t.Fatal(err)
	}
	loaded := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "SKILL.md" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		sk, _, err := Parse(filepath.Base(filepath.Dir(path)), text)
		if err != nil || sk.Description == "" {
			t.Errorf("%s: %v", path, err)
		}
		loaded++
		return nil
	})
	if err != nil || loaded != 141 {
		t.Errorf("%d skills, %v", loaded, err)
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{good, "---\ndescription: a: b\nx: [\n---\n", "\ufeff---\r\ndescription: &a {b: *a}\r\n---", "---\nx: !!binary x\n? [a]\n: b\ndescription: .nan\n---"} {
		f.Add("a", []byte(seed))
	}
	f.Fuzz(func(t *testing.T, folder string, text []byte) {
		sk, findings, err := Parse(folder, text)
		hasError := slices.ContainsFunc(findings, func(f sandbox.Finding) bool { return f.Severity == sandbox.SeverityError })
		if (err != nil) != sk.Broken || sk.Broken != hasError || len(findings) > maxFindings+1 {
			t.Fatalf("%+v, %v", sk, err)
		}
		if err != nil && sandbox.KindOf(err) != sandbox.Invalid {
			t.Fatalf("%v", err)
		}
		if err == nil && (strings.TrimSpace(sk.Description) == "" || !json.Valid(sk.Frontmatter) || !utf8.ValidString(sk.Description) || CheckName(sk.Name) != nil) {
			t.Fatalf("%+v", sk)
		}
	})
}
