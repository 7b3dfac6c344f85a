package attack

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/attack/wire"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Where the attacker and its victims run.
const (
	attacker  = "attacker"
	neighbour = "neighbour"
	probePath = "/mnt/user-data/workspace/probe"
	// The neighbour, who is of another tenant, uses these all the time.
	imageFile = "/usr/bin/env"
	skillFile = "/mnt/skills/public/csv-profile/SKILL.md"
)

// TestInside makes every attack from inside on every driver and runtime, in a sandbox that a server
// started, beside a neighbour's.
func TestInside(t *testing.T) {
	for _, driver := range Drivers {
		for _, runtime := range Runtimes {
			t.Run(driver+"/"+runtime, func(t *testing.T) { testInside(t, options{driver: driver, runtime: runtime}) })
		}
	}
}

// TestInsideClaimed makes them once in sandboxes that were made before their threads were known.
func TestInsideClaimed(t *testing.T) {
	testInside(t, options{driver: "docker", runtime: "runc", template: "pool: {target: 2, min: 2, burst: 2}\n"})
}

// TestInsideCrun makes them with crun in runc's place, as on a host that has crun alone. It runs where there is cgroup v2 alone, such
// as in test/machine: crun refuses a machine with both versions.
func TestInsideCrun(t *testing.T) {
	crun, err := exec.LookPath("crun")
	if err != nil || cgroupV1() || *update { // what is written is runc's
		t.Skip("missing: crun, on a machine with cgroup v2 alone")
	}
	for _, driver := range []string{"oci", "containerd"} {
		t.Run(driver, func(t *testing.T) {
			dir := openDir(t)
			must(t, os.Symlink(crun, filepath.Join(dir, "runc")))
			testInside(t, options{driver: driver, runtime: "runc", env: []string{"PATH=" + dir + ":" + os.Getenv("PATH")}})
		})
	}
}

func testInside(t *testing.T, o options) {
	place := o.driver + "/" + o.runtime
	o.tenants = true
	s := start(t, o)
	if o.template != "" {
		s.claim(t, attacker, neighbour)
	}
	program, err := os.ReadFile(filepath.Join(bin, "probe"))
	must(t, err)
	for _, thread := range []string{attacker, neighbour} {
		a := s.of(thread).do("PUT", "/api/threads/"+thread+"/files/content?path="+probePath, program)
		if a.status/100 != 2 {
			t.Fatalf("upload: %d %s", a.status, a.body)
		}
	}
	facts := hostFacts(t)
	if o.driver == InPods { // what is in the folder later no pod has
		plant(t, s.folder(attacker), facts)
	}
	for _, thread := range []string{attacker, neighbour} {
		s.of(thread).ok(thread, "chmod 755 "+probePath)
	}
	facts["hosts-abstract"] = hostVictim(t)["abstract"]
	maps.Copy(facts, s.victims())
	facts["api"] = "127.0.0.1:" + s.port()
	facts["image-file"], facts["skill-file"] = imageFile, skillFile
	if o.driver != InPods {
		plant(t, s.folder(attacker), facts)
	}
	for _, a := range All() {
		t.Run(a.Name, func(t *testing.T) {
			out := s.attempt(t, a.Name, facts)
			record(t, a.Name, place, out.Refused, out.Evidence)
		})
	}
	if o.driver != InPods && o.runtime == "runc" { // elsewhere each sandbox has a copy, or a kernel, of its own
		// What cannot be opened is not watched and not locked: this program runs in all sandboxes.
		if r := s.run(attacker, map[string]any{"argv": []string{"cat", sandbox.DaemonPath}}); !strings.Contains(r.Stderr, "Permission denied") {
			t.Errorf("the daemon's program can be read: %s, %d bytes, stderr %s", r.Status, len(r.Stdout), r.Stderr)
		}
	}
	if got := s.ok(attacker, "echo alive"); got != "alive\n" {
		t.Errorf("after all attacks an exec says %q", got)
	}
}

