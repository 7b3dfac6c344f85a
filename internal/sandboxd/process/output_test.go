package process

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestOutputWithinLimit(t *testing.T) {
	b := newBed(t)
	r := shell("head -c 1000 /dev/zero | tr '\\0' x; head -c 600 /dev/zero | tr '\\0' y >&2")
	r.MaxOutput, r.MaxSpill, r.SpillDir = 1000, 1<<20, filepath.Join(b.spill, "exec")
	got := b.run(r)
	if got.stdout != strings.Repeat("x", 1000) || got.stderr != strings.Repeat("y", 600) {
		t.Errorf("%d and %d bytes", len(got.stdout), len(got.stderr))
	}
	if got.Stdout.Total != 1000 || got.Stdout.Tail != nil || got.Stdout.SpillPath != "" || got.Stdout.SpillCut {
		t.Errorf("%+v", got.Stdout)
	}
	if _, err := os.Stat(r.SpillDir); err == nil {
		t.Error("a spill folder was made for nothing")
	}
}

func TestOutputBeyondLimit(t *testing.T) {
	b := newBed(t)
	r := shell("seq 1 100000; seq 1 3 >&2")
	r.MaxOutput, r.MaxSpill, r.SpillDir = 1001, 1<<20, filepath.Join(b.spill, "a", "exec")
	got := b.run(r)
	var whole strings.Builder
	for i := 1; i <= 100000; i++ {
		fmt.Fprintln(&whole, i)
	}
	w := whole.String()
	if got.stdout != w[:500] || string(got.Stdout.Tail) != w[len(w)-501:] || got.Stdout.Total != uint64(len(w)) {
		t.Errorf("head %q, tail %q, total %d", got.stdout, got.Stdout.Tail, got.Stdout.Total)
	}
	spilled, err := os.ReadFile(got.Stdout.SpillPath)
	if err != nil || string(spilled) != w || got.Stdout.SpillCut || got.Stdout.SpillPath != filepath.Join(r.SpillDir, "stdout") {
		t.Errorf("spill file %q of %d bytes, cut %v: %v", got.Stdout.SpillPath, len(spilled), got.Stdout.SpillCut, err)
	}
	if got.stderr != "1\n2\n3\n" || got.Stderr.SpillPath != "" {
		t.Errorf("%q %+v", got.stderr, got.Stderr)
	}
}

func TestHugeOutput(t *testing.T) {
	b := newBed(t)
	r := shell("head -c 100000000 /dev/zero; head -c 3000000 /dev/zero >&2")
	r.MaxSpill, r.SpillDir = 8<<20, b.spill
	start := time.Now()
	got := b.run(r)
	b.wantExit(got, 0)
	if got.Stdout.Total != 100000000 || len(got.stdout) != 512<<10 || len(got.Stdout.Tail) != 512<<10 || !got.Stdout.SpillCut {
		t.Errorf("%d bytes, head %d, tail %d, cut %v", got.Stdout.Total, len(got.stdout), len(got.Stdout.Tail), got.Stdout.SpillCut)
	}
	for path, want := range map[string]int64{got.Stdout.SpillPath: 8 << 20, got.Stderr.SpillPath: 3000000} {
		if info, err := os.Stat(path); err != nil || info.Size() != want {
			t.Errorf("spill file %s: %v, %v", path, info, err)
		}
	}
	t.Logf("100 MB in %v", time.Since(start))
}

