package kubernetes

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestCluster is what a user of a cluster relies on, in one installation: an installation takes longer than all of it.
func TestCluster(t *testing.T) {
	h := install(t)
	for _, part := range []struct {
		name string
		run  func(*testing.T, *house)
	}{
		{"helm test", helmTest}, {"demo", demo}, {"network", network}, {"any replica", anyReplica}, {"pack of a replica", packOfReplica},
		{"rolling upgrade", rollingUpgrade}, {"replica killed", replicaKilled}, {"sandbox killed", sandboxKilled},
	} {
		t.Run(part.name, func(t *testing.T) {
			mine := *h
			mine.t = t
			part.run(t, &mine)
		})
	}
}

func helmTest(_ *testing.T, h *house) {
	h.run("helm", "test", "skerry", "--namespace", h.namespace, "--timeout", "5m")
}

// demo is that of `make demo`, and calls tools.
func demo(t *testing.T, h *house) {
	out := h.run(h.skerry, "demo", "--server", h.front().pick().url, "--api-key", h.key)
	for _, want := range []string{"driver kubernetes", "called demo__read_text_file: ok", "islands.txt has 4 rows", "Done in "} {
		if !strings.Contains(out, want) {
			t.Errorf("it does not say %q:\n%s", want, out)
		}
	}
}

// anyReplica: a thread that one replica runs is answered by all, over the network.
func anyReplica(t *testing.T, h *house) {
	f := h.front()
	if len(f.open) != 2 {
		t.Fatalf("%d replicas", len(f.open))
	}
	a, b := f.open[0], f.open[1]
	h.ok(a, "any", "echo whole > /mnt/user-data/workspace/f")
	for _, d := range []*door{a, b} {
		if got := h.ok(d, "any", "cat /mnt/user-data/workspace/f"); got != "whole\n" {
			t.Errorf("%s: %q", d.pod, got)
		}
		file, err := h.request(d, "GET", "/api/threads/any/files/content?path=/mnt/user-data/workspace/f", nil)
		if err != nil || string(file.body) != "whole\n" {
			t.Errorf("the file by %s: %d %q, %v", d.pod, file.status, file.body, err)
		}
	}
}

// load runs commands until stop is closed; each that is not answered as it should be is an error.
func (f *front) load(t *testing.T, thread string, stop <-chan struct{}, done *atomic.Int64) {
	for n := 0; ; n++ {
		select {
		case <-stop:
			return
		default:
		}
		want := fmt.Sprintf("%s %d\n", thread, n)
		d := f.pick()
		r, err := f.h.exec(d, thread, "sleep 0.1; echo "+want, nil)
		if err != nil || r.Status != "exited" || r.Stdout != want {
			t.Errorf("%s by %s: %+v, %v", want, d.pod, r, err)
			time.Sleep(time.Second)
			continue
		}
		done.Add(1)
	}
}

// rollingUpgrade: while `helm upgrade` replaces all replicas under load, no exec fails.
func rollingUpgrade(t *testing.T, h *house) {
	f := h.front()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var done atomic.Int64
	wg.Go(func() { f.watch(stop) })
	for i := range 3 {
		thread := fmt.Sprintf("rolling-%d", i)
		h.ok(f.pick(), thread, "true")
		wg.Go(func() { f.load(t, thread, stop, &done) })
	}
	h.run("helm", "upgrade", "skerry", chart, "--namespace", h.namespace, "--reuse-values", "--set", "extraEnv[0].name=UPGRADED,extraEnv[0].value=yes", "--wait", "--timeout", installTime.String())
	time.Sleep(5 * time.Second) // the last of the old ones is stopping
	close(stop)
	wg.Wait()
	t.Logf("%d execs while both replicas were replaced", done.Load())
	if done.Load() < 10 {
		t.Errorf("only %d execs ended", done.Load())
	}
}

