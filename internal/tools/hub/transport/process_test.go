package transport

import (
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/serverconfig"
)

// TestRootThatGivesNoUIDs: in a container without the needed capabilities, the hub refuses a stdio server as
// a process, and says what to do instead. The server never runs as root.
func TestRootThatGivesNoUIDs(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("is about root")
	}
	runtime.LockOSThread() // for good: the thread ends with the test, and its capabilities with it
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var have [2]unix.CapUserData
	if err := unix.Capget(&head, &have[0]); err != nil {
		t.Fatal(err)
	}
	if _, _, own, err := idsOf(&serverconfig.Server{}); err != nil || own {
		t.Fatalf("with all of them: %v", err)
	}
	have[0].Effective &^= 1<<unix.CAP_SETUID | 1<<unix.CAP_SETGID
	if err := unix.Capset(&head, &have[0]); err != nil {
		t.Fatal(err)
	}
	_, _, _, err := idsOf(&serverconfig.Server{})
	if !errors.Is(err, sandbox.NotSupported) || !strings.Contains(err.Error(), `"sandbox": true`) {
		t.Errorf("without: %v", err)
	}
}
