package lockedfile

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestFollower: the value stays the same one as long as the text is, and the last good one counts while the file is broken.
func TestFollower(t *testing.T) {
	errBroken := errors.New("broken")
	f := &Follower[*string]{Path: filepath.Join(t.TempDir(), "f"), Limit: 100, Parse: func(text []byte) (*string, error) {
		if string(text) == "bad" {
			return nil, errBroken
		}
		s := string(text)
		return &s, nil
	}}
	look := func(want string, wantErr error) *string {
		t.Helper()
		got, err := f.Current()
		if got == nil || *got != want || !errors.Is(err, wantErr) {
			t.Fatalf("%v, %v, want %q, %v", got, err, want, wantErr)
		}
		return got
	}
	write := func(text string) {
		t.Helper()
		if err := Replace(f.Path, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	look("", nil)
	write("one")
	first := look("one", nil)
	write("bad")
	look("one", errBroken)
	look("one", errBroken)
	write("one")
	if look("one", nil) != first {
		t.Error("another value for the same text")
	}
	if err := errors.Join(os.Remove(f.Path), os.Mkdir(f.Path, 0o700)); err != nil {
		t.Fatal(err)
	}
	if got, err := f.Current(); got != first || err == nil {
		t.Errorf("a folder in its place: %v, %v", got, err)
	}
	if err := os.Remove(f.Path); err != nil {
		t.Fatal(err)
	}
	look("", nil)
}
