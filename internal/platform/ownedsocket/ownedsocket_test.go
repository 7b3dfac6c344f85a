package ownedsocket

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestListen: owner and mode are right from the first moment, a former socket is replaced, and a path
// that is too long for an address works.
func TestListen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("x", 120))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	const uid = 1234567
	for range 2 {
		ln, err := Listen(dir, "a.sock", uid)
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		info, err := os.Stat(filepath.Join(dir, "a.sock"))
		if err != nil {
			t.Fatal(err)
		}
		if st := info.Sys().(*syscall.Stat_t); st.Uid != uid || st.Gid != uid || info.Mode().Perm() != 0o600 {
			t.Errorf("owner %d:%d, mode %o", st.Uid, st.Gid, info.Mode().Perm())
		}
		t.Chdir(dir)
		c, err := net.Dial("unix", "a.sock")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ln.Accept(); err != nil {
			t.Error(err)
		}
		_ = c.Close()
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("%v, %v", left, err)
	}
	if _, err := Listen(filepath.Join(dir, "none"), "a.sock", 0); err == nil {
		t.Error("no error without a folder")
	}
}