// claim claims sandboxes of the pool for threads.
func (s *server) claim(t *testing.T, threads ...string) {
	t.Helper()
	for _, thread := range threads {
		for deadline := time.Now().Add(time.Minute); strings.Contains(string(s.do("GET", "/metrics", nil).body), `skerry_pool_sandboxes{state="waiting",template="base"} 0`); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("no sandbox waits")
			}
		}
		s.of(thread).ok(thread, "true")
		if a := s.of(thread).do("GET", "/api/threads/"+thread, nil); !strings.Contains(string(a.body), `"warm":true`) {
			t.Fatalf("%s has no sandbox of the pool: %s", thread, a.body)
		}
	}
}

// attempt makes one attack in the attacker's sandbox.
func (s *server) attempt(t *testing.T, name string, facts wire.Facts) wire.Outcome {
	t.Helper()
	r := s.run(attacker, map[string]any{"argv": append([]string{probePath, "run", name}, facts.Args()...), "timeout_s": 170})
	return readOutcome(t, r.Stdout, fmt.Sprintf("%s, stderr %s", r.Status, r.Stderr))
}

// readOutcome reads the program's line. An attempt that could not be made fails the test.
func readOutcome(t testing.TB, line, otherwise string) wire.Outcome {
	t.Helper()
	var out wire.Outcome
	if err := json.Unmarshal([]byte(line), &out); err != nil {
		t.Fatalf("no outcome: %q, %s", line, otherwise)
	}
	if out.Broken != "" {
		t.Fatalf("the attempt could not be made: %s", out.Broken)
	}
	return out
}

// hostFacts makes what is to be reached on the host, open to all who can see it, and tells where it is.
func hostFacts(t testing.TB) wire.Facts {
	t.Helper()
	dir := openDir(t)
	canary, secret := filepath.Join(dir, "canary"), "secret-of-"+filepath.Base(dir)
	must(t, os.WriteFile(canary, []byte(secret), 0o644)) //nolint:gosec // modes must not be what holds
	handle, _, err := unix.NameToHandleAt(unix.AT_FDCWD, canary, 0)
	must(t, err)
	facts := wire.Facts{"canary": canary, "secret": secret, "handle": fmt.Sprintf("%d:%x", handle.Type(), handle.Bytes())}
	facts["device"] = strconv.FormatUint(disk(t), 10)
	return facts
}

// disk returns the number of a block device of the host that root can open there: that of its root file system,
// or a loop device where the host keeps that from root, too.
func disk(t testing.TB) uint64 {
	t.Helper()
	root, err := os.Stat("/")
	must(t, err)
	dir, err := os.MkdirTemp("/dev", "skerry-attack-") // /tmp may be mounted so that no device can be opened there
	must(t, err)
	defer os.Remove(dir)
	path := filepath.Join(dir, "disk")
	for _, dev := range []uint64{root.Sys().(*syscall.Stat_t).Dev, unix.Mkdev(7, 0)} {
		must(t, unix.Mknod(path, unix.S_IFBLK|0o600, int(dev))) //nolint:gosec // below 1<<63
		file, err := os.Open(path)
		must(t, os.Remove(path))
		if err == nil {
			file.Close()
			return dev
		}
	}
	t.Fatal("no block device can be opened here")
	return 0
}

// victims starts another exec in the attacker's sandbox and the neighbour, and tells what the attacker may
// know of it.
func (s *server) victims() wire.Facts {
	s.t.Helper()
	mark := "neighbour-" + filepath.Base(s.data)
	file := filepath.Join("/mnt/user-data/workspace", "victim.json")
	s.run(attacker, map[string]any{"argv": []string{probePath, "sibling"}, "background": true, "timeout_s": 3600})
	n := s.of(neighbour)
	n.run(neighbour, map[string]any{"argv": []string{probePath, "victim", mark, file, imageFile, skillFile}, "background": true, "timeout_s": 3600})
	folder := s.folder(neighbour)
	n.ok(neighbour, "for i in $(seq 600); do [ -e "+file+" ] && exit; sleep 0.1; done; exit 1") // from a pod files come when an exec ends
	facts := waitFor(s.t, filepath.Join(folder, "workspace/victim.json"))
	info, err := os.Stat(filepath.Join(folder, "workspace"))
	must(s.t, err)
	facts["file"] = filepath.Join(folder, "workspace/victim.json")
	facts["uid"] = strconv.Itoa(int(info.Sys().(*syscall.Stat_t).Uid))
	return facts
}
