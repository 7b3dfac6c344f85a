package client_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/app/cli/client"
	"github.com/skerry-sandbox/skerry/internal/app/cli/exit"
)

// TestArguments: a text, a file and standard input are read alike, and what is no object is an error of usage that names
// the flag.
func TestArguments(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "a.json")
	const object = `{"name": "Ada"}`
	if err := os.WriteFile(file, []byte(object+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{"": "{}", object: object, "-": object, "@" + file: object} {
		got, err := client.Arguments("--args", text, strings.NewReader(" "+object+"\n"))
		if err != nil || string(got) != want {
			t.Errorf("%q: %s %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		"[]": "--args wants a JSON object", "null": "--args wants a JSON object", "{": "unexpected end", "@" + file + ".none": "no such file", "-": "more than 33554432 bytes",
	} {
		_, err := client.Arguments("--args", text, strings.NewReader(strings.Repeat(" ", 32<<20+1)))
		var f *exit.Failure
		if !errors.As(err, &f) || f.Code != exit.Usage || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestHeader: a key is sent as a bearer's, and none without one.
func TestHeader(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]string{"": "", "sk_x": "Bearer sk_x"} {
		h := (&client.Client{Key: key}).Header()
		if h.Get("Authorization") != want || !strings.HasPrefix(h.Get("User-Agent"), "skerry/") {
			t.Errorf("%q: %v", key, h)
		}
	}
}