// replicaKilled: what a replica ran that was killed is answered by the other one, and its exec is lost, once.
func replicaKilled(t *testing.T, h *house) {
	f := h.front()
	a, b := f.open[0], f.open[1]
	h.ok(a, "orphan", "echo kept > /mnt/user-data/workspace/f")
	r, err := h.exec(a, "orphan", "sleep 250", map[string]any{"background": true, "timeout_s": 300})
	must(t, err)
	h.kubectl("delete", "pod", a.pod, "--grace-period=0", "--force")
	eventually(t, "the other replica has the thread", func() bool {
		got, err := h.exec(b, "orphan", "cat /mnt/user-data/workspace/f", nil)
		return err == nil && got.Stdout == "kept\n"
	})
	eventually(t, "the exec of the killed one is lost", func() bool { return h.status(b, "orphan", r.ExecID) == "lost" })
	h.kubectl("rollout", "status", "deployment/skerry", "--timeout", installTime.String())
}

// lostWithin is how soon it is known that a sandbox was killed. A busy machine may be late now and then, so it counts for the quickest of some.
const (
	lostWithin = 5 * time.Second
	kills      = 3
)

// sandboxKilled: when the processes of a sandbox's pod are killed on its node, its exec is lost, and the workspace is whole
// in the next one.
func sandboxKilled(t *testing.T, h *house) {
	for _, template := range h.templates() {
		t.Run(template, func(t *testing.T) {
			mine := *h
			mine.t = t
			quickest := time.Hour
			d := mine.front().pick()
			mine.use(d, "lost-"+template, template)
			for i := range kills {
				quickest = min(quickest, mine.killSandbox(d, "lost-"+template, fmt.Sprint("kept ", i)))
			}
			t.Logf("lost after %s at the soonest of %d", quickest.Round(10*time.Millisecond), kills)
			if quickest > lostWithin {
				t.Errorf("it takes %s at least until an exec is lost whose sandbox was killed, want %s", quickest, lostWithin)
			}
		})
	}
}

// killSandbox kills the sandbox of a thread while it runs a command, and returns how long the client did not know.
func (h *house) killSandbox(d *door, thread, text string) time.Duration {
	h.t.Helper()
	h.ok(d, thread, "echo "+text+" > /mnt/user-data/workspace/f")
	r, err := h.exec(d, thread, "sleep 250", map[string]any{"background": true, "timeout_s": 300})
	must(h.t, err)
	id := h.sandbox(d, thread)
	boxes := []string{"--namespace", h.namespace + "-boxes"}
	var container string
	eventually(h.t, "the kubelet has told of the container, which ran before", func() (told bool) {
		text := h.run("kubectl", append(boxes, "get", "pod", id, "--output", `jsonpath={.status.containerStatuses[?(@.name=="sandbox")].containerID}`)...)
		_, container, told = strings.Cut(text, "://")
		return told
	})
	began := time.Now()
	if kill := strings.Fields(os.Getenv(killContainer)); len(kill) > 0 {
		h.run(kill[0], append(kill[1:], container)...)
	} else {
		h.run("kubectl", append(boxes, "delete", "pod", id, "--grace-period=0", "--force", "--wait=false")...)
	}
	eventually(h.t, "the exec is lost", func() bool { return h.status(d, thread, r.ExecID) == "lost" })
	took := time.Since(began)
	if got := h.ok(d, thread, "cat /mnt/user-data/workspace/f"); got != text+"\n" {
		h.t.Errorf("the workspace has %q", got)
	}
	return took
}

// status is that of an exec, or what is wrong.
func (h *house) status(d *door, thread, id string) string {
	a, err := h.request(d, "GET", "/api/threads/"+thread+"/execs/"+id, nil)
	var r result
	if err != nil || a.status != 200 || r.UnmarshalJSON(a.body) != nil {
		return fmt.Sprintf("%d %s %v", a.status, a.body, err)
	}
	return r.Status
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(200 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within two minutes: %s", what)
		}
	}
}
