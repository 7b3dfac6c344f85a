package onserver

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/attack/bomb"
)

// bombTime is how long a bomb may go on, in seconds.
const bombTime = 2

func bombs() []attack {
	var all []attack
	for _, bm := range bomb.All() {
		all = append(all, attack{
			name: bm.Name, class: bm.Class, does: bm.Does, expect: "stopped by its limit; one end; nothing is left; a neighbour runs on",
			try:     func(t *testing.T, b *bed) { goOff(t, b, bm) },
			control: func(t *testing.T, b *bed) { goOffPlain(t, b, bm) },
		})
	}
	return append(all, attack{
		name: "bomb-execs", class: "bombs: processes", does: "180 execs are started at once in a sandbox", expect: "fewer run than its limit of processes; each has its one end",
		try: manyExecs, control: func(t *testing.T, b *bed) {
			b.startPlain(t)
			must(t, exec.Command("docker", "exec", b.plain, "sh", "-c", "for i in $(seq 180); do sleep 300 </dev/null >/dev/null 2>&1 & done").Run())
			out, err := exec.Command("docker", "exec", b.plain, "sh", "-c", "grep -l '^sleep' /proc/[0-9]*/cmdline | wc -l; pkill -KILL -f '^sleep 300$'").Output()
			if n, e := strconv.Atoi(strings.TrimSpace(string(out))); err != nil || e != nil || n < 180 {
				t.Errorf("%q of 180 run, %v", out, err)
			}
		},
	})
}

