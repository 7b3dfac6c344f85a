package source

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/skerry-sandbox/skerry/internal/platform/download"
	"github.com/skerry-sandbox/skerry/internal/platform/s3"
	"github.com/skerry-sandbox/skerry/internal/platform/s3/s3test"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/skills/archive"
	"github.com/skerry-sandbox/skerry/skills"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
}

func text(name string) string { return "---\nname: " + name + "\ndescription: d\n---\nb\n" }

func finder(t *testing.T) Finder {
	t.Helper()
	f := Finder{Embedded: skills.FS, Temp: t.TempDir(), Limits: archive.DefaultLimits()}
	t.Cleanup(func() {
		if left, err := os.ReadDir(f.Temp); err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	})
	return f
}

// TestFind: all kinds of sources, the object from a real S3 server, and a lock that they keep to.
func TestFind(t *testing.T) {
	base := t.TempDir()
	write(t, filepath.Join(base, "one/SKILL.md"), text("one"))
	for _, n := range []string{"a", "b"} {
		write(t, filepath.Join(base, "many", n, "SKILL.md"), text(n))
	}
	write(t, filepath.Join(base, "many/none/README.md"), "x")
	var packed, object bytes.Buffer
	write(t, filepath.Join(base, "src/SKILL.md"), text("packed"))
	if err := errors.Join(archive.Pack(t.Context(), &packed, filepath.Join(base, "src"), "packed", archive.DefaultLimits()),
		archive.Pack(t.Context(), &object, filepath.Join(base, "src"), "object", archive.DefaultLimits())); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(base, "packed.skill"), packed.String())
	server := s3test.Start(t)
	server.Put("skills", "team/object.skill", object.Bytes())
	client, err := s3.New(s3.Options{
		Endpoint: server.Endpoint, Region: s3test.Region, AccessKey: s3test.AccessKey, SecretKey: s3test.SecretKey, PathStyle: true,
		Addresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.String() != "/fetched.skill?token=hush" {
			http.NotFound(w, r)
			return
		}
		if err := archive.Pack(r.Context(), w, filepath.Join(base, "src"), "fetched", archive.DefaultLimits()); err != nil {
			t.Error(err)
		}
	}))
	defer web.Close()
	pages := download.New([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")})
	defer pages.Close()
	write(t, filepath.Join(base, "skills.json"), `{"sources":[{"type":"dir","path":"one"},{"type":"dir","path":"many"},{"type":"embedded"},
		{"type":"file","path":"packed.skill"},{"type":"s3","url":"s3://skills/team/object.skill"},{"type":"https","url":"`+web.URL+`/fetched.skill?token=hush"}]}`)
	c, err := Read(filepath.Join(base, "skills.json"))
	if err != nil {
		t.Fatal(err)
	}
	f := finder(t)
	f.Fetcher = Addresses{S3: client, Web: pages}
	found, err := f.Find(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range found {
		got = append(got, s.Name+" "+s.Source)
	}
	built, err := skills.FS.ReadDir("public")
	if err != nil || len(built) == 0 {
		t.Fatalf("%v, %v", built, err)
	}
	want := "one dir:one,a dir:many/a,b dir:many/b,"
	for _, e := range built {
		want += e.Name() + " embedded:" + e.Name() + ","
	}
	want += "packed file:packed.skill,object s3://skills/team/object.skill,fetched " + web.URL + "/fetched.skill"
	if strings.Join(got, ",") != want {
		t.Errorf("%s\nwant %s", strings.Join(got, ","), want)
	}
	if last := len(found) - 1; found[last-2].Digest != found[last-1].Digest || found[0].Digest == found[1].Digest {
		t.Error("the same files have not the same digest, or others have")
	}
	checkLock(t, f, c, base, found)
	server.Put("skills", "team/object.skill", packed.Bytes())
	if _, err := f.Find(t.Context(), c); !errors.Is(err, sandbox.Conflict) || !strings.Contains(err.Error(), `"packed"`) {
		t.Errorf("two of one name: %v", err)
	}
}

// checkLock: a lock is written, read back, kept, and says what has changed.
func checkLock(t *testing.T, f Finder, c Config, base string, found []Skill) {
	t.Helper()
	file := filepath.Join(base, "skills.lock.json")
	first := time.Date(2026, 1, 2, 3, 4, 5, 678, time.UTC)
	if err := (Lock{}).With(found, first).Write(file); err != nil {
		t.Fatal(err)
	}
	l, err := ReadLock(file)
	if err != nil || len(l.Skills) != len(found) || l.Skills[0].Name != "a" || !l.Skills[0].Time.Equal(first.Truncate(time.Second)) {
		t.Fatalf("%+v, %v", l, err)
	}
	again, err := f.Find(t.Context(), c)
	if err := errors.Join(err, l.Check(again)); err != nil {
		t.Errorf("the same sources: %v", err)
	}
	write(t, filepath.Join(base, "one/SKILL.md"), text("one")+"more")
	write(t, filepath.Join(base, "many/new/SKILL.md"), text("new"))
	if err := os.RemoveAll(filepath.Join(base, "many/a")); err != nil {
		t.Fatal(err)
	}
	if again, err = f.Find(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	again[1].Source = "dir:elsewhere/b"
	err = l.Check(again)
	for _, want := range []string{"a is locked, but no source has it", "one from dir:one is locked to sha256:", "new from dir:many/new is not locked", "b is locked to dir:many/b, but comes from dir:elsewhere/b"} {
		if !errors.Is(err, sandbox.Conflict) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in: %v", want, err)
		}
	}
	next := l.With(again, first.Add(time.Hour))
	for _, s := range next.Skills {
		if changed := s.Name == "one" || s.Name == "new" || s.Name == "b"; changed == s.Time.Equal(first.Truncate(time.Second)) {
			t.Errorf("%+v", s)
		}
	}
}

// TestWrong: what cannot be is named with its place.
func TestWrong(t *testing.T) {
	base := t.TempDir()
	file := filepath.Join(base, "skills.json")
	for text, want := range map[string]string{
		`{`:                                      "skills.json",
		`{"skills":[]}`:                          "skills.json",
		`{"sources":[],"more":1}`:                "unknown field",
		`{"sources":[{"type":"dir"}]}`:           `sources[0]: a source of type dir has "path"`,
		`{"sources":[{"type":"git","url":"x"}]}`: `sources[0]: the type "git"`,
		`{"sources":[{"type":"s3","url":"s3://b/k","path":"x"}]}`:                                                        `sources[0]: a source of type s3`,
		`{"sources":[{"type":"embedded","name":"none"}]}`:                                                                "no skill \"none\" is compiled in",
		`{"sources":[{"type":"embedded","name":"../public"}]}`:                                                           "is compiled in",
		`{"sources":[{"type":"dir","path":"none"}]}`:                                                                     "no such folder",
		`{"sources":[{"type":"dir","path":"."}]}`:                                                                        "there is no SKILL.md",
		`{"sources":[{"type":"file","path":"none.skill"}]}`:                                                              "none.skill cannot be read",
		`{"sources":[{"type":"file","path":"skills.json"}]}`:                                                             "broken-archive",
		`{"sources":[{"type":"s3","url":"s3://bkt/k"}]}`:                                                                 "nothing is fetched here",
		`{"sources":[{"type":"https","url":"ftp://x/k"}]}`:                                                               "does not begin with https://",
		`{"sources":[{"type":"dir","path":"x","env_secrets":{"1A":"B"}}]}`:                                               "env_secrets.1A",
		`{"sources":[{"type":"dir","path":"x","env":{"A":""},"env_secrets":{"A":"B"}}]}`:                                 "env_secrets",
		`{"sources":[{"type":"dir","path":"x","timeout_s":3601}]}`:                                                       "timeout_s",
		`{"skills":{"a/b":{"source":"directory","path":"x"}}}`:                                                           "skills.a/b: ",
		`{"skills":{"a":{"source":"git","url":"x"}}}`:                                                                    `skills.a: the source "git"`,
		`{"skills":{"a":{"source":"directory","url":"https://x"}}}`:                                                      "skills.a: a source of type dir has",
		`{"skills":{"a":{"source":"directory","path":"x","script_executor":{"type":"e2b"}}}}`:                            `skills.a: script_executor: the type "e2b"`,
		`{"skills":{"a":{"source":"directory","path":"x","script_executor":{"type":"subprocess","env":{"A":"x${B}"}}}}}`: "env.A",
		`{"skills":{"a":{"source":"directory","path":"none"}}}`:                                                          "sources[0]: none: there is no SKILL.md",
	} {
		write(t, file, text)
		c, err := Read(file)
		if err == nil {
			_, err = finder(t).Find(t.Context(), c)
		}
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(sandbox.TextOf(err), base) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if _, err := Read(filepath.Join(base, "none.json")); !errors.Is(err, sandbox.NotFound) {
		t.Error(err)
	}
	lock := filepath.Join(base, "l.json")
	for _, text := range []string{`{`, `{"version":2}`, `{"version":1,"skills":[{"name":"a","digest":"x"}]}`, `{"version":1,"skills":[{"digest":"sha256:` + strings.Repeat("0", 64) + `"}]}`} {
		write(t, lock, text)
		if _, err := ReadLock(lock); !errors.Is(err, sandbox.Invalid) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestTemplates: an entry names the template of its scripts. The error for a wrong one says which there are.
func TestTemplates(t *testing.T) {
	file := filepath.Join(t.TempDir(), "skills.json")
	write(t, file, `{"sources":[{"type":"dir","path":"x"},{"type":"dir","path":"x","template":"data"}],"skills":{"a":{"source":"directory","path":"x","template":"offices"}}}`)
	c, err := Read(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := c.Sources[1].Defaults(); d == nil || d.Template != "data" || c.Sources[0].Defaults() != nil {
		t.Errorf("%+v", d)
	}
	if err := c.CheckTemplates([]string{"office", "data", "offices"}); err != nil {
		t.Error(err)
	}
	const want = `skills.a: there is no template "offices"; this server has the templates base, data`
	if err := c.CheckTemplates([]string{"data", "base"}); !errors.Is(err, sandbox.Invalid) || sandbox.TextOf(err) != want {
		t.Error(err)
	}
}

// TestNamed: the shape of a list that other programs have, as its design shows it. What has no effect here
// is said.
func TestNamed(t *testing.T) {
	base := t.TempDir()
	t.Setenv("HOME", filepath.Join(base, "home"))
	write(t, filepath.Join(base, "home/.mixtape/skills/github/SKILL.md"), text("github"))
	write(t, filepath.Join(base, "src/SKILL.md"), text("code-review"))
	write(t, filepath.Join(base, "other/SKILL.md"), text("other"))
	var packed bytes.Buffer
	if err := archive.Pack(t.Context(), &packed, filepath.Join(base, "src"), "code-review", archive.DefaultLimits()); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(base, "code-review.zip"), packed.String())
	file := filepath.Join(base, "skills.json")
	write(t, file, `{"skills": {
		"github-workflow": {"source": "directory", "path": "~/.mixtape/skills/github", "trusted": true,
			"script_executor": {"type": "subprocess", "timeout_secs": 30, "working_dir": "/srv", "env": {"GITHUB_TOKEN": "${GITHUB_TOKEN}", "MODE": "fast"}}},
		"code-review": {"source": "archive", "path": "code-review.zip", "trusted": false, "template": "data",
			"script_executor": {"type": "docker", "image": "python:3.11-slim", "network": "none", "memory_limit": "512m"}}}}`)
	c, err := Read(file)
	if err != nil {
		t.Fatal(err)
	}
	found, err := finder(t).Find(t.Context(), c)
	if err != nil || len(found) != 2 || found[0].Name != "code-review" || found[1].Name != "github-workflow" {
		t.Fatalf("%v, %v", found, err)
	}
	review, github := c.Sources[0], c.Sources[1]
	if !review.Untrusted() || review.Defaults() == nil || review.Defaults().Template != "data" || github.Untrusted() || c.Folder(github) != "" {
		t.Errorf("%+v %+v", review, github)
	}
	want := &sandbox.ScriptDefaults{Env: map[string]string{"MODE": "fast"}, EnvSecrets: map[string]string{"GITHUB_TOKEN": "GITHUB_TOKEN"}, Timeout: 30 * time.Second}
	if got := github.Defaults(); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	for e, fields := range map[*Entry][]string{&review: {"image", "memory_limit"}, &github: {"working_dir"}} {
		var said []string
		for _, f := range e.Findings() {
			said = append(said, strings.Fields(f.Message)[0])
		}
		if strings.Join(said, " ") != "script_executor."+strings.Join(fields, " script_executor.") {
			t.Errorf("%v", said)
		}
	}
	write(t, file, `{"skills":{"code-review":{"source":"archive","path":"code-review.zip"},"nothing":{"source":"archive","path":"code-review.zip"}}}`)
	if c, err = Read(file); err != nil {
		t.Fatal(err)
	}
	if _, err := finder(t).Find(t.Context(), c); !errors.Is(err, sandbox.Invalid) || !strings.Contains(err.Error(), `to be the skill "nothing"`) {
		t.Error(err)
	}
	if !c.Sources[0].Untrusted() {
		t.Error("a skill that the list does not call trusted is trusted")
	}
}
