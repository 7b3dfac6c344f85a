package skill

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

func write(t *testing.T, file, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

const good = "---\nname: a\ndescription: does it\n---\nbody\n"

func TestPublishCopiesOnlyWhatIsASkill(t *testing.T) {
	src, store := t.TempDir(), t.TempDir()
	write(t, filepath.Join(src, "public/good/SKILL.md"), good, 0o600)
	write(t, filepath.Join(src, "public/good/scripts/run.py"), "print(1)\n", 0o700)
	write(t, filepath.Join(src, "public/broken/SKILL.md"), "no front", 0o600)
	write(t, filepath.Join(src, "public/empty/readme"), "x", 0o600)
	if err := os.Symlink("/etc/passwd", filepath.Join(src, "public/good/link")); err != nil {
		t.Fatal(err)
	}
	lib, err := Publish(src, store, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if got := lib.List(); len(got) != 1 || got[0].Name != "good" || got[0].Location != "/mnt/skills/public/good/SKILL.md" {
		t.Errorf("skills: %+v", got)
	}
	for name, mode := range map[string]os.FileMode{"SKILL.md": 0o444, "scripts/run.py": 0o555} {
		info, err := os.Stat(filepath.Join(lib.Root(), "public/good", name))
		if err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v %v", name, info, err)
		}
	}
	for _, name := range []string{"public/good/link", "public/broken", "public/empty"} {
		if _, err := os.Lstat(filepath.Join(lib.Root(), name)); err == nil {
			t.Errorf("%s was published", name)
		}
	}
	again, err := Publish(src, store, slog.New(slog.DiscardHandler))
	if err != nil || again.Root() != lib.Root() {
		t.Errorf("publishing the same again: %v, %q then %q", err, lib.Root(), again.Root())
	}
}

func TestArgv(t *testing.T) {
	src := t.TempDir()
	write(t, filepath.Join(src, "public/s/SKILL.md"), good, 0o600)
	write(t, filepath.Join(src, "public/s/run.py"), "print(1)\n", 0o600)
	write(t, filepath.Join(src, "public/s/data.bin"), "\x00", 0o600)
	lib, err := Publish(src, t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	argv, err := lib.Argv("s", "run.py")
	if want := []string{"python3", "/mnt/skills/public/s/run.py"}; err != nil || !reflect.DeepEqual(argv, want) {
		t.Errorf("got %q, %v", argv, err)
	}
	for _, c := range []struct {
		skill, script string
		kind          sandbox.Kind
	}{
		{"nope", "run.py", sandbox.NotFound}, {"s", "nope.py", sandbox.NotFound}, {"s", "../s/run.py", sandbox.Invalid},
		{"s", "/etc/passwd", sandbox.Invalid}, {"s", "data.bin", sandbox.NotSupported},
	} {
		if _, err := lib.Argv(c.skill, c.script); !errors.Is(err, c.kind) {
			t.Errorf("%s %s: got %v, want %s", c.skill, c.script, err, c.kind)
		}
	}
}

func TestInterpreter(t *testing.T) {
	for head, want := range map[string]string{
		"#!/bin/bash\n":                           "/bin/bash",
		"#!/usr/bin/env python3\nx":               "python3",
		"#! /usr/bin/env -S deno run --allow-all": "deno run --allow-all",
		"#!/usr/bin/env -S A=1 node -a\r\n":       "env A=1 node -a",
		"#!/usr/bin/python3 -I\n":                 "/usr/bin/python3 -I",
		"#!\n":                                    "sh",
		"#!/usr/bin/env\n":                        "sh",
		"echo\n":                                  "sh",
	} {
		argv, err := Interpreter(head, "x.sh")
		if err != nil || strings.Join(argv, " ") != want {
			t.Errorf("%q: got %q, %v, want %q", head, argv, err, want)
		}
	}
}

func FuzzInterpreter(f *testing.F) {
	f.Add("#!/usr/bin/env -S A=1 node", "x.ts")
	f.Fuzz(func(t *testing.T, head, name string) {
		argv, err := Interpreter(head, name)
		if (err == nil) == (len(argv) == 0) {
			t.Errorf("%q %q: %q, %v", head, name, argv, err)
		}
	})
}
