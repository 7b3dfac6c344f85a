package hardening

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

func TestVolumeMounts(t *testing.T) {
	spec := sandbox.Spec{Limits: sandbox.Limits{TmpBytes: 1 << 20}, Mounts: []sandbox.Mount{{Target: sandbox.UserDataDir}, {Target: "/srv/code"}}}
	got, err := VolumeMounts([]string{"/var/lib/x/", "/tmp", "data", "/data", sandbox.UserDataDir, "/srv/code", "/tmp/in", "/etc2"}, spec)
	if err != nil {
		t.Fatal(err)
	}
	var where []string
	for _, m := range got {
		where = append(where, m.Target)
		if m.Bytes != 1<<20 {
			t.Errorf("%+v has no bound", m)
		}
	}
	if s := strings.Join(where, " "); s != "/data /etc2 /tmp/in /var/lib/x" {
		t.Error(s)
	}
	for _, v := range []string{"/", "", ".", "/proc", "/proc/sys", "/sys", "/dev/shm", "/etc", "/etc/ssl", "/mnt", "/run", "/run/skerry/x", "/opt", "/home", "/mnt/skills", "/mnt/user-data/outputs", "/a,uid=0", "/a:b", "/srv/code/x"} {
		if got, err := VolumeMounts([]string{v}, spec); !errors.Is(err, sandbox.NotSupported) {
			t.Errorf("%q: %v, %v", v, got, err)
		}
	}
	var many []string
	for i := range MaxVolumes + 1 {
		many = append(many, fmt.Sprint("/v", i))
	}
	if _, err := VolumeMounts(many, spec); !errors.Is(err, sandbox.NotSupported) {
		t.Errorf("%v", err)
	}
}
