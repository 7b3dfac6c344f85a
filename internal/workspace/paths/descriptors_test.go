package paths

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestNoDescriptorsLeft: whatever a path comes to, no folder stays open.
func TestNoDescriptorsLeft(t *testing.T) {
	f, host := thread(t)
	mkdirs(t, filepath.Join(host, "workspace/dir/sub"))
	link(t, "dir/sub/none", filepath.Join(host, "workspace/dangling"))
	link(t, "/etc/passwd", filepath.Join(host, "workspace/out"))
	link(t, "loop", filepath.Join(host, "workspace/loop"))
	put(t, filepath.Join(host, "workspace/dir/file"), "x")
	ctx := t.Context()
	all := func() {
		for _, name := range []string{"dangling", "out", "loop", "none", "dir/none/x", "dir/file/x", "dir/file", "dir/sub", "dangling/x"} {
			p := ws + "/" + name
			_, err := f.Stat(p)
			errs := []error{
				err, errOf(f.Read(p, 0, 0)), errOf(f.List(ctx, p, 2, 0)), errOf(f.Edit(ctx, p, "a", "b", false)), errOf(f.Grep(ctx, p, GrepOptions{Pattern: "x"})),
				f.Remove(ctx, p+"/none", false), errOf(f.Move(p, ws+"/dir/file/x")), errOf(f.Unpack(ctx, p, strings.NewReader("x"))), errOf(f.Survey(ctx, p)),
				errOf(f.Mkdir(ws + "/dir/file/x")),
			}
			_ = errs // what they say is tested elsewhere
		}
	}
	open := func() int {
		e, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip("no /proc")
		}
		n := 0
		for _, fd := range e {
			if to, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && strings.HasPrefix(to, host) {
				n++
			}
		}
		return n
	}
	all()
	before := open()
	for range 20 {
		all()
	}
	if now := open(); now != before {
		t.Errorf("%d descriptors were open, and now %d", before, now)
	}
	runtime.KeepAlive(f)
}
