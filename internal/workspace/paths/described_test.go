package paths

import (
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// TestDescribed: a file keeps its description until it is written again; what a sandbox set is bounded.
func TestDescribed(t *testing.T) {
	f, host := thread(t)
	write := func(name string, described map[string]string) error {
		_, err := f.WriteWith(t.Context(), ws+"/"+name, strings.NewReader("x"), Writing{Described: described})
		return err
	}
	if err := write("a", map[string]string{"author": "me", "empty": ""}); err != nil {
		t.Fatal(err)
	}
	if got := f.Description(ws + "/a"); len(got) != 2 || got["author"] != "me" {
		t.Error(got)
	}
	if _, err := f.Move(ws+"/a", ws+"/b"); err != nil || f.Description(ws + "/b")["author"] != "me" {
		t.Error(err)
	}
	if _, err := f.Write(t.Context(), ws+"/b", strings.NewReader("y"), false); err != nil || f.Description(ws+"/b") != nil {
		t.Error(err, f.Description(ws+"/b"))
	}
	for _, bad := range []map[string]string{{"": "x"}, {strings.Repeat("a", 201): ""}, {"a": "b\x00"}, {"a": strings.Repeat("b", maxDescription)}} {
		wantKind(t, write("c", bad), sandbox.Invalid)
	}
	wantKind(t, errOf(f.Stat(ws+"/c")), sandbox.NotFound)

	// What code in the sandbox sets counts as well, if it is as short as what a client may set.
	path := filepath.Join(host, "workspace", "b")
	for name, value := range map[string]string{"user.e2b.by": "code", "user.other": "x", "user.e2b.bin": "\xff", "user.e2b.long": strings.Repeat("x", maxDescription)} {
		if err := unix.Setxattr(path, name, []byte(value), 0); err != nil {
			t.Fatal(name, err)
		}
	}
	if got := f.Description(ws + "/b"); len(got) != 2 || got["by"] != "code" || got["bin"] != "\uFFFD" {
		t.Error(got)
	}
	for _, none := range []string{ws, ws + "/nosuch"} {
		if got := f.Description(none); got != nil {
			t.Error(none, got)
		}
	}
}