// goOff lets a bomb go off in a sandbox, while a neighbour works.
func goOff(t *testing.T, b *bed, bm bomb.Bomb) {
	thread, tmpl := "bombed", "base"
	if bm.Name == "bomb-cpu" {
		thread, tmpl = "slow", "slow"
	}
	if a := b.do(t, eve, "PUT", "/api/threads/"+thread+"/sandbox", map[string]any{"template": tmpl, "wait_s": 60}); a.status != http.StatusOK {
		t.Fatalf("%d %s", a.status, a.body)
	}
	b.ok(t, bob, "neighbour", "true")
	r := b.run(t, eve, thread, "exec", map[string]any{"argv": bm.Argv(), "background": true, "timeout_s": bombTime})
	calls, slowest := 0, time.Duration(0)
	end := result{Status: "running"}
	for deadline := time.Now().Add(time.Minute); end.Status == "running"; calls++ {
		if time.Now().After(deadline) {
			t.Fatal("the bomb has no end after a minute")
		}
		began := time.Now()
		b.ok(t, bob, "neighbour", "true")
		slowest = max(slowest, time.Since(began))
		end = result{}
		a := b.do(t, eve, "GET", "/api/threads/"+thread+"/execs/"+r.ExecID, nil)
		if err := json.Unmarshal(a.body, &end); err != nil {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	t.Logf("ended as %s; the neighbour made %d calls, the slowest took %v", end.Status, calls, slowest)
	b.endedOnce(t, thread, r.ExecID)
	got := reached(end.Stdout)
	if bm.Name == "bomb-output" {
		got = (len(end.Stdout) + len(end.Stderr)) >> 20
	}
	if bm.Class != "bombs: leftovers" && got >= bm.Enough {
		t.Errorf("it got to %d: nothing stopped it", got)
	}
	if end.Status == "running" || end.Status == "" {
		t.Errorf("it ended as %q", end.Status)
	}
	eventually(t, "nothing of the bomb is left", func() bool {
		left := b.ok(t, eve, thread, `grep -l '[b]omb-' /proc/[0-9]*/cmdline 2>/dev/null | wc -l; grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null | wc -l`)
		return left == "0\n0\n"
	})
	b.ok(t, eve, thread, "rm -rf /tmp/* /dev/shm/*")
}

// reached is the last number that a bomb told of.
func reached(text string) int {
	i := strings.LastIndex(text, "reached ")
	if i < 0 {
		return 0
	}
	word, _, _ := strings.Cut(strings.Fields(text[i:])[1], ".")
	n, err := strconv.Atoi(word)
	if err != nil {
		return 0
	}
	return n
}

// endedOnce checks that an exec has one terminal event and one terminal record.
func (b *bed) endedOnce(t *testing.T, thread, id string) {
	t.Helper()
	a := b.do(t, eve, "GET", "/api/threads/"+thread+"/execs/"+id+"/events", nil)
	if n := bytes.Count(a.body, []byte("event: exit\n")); n != 1 {
		t.Errorf("%d terminal events: %d %.300s", n, a.status, a.body)
	}
	var list struct {
		Items []struct{ Phase, Action string }
	}
	a = b.do(t, "", "GET", "/api/audit?limit=1000&exec="+id, nil)
	if err := json.Unmarshal(a.body, &list); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, r := range list.Items {
		if r.Phase == "result" && r.Action == "exec" {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d terminal records: %.500s", n, a.body)
	}
}

// startPlain starts the container without limits, once.
func (b *bed) startPlain(t *testing.T) {
	t.Helper()
	if b.plain != "" {
		return
	}
	out, err := exec.Command("docker", "run", "-d", "--network", "none", "--shm-size", "512m", "--tmpfs", "/tmp:size=512m,nr_inodes=0",
		"skerry/base:latest", "sleep", "3600").Output()
	must(t, err)
	b.plain = strings.TrimSpace(string(out))
}

// goOffPlain lets a bomb go off, up to a bound, where nothing but the machine limits it.
func goOffPlain(t *testing.T, b *bed, bm bomb.Bomb) {
	b.startPlain(t)
	argv := append([]string{"exec", b.plain}, bm.Bounded()...)
	defer exec.Command("docker", "exec", b.plain, "sh", "-c", "rm -rf /tmp/* /dev/shm/*; pkill -KILL -f '[b]omb-'").Run() //nolint:errcheck // the container goes soon
	inside := func(script string) string {
		out, err := exec.Command("docker", "exec", b.plain, "sh", "-c", script).CombinedOutput()
		if err != nil {
			t.Fatalf("%v %s", err, out)
		}
		return strings.TrimSpace(string(out))
	}
	switch bm.Name {
	case "bomb-cpu": // beside the container, whose weight on a busy machine would stop it as well as a quota
		reaches(t, func() bool {
			out, err := exec.Command(bm.Bounded()[0], bm.Bounded()[1:]...).Output()
			must(t, err)
			return reached(string(out)) >= bm.Enough
		})
	case "bomb-stop":
		supervised := append([]string{"exec", "-d", b.plain, "sh", "-c", `"$@"; true`, "supervisor"}, bm.Bounded()...)
		must(t, exec.Command("docker", supervised...).Run())
		eventually(t, "a supervisor without the filter is stopped", func() bool {
			return inside(`for p in /proc/[0-9]*; do tr '\0' ' ' < $p/cmdline 2>/dev/null | grep -q '^sh -c "\$@"' && grep -o '^State:.T' $p/status; done; true`) != ""
		})
	case "bomb-daemons":
		out, err := exec.Command("docker", argv...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v %s", err, out)
		}
		if n := inside(`grep -l '[b]omb-' /proc/[0-9]*/cmdline | wc -l`); n < strconv.Itoa(bm.Enough) && len(n) < 2 {
			t.Errorf("%s processes are left without a sub-reaper", n)
		}
	default:
		reaches(t, func() bool {
			out, _ := exec.Command("docker", argv...).CombinedOutput()
			if bm.Name == "bomb-output" {
				return len(out)>>20 >= bm.Enough
			}
			return reached(string(out)) >= bm.Enough
		})
	}
}

// manyExecs is the bomb that a caller makes.
func manyExecs(t *testing.T, b *bed) {
	ids, refused := []string{}, 0
	for range 180 { // the newest 200 of a thread can be asked for
		a := b.do(t, eve, "POST", "/api/threads/bombed/exec", map[string]any{"command": "sleep 300", "background": true, "timeout_s": 600})
		var r result
		switch {
		case a.status == http.StatusOK && json.Unmarshal(a.body, &r) == nil:
			ids = append(ids, r.ExecID)
		case a.code() == "capacity_exceeded" || a.code() == "sandbox_lost":
			refused++
		default:
			t.Fatalf("%d %s", a.status, a.body)
		}
		if len(ids)%20 == 0 {
			b.ok(t, bob, "neighbour", "true")
		}
	}
	killed := 0
	for _, id := range ids {
		if a := b.do(t, eve, "DELETE", "/api/threads/bombed/execs/"+id, nil); a.status >= 500 {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	for _, id := range ids {
		var end result
		eventually(t, "every exec has its end", func() bool {
			end = result{}
			a := b.do(t, eve, "GET", "/api/threads/bombed/execs/"+id, nil)
			return json.Unmarshal(a.body, &end) == nil && end.Status != "" && end.Status != "running"
		})
		if end.Status == "killed" {
			killed++
		}
	}
	t.Logf("%d were accepted and %d of them ran, %d were refused", len(ids), killed, refused)
	if killed >= 128 {
		t.Error("more ran than the sandbox may have processes")
	}
	b.endedOnce(t, "bombed", ids[len(ids)-1])
	if left := b.ok(t, eve, "bombed", `grep -l '^sleep' /proc/[0-9]*/cmdline 2>/dev/null | wc -l`); left != "0\n" {
		t.Errorf("left over: %s", left)
	}
}
