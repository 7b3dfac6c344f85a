package format

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// versions are the texts that a place may hold, and what a server says of them.
var versions = map[string]struct {
	kind sandbox.Kind // "": it is read
	says string
}{
	"1":                    {},
	"2":                    {sandbox.NotSupported, "Start that version"},
	"99999":                {sandbox.NotSupported, "format 99999"},
	"0":                    {sandbox.Invalid, "no version"},
	"-1":                   {sandbox.Invalid, "no version"},
	"one":                  {sandbox.Invalid, "no version"},
	"99999999999999999999": {sandbox.Invalid, "no version"},
}

func wantVersion(t *testing.T, text string, err error) {
	t.Helper()
	want := versions[text]
	if want.kind == "" && err != nil || want.kind != "" && (!errors.Is(err, want.kind) || !strings.Contains(err.Error(), want.says)) {
		t.Errorf("format %q: %v, want %q %q", text, err, want.kind, want.says)
	}
}

func TestCheckFolder(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	for range 2 { // the first one writes it
		if err := CheckFolder(data); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := os.ReadFile(filepath.Join(data, file)); err != nil || string(text) != "1\n" {
		t.Errorf("%q, %v", text, err)
	}
	for text := range versions {
		if err := os.WriteFile(filepath.Join(data, file), []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		wantVersion(t, text, CheckFolder(data))
	}
	if err := os.WriteFile(filepath.Join(data, file), []byte(strings.Repeat("1", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := CheckFolder(data); err == nil {
		t.Error("a huge file is a version")
	}
}
