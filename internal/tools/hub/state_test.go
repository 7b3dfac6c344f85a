package hub

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestStateDir: the homes of servers in a folder of the hub's owner outlive the hub, whatever the umask.
func TestStateDir(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o077))
	dir := filepath.Join(publicFolder(t), "mcp")
	config := withServers(`"x":` + testServer)
	var homes [2]string
	for i := range homes {
		r := open(t, config, func(o *Options) { o.StateDir = dir })
		homes[i] = r.ok("x__env", `{"name":"HOME"}`)
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if homes[0] != homes[1] || !strings.HasPrefix(homes[0], `"`+dir+"/") {
		t.Errorf("homes %q", homes)
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 1 {
		t.Errorf("%v: %d homes", err, len(list))
	}
}
