package source

import (
	"bytes"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

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
	write(t, filepath.Join(base, "skills.json"), `{"sources":[{"type":"dir","path":"one"},{"type":"dir","path":"many"},{"type":"embedded"},
		{"type":"file","path":"packed.skill"},{"type":"s3","url":"s3://skills/team/object.skill"}]}`)
	c, err := Read(filepath.Join(base, "skills.json"))
	if err != nil {
		t.Fatal(err)
	}
	f := finder(t)
	f.S3 = client
	found, err := f.Find(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range found {
		got = append(got, s.Name+" "+s.Source)
	}
	want := "one dir:one,a dir:many/a,b dir:many/b,csv-profile embedded:csv-profile,packed file:packed.skill,object s3://skills/team/object.skill"
	if strings.Join(got, ",") != want {
		t.Errorf("%s\nwant %s", strings.Join(got, ","), want)
	}
	if found[4].Digest != found[5].Digest || found[0].Digest == found[1].Digest {
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
	if err != nil || len(l.Skills) != 6 || l.Skills[0].Name != "a" || !l.Skills[0].Time.Equal(first.Truncate(time.Second)) {
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
		`{"skills":[]}`:                          "unknown field",
		`{"sources":[{"type":"dir"}]}`:           `sources[0]: a source of type dir has "path"`,
		`{"sources":[{"type":"git","url":"x"}]}`: `sources[0]: the type "git"`,
		`{"sources":[{"type":"s3","url":"s3://b/k","path":"x"}]}`: `sources[0]: a source of type s3`,
		`{"sources":[{"type":"embedded","name":"none"}]}`:         "no skill \"none\" is compiled in",
		`{"sources":[{"type":"embedded","name":"../public"}]}`:    "is compiled in",
		`{"sources":[{"type":"dir","path":"none"}]}`:              "no such folder",
		`{"sources":[{"type":"dir","path":"."}]}`:                 "there is no SKILL.md",
		`{"sources":[{"type":"file","path":"none.skill"}]}`:       "none.skill cannot be read",
		`{"sources":[{"type":"file","path":"skills.json"}]}`:      "broken-archive",
		`{"sources":[{"type":"s3","url":"s3://bkt/k"}]}`:          "S3 is not configured",
	} {
		write(t, file, text)
		c, err := Read(file)
		if err == nil {
			_, err = finder(t).Find(t.Context(), c)
		}
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(detail(err), base) {
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