func TestSpillIsConfined(t *testing.T) {
	b := newBed(t)
	outside := t.TempDir()
	if err := os.Symlink(outside, filepath.Join(b.spill, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(b.spill, "taken"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(outside, "x"), filepath.Join(b.spill, "taken", "stdout")); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{filepath.Join(b.spill, "link"), filepath.Join(b.spill, "taken"), b.spill + "/../x", "/tmp", "relative", outside} {
		r := request("seq", "100")
		r.MaxOutput, r.MaxSpill, r.SpillDir = 10, 1<<20, dir
		got := b.run(r)
		b.wantExit(got, 0)
		if got.Stdout.SpillPath != "" || !got.Stdout.SpillCut {
			t.Errorf("%s: spilled to %q", dir, got.Stdout.SpillPath)
		}
	}
	if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
		t.Errorf("outside: %v, %v", left, err)
	}
}

// Output arrives while the exec runs, whether or not a client reads it.
func TestOutputStreams(t *testing.T) {
	b := newBed(t)
	e := b.start(shell("echo first; sleep 30"))
	start := time.Now()
	for e.LastEvent() < 2 {
		time.Sleep(time.Millisecond)
		if time.Since(start) > 25*time.Second {
			t.Fatal("no output")
		}
	}
	if err := e.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := b.wait(e); r.stdout != "first\n" || r.Status != Killed {
		t.Errorf("%q, status %d", r.stdout, r.Status)
	}
}

// Many small writes neither cost an event each for ever nor slow down what writes much.
func TestSmallPieces(t *testing.T) {
	b := newBed(t)
	e := b.start(request("python3", "-u", "-c", "import os\nfor i in range(100000): os.write(1, b'x')"))
	r := b.wait(e)
	if len(r.stdout) != 100000 || e.LastEvent() > 6000 {
		t.Errorf("%d bytes in %d events", len(r.stdout), e.LastEvent())
	}
}

func TestRing(t *testing.T) {
	var all bytes.Buffer
	r := ring{limit: 37}
	for i := range 200 {
		p := bytes.Repeat([]byte{byte(i)}, i*7%50)
		r.write(p)
		all.Write(p)
		a, b := r.parts()
		got := string(a) + string(b)
		want := all.String()
		if want = want[max(0, len(want)-37):]; got != want {
			t.Fatalf("after %d writes: %q, want %q", i, got, want)
		}
	}
}

func TestEventBlocks(t *testing.T) {
	l := &eventLog{exited: make(chan struct{})}
	h := sha256.New()
	for i := range 3000 {
		p := bytes.Repeat([]byte{byte(i)}, i*i%(200<<10)/(1+i%7))
		_, _ = h.Write(p)
		l.output(false, p)
	}
	got := sha256.New()
	if err := l.stream(false, func(p []byte) error {
		if len(p) == 0 || len(p) > MaxChunk {
			return fmt.Errorf("chunk of %d bytes", len(p))
		}
		_, err := got.Write(p)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(h.Sum(nil), got.Sum(nil)) {
		t.Error("the output changed")
	}
	l.end(&Exit{})
	if _, err := l.next(t.Context(), l.last(), 1); !errors.Is(err, io.EOF) {
		t.Errorf("after the exit: %v", err)
	}
}

func TestOOM(t *testing.T) {
	file := filepath.Join(t.TempDir(), "memory.events")
	if err := os.WriteFile(file, []byte("low 0\noom 3\noom_kill 3\noom_group_kill 0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b := newBed(t, func(o *Options) { o.OOMCounters = []string{"/no/such/file", file} })
	// What the kernel does to a process that is out of memory, the script does to itself.
	r := b.run(shell("kill -KILL $$"))
	if r.Status != Exited || r.Code != 137 {
		t.Errorf("SIGKILL without an OOM: %d", r.Status)
	}
	r = b.run(shell("echo oom_kill 4 > " + file + "; kill -KILL $$"))
	if r.Status != OOM {
		t.Errorf("status %d (%s)", r.Status, r.Reason)
	}
	r = b.run(shell("echo oom_kill 5 > " + file + "; exit 1"))
	if r.Status != Exited || r.Code != 1 {
		t.Errorf("an exec that survived: %d", r.Status)
	}
}

// TestFlood: only a stream that no client reads whole is slowed down.
func TestFlood(t *testing.T) {
	c := newCapture(&eventLog{}, false, 1<<20, nil)
	for total, want := range map[uint64]time.Duration{0: 0, floodAfter: 0, floodAfter + 1: time.Second / 512} {
		if c.total = total; c.pause(1, floodRate/512) != want {
			t.Errorf("after %d bytes: %s, want %s", total, c.pause(1, floodRate/512), want)
		}
	}
}
