package hub

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

const hubOfAnother = "SKERRY_TEST_HUB_CONFIG"

// TestKilledHub: the servers of a hub do not outlive its killed process, not even a server that does not
// notice the end of its input.
func TestKilledHub(t *testing.T) {
	t.Parallel()
	if path := os.Getenv(hubOfAnother); path != "" {
		beKilled(path)
		return
	}
	bin := testBinary(t)
	path := filepath.Join(t.TempDir(), "c.json")
	text := withServers(fmt.Sprintf(`"x":{"command":%q,"args":["test-server"]}`, bin))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	temp := publicFolder(t)
	cmd := exec.Command(os.Args[0], "-test.run=^TestKilledHub$")
	cmd.Env = append(os.Environ(), hubOfAnother+"="+path, "TMPDIR="+temp)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	var pid int
	if _, e := fmt.Sscanf(line, `{"pid":%d}`, &pid); e != nil {
		t.Errorf("the other hub says %q: %v", line, err)
	} else {
		// A stopped process reads nothing and so sees no end of its input; SIGKILL reaches it all the same.
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Error(err)
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed, as it has to be
	if pid != 0 {
		eventually(t, "the server is gone", func() bool { return syscall.Kill(pid, 0) != nil || zombie(pid) })
	}
}

// beKilled makes a hub with a running server, says which process that is, and waits.
func beKilled(path string) {
	h, err := Open(Options{ConfigPath: path, Log: quiet, LookupEnv: os.LookupEnv})
	if err != nil {
		fmt.Println(err)
		return
	}
	res, err := h.Catalog.Call(context.Background(), alice, sandbox.Tool{Server: "x", Name: "whoami"}, nil)
	_, rest, _ := strings.Cut(string(res.Result), `"pid":`)
	number, _, _ := strings.Cut(rest, ",")
	fmt.Printf("{\"pid\":%s} %v\n", number, err)
	time.Sleep(time.Minute)
}
