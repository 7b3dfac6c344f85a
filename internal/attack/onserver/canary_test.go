package onserver

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// canary is a folder of the host that no sandbox has. It holds secret, only-on-host and tree/leaf.
type canary struct {
	dir    string
	text   string // of secret
	before string
}

func (b *bed) canary(t *testing.T) canary {
	t.Helper()
	dir, err := os.MkdirTemp(b.dir, "host-")
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	c := canary{dir: dir, text: "CANARY-" + rand.Text()}
	must(t, os.Chmod(dir, 0o755)) //nolint:gosec // only its walls keep a sandbox out
	must(t, os.Mkdir(filepath.Join(dir, "tree"), 0o755))
	for name, text := range map[string]string{"secret": c.text + "\n", "only-on-host": "x", "tree/leaf": "x"} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644)) //nolint:gosec // as above
	}
	c.before = c.state(t)
	return c
}

func (c canary) secret() string { return filepath.Join(c.dir, "secret") }

// state tells all that can be seen of the folder.
func (c canary) state(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	must(t, filepath.WalkDir(c.dir, func(name string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Lstat(name)
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		var sum [sha256.Size]byte
		if info.Mode().IsRegular() {
			raw, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			sum = sha256.Sum256(raw)
		}
		fmt.Fprintf(&all, "%s %v %d:%d links %d %x %v\n", name, info.Mode(), st.Uid, st.Gid, st.Nlink, sum[:4], info.ModTime())
		return nil
	}))
	return all.String()
}

// untouched fails the test when the folder changed.
func (c canary) untouched(t *testing.T) {
	t.Helper()
	if now := c.state(t); now != c.before {
		t.Errorf("the host's folder changed:\n%s, before:\n%s", now, c.before)
	}
}

// silent fails the test when an answer tells of the host's file, or of the host, or fails inside.
func (c canary) silent(t *testing.T, b *bed, a answer) {
	t.Helper()
	sum := sha256.Sum256([]byte(c.text + "\n"))
	switch {
	case bytes.Contains(a.body, []byte(c.text)), bytes.Contains(a.body, []byte("only-on-host")), bytes.Contains(a.body, []byte(hex.EncodeToString(sum[:]))):
		t.Errorf("the answer tells what is in the host's file: %d %.300s", a.status, a.body)
	case bytes.Contains(a.body, []byte(b.data)):
		t.Errorf("the answer names a path of the host: %d %.300s", a.status, a.body)
	case a.status >= 500:
		t.Errorf("the server failed inside: %d %.300s", a.status, a.body)
	}
}

// reaches runs what has no guard until it reached what it must not, or fails the test.
func reaches(t *testing.T, naive func() bool) {
	t.Helper()
	deadline := time.Now().Add(40 * time.Second)
	for n := 1; ; n++ {
		if naive() {
			t.Logf("without a guard it succeeds at attempt %d", n)
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("without a guard it did not succeed in %d attempts: the attack proves nothing", n)
		}
	}
}

// inside is the check of a naive server: where the path leads now is within the folder.
func inside(folder, name string) bool {
	real, err := filepath.EvalSymlinks(name)
	return err == nil && strings.HasPrefix(real, folder+"/")
}

func exists(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}
