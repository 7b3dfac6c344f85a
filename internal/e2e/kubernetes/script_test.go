package kubernetes

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A cluster of which nothing is real: it runs as long as the process of node.pid does. up.sh counts how often it was called, and fails until
// the try that GOOD names.
var pretended = map[string]string{
	"k8s/up.sh": `n=$(($(cat "$TOP/tries" || echo 0) + 1)); echo $n >"$TOP/tries"
mkdir -p "$K8S_STATE/log"; echo "etcd said why $n" >"$K8S_STATE/log/etcd.log"
[ $n -ge "${GOOD:-1}" ] || exit 1
setsid sleep 600 </dev/null >/dev/null 2>&1 &
echo "$! 1" >"$K8S_STATE/node.pid"; echo here >"$K8S_STATE/kubeconfig"
`,
	"k8s/down.sh":       "echo down >>\"$TOP/downs\"; if read -r p _ <\"$K8S_STATE/node.pid\"; then kill \"$p\"; fi; rm -rf \"$K8S_STATE\"\n",
	"k8s/build.sh":      "echo built >>\"$TOP/built\"\n",
	"cache/bin/kubectl": "[ -e \"$K8S_STATE/kubeconfig\" ]\n",
}

// clusterScript runs scripts/cluster.sh with the pretended cluster in top.
func clusterScript(top string, env []string, args ...string) *exec.Cmd {
	cmd := exec.Command("../../../scripts/cluster.sh", args...)
	cmd.Env = append(os.Environ(), "TOP="+top, "SKERRY_K8S="+top+"/k8s", "K8S_CACHE="+top+"/cache", "K8S_STATE="+top+"/node", "SKERRY_K8S_BUSY=1")
	cmd.Env = append(cmd.Env, env...)
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

func newPretended(t *testing.T) string {
	t.Helper()
	top := t.TempDir()
	for name, text := range pretended {
		path := filepath.Join(top, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, []byte("#!/usr/bin/env bash\n"+text), 0o755)) //nolint:gosec // programs
	}
	t.Cleanup(func() {
		if _, err := os.Stat(top + "/node/node.pid"); err == nil {
			down := exec.Command(top + "/k8s/down.sh")
			down.Env = append(os.Environ(), "TOP="+top, "K8S_STATE="+top+"/node")
			must(t, down.Run())
		}
	})
	return top
}

// count returns the lines of a file; 0 when there is none.
func count(top, name string) int {
	text, _ := os.ReadFile(filepath.Join(top, name))
	return strings.Count(string(text), "\n")
}

// TestClusterScript: a cluster is started at most three times, what was there stays, and what was started goes, whatever the command does.
func TestClusterScript(t *testing.T) {
	for name, c := range map[string]struct {
		env   []string
		args  []string
		there bool // before
		code  int
		says  string
		downs int
		stays bool
	}{
		"started for a command":  {nil, []string{"sh", "-c", "cat $KUBECONFIG; echo $SKERRY_K8S_KILL"}, false, 0, "here", 1, false},
		"of a command that ends": {nil, []string{"sh", "-c", "exit 7"}, false, 7, "", 1, false},
		"at the third try":       {[]string{"GOOD=3"}, []string{"echo", "third"}, false, 0, "third", 3, false},
		"never":                  {[]string{"GOOD=9"}, []string{"echo", "ran all the same"}, false, 1, "etcd said why 3", 3, false},
		"there before":           {nil, []string{"cat"}, true, 0, "one runs already", 0, true},
		"kept":                   {nil, []string{"--keep", "echo", "kept"}, false, 0, "kept", 0, true},
		"a command that is none": {nil, []string{"/no/such/program"}, false, 127, "", 1, false},
		"no command":             {nil, nil, false, 2, "name the command", 0, false},
		"the programs alone":     {nil, []string{"--programs"}, false, 0, "", 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			top := newPretended(t)
			if c.there {
				must(t, clusterScript(top, nil, "--keep", "true").Run())
			}
			cmd := clusterScript(top, c.env, c.args...)
			text, _ := cmd.CombinedOutput()
			if code := cmd.ProcessState.ExitCode(); code != c.code || !strings.Contains(string(text), c.says) || strings.Contains(string(text), "ran all the same") {
				t.Errorf("exit code %d, want %d and %q:\n%s", code, c.code, c.says, text)
			}
			if got := count(top, "downs"); got != c.downs {
				t.Errorf("taken down %d times, want %d:\n%s", got, c.downs, text)
			}
			if _, err := os.Stat(top + "/node/kubeconfig"); (err == nil) != c.stays {
				t.Errorf("after it: %v, stays: %v", err, c.stays)
			}
		})
	}
}

// TestClusterShared: who started it leaves it to one who still uses it; that one takes it down. A command that is told to stop is no exception.
func TestClusterShared(t *testing.T) {
	top := newPretended(t)
	wait := func(name string) {
		eventually(t, name, func() bool { _, err := os.Stat(filepath.Join(top, name)); return err == nil })
	}
	first := clusterScript(top, nil, "sh", "-c", "touch $TOP/first; while [ ! -e $TOP/go ]; do sleep 0.1; done")
	must(t, first.Start())
	wait("first")
	second := clusterScript(top, nil, "sh", "-c", "touch $TOP/second; exec sleep 600")
	must(t, second.Start())
	wait("second")
	must(t, os.WriteFile(top+"/go", nil, 0o600))
	must(t, first.Wait())
	if n := count(top, "downs"); n != 0 {
		t.Errorf("taken down %d times while another command uses it", n)
	}
	must(t, second.Process.Signal(os.Interrupt))
	if err := second.Wait(); err == nil {
		t.Error("a command that was told to stop ends well")
	}
	if n, tries := count(top, "downs"), count(top, "tries"); n != 1 || tries != 1 {
		t.Errorf("started %d times, and taken down %d times, want once each", tries, n)
	}
}
