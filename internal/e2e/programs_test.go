package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestErrorOutputOfCode: an agent reads the ends of a long standard error, and finds all of it in a file.
func TestErrorOutputOfCode(t *testing.T) {
	t.Parallel()
	s := start(t, options{})
	var r struct {
		Stderr     string
		StderrPath string `json:"stderr_path"`
	}
	code := "import sys\nsys.stderr.write('begin ' + 'é' * 50_000 + ' end')"
	s.do("POST", "/api/threads/t/execute_code", map[string]any{"code": code, "language": "python"}).into(t, &r)
	if n := utf8.RuneCountInString(r.Stderr); n < 1500 || n > 2300 || !strings.HasPrefix(r.Stderr, "begin ") || !strings.HasSuffix(r.Stderr, " end") {
		t.Errorf("%d characters: %.40s … %s", n, r.Stderr, r.Stderr[max(0, len(r.Stderr)-40):])
	}
	if r.StderrPath == "" {
		t.Fatal("the whole of it is in no file")
	}
	if got := s.ok("t", "wc -m < "+r.StderrPath); strings.TrimSpace(got) != "50010" {
		t.Errorf("the file has %s characters", got)
	}
}

// TestScriptInput: a script reads what a caller sends it, and ends at the caller's time limit.
func TestScriptInput(t *testing.T) {
	t.Parallel()
	s := start(t, options{})
	made := s.do("POST", "/api/threads/t/skills", map[string]any{
		"name": "slow", "description": "Reads, and sleeps", "body": "Run scripts/read.sh.", "files": map[string]string{"scripts/read.sh": "#!/bin/sh\ncat; sleep 60\n"},
	})
	if made.status != 201 {
		t.Fatalf("%d %s", made.status, made.body)
	}
	r := s.run("t", "skills/slow/run", map[string]any{"script": "scripts/read.sh", "stdin": "a line\n", "timeout_s": 1})
	if r.Stdout != "a line\n" || r.Status != "timeout" {
		t.Errorf("%+v", r)
	}
}

// TestWrappersAtStart: the server makes wrappers anew at its start, unless the configuration says otherwise.
func TestWrappersAtStart(t *testing.T) {
	t.Parallel()
	for setting, kept := range map[string]bool{"true": false, "false": true} {
		var former string // what a former server left
		start(t, options{env: []string{"SKERRY_CODE_EXECUTION_REGENERATE_ON_STARTUP=" + setting}, fill: func(data string) {
			former = filepath.Join(data, "code-api", strings.Repeat("0", 64))
			must(t, os.MkdirAll(former, 0o755))
		}})
		if _, err := os.Stat(former); (err == nil) != kept {
			t.Errorf("regenerate_on_startup %s: the former wrappers: %v", setting, err)
		}
	}
}
