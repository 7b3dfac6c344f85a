package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// inTerminal is a shell script in a terminal of 80 by 24.
func inTerminal(script string) Request {
	r := shell(script)
	r.Terminal = &Size{Cols: 80, Rows: 24}
	return r
}

// until reads events until the output so far holds text. It returns the number of the last one.
func (b *bed) until(e *Exec, text string) (uint64, string) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), 30*time.Second)
	defer cancel()
	var out bytes.Buffer
	for after := uint64(0); ; {
		events, err := e.Next(ctx, after, 100)
		if err != nil {
			b.Fatalf("no %q: %v; output %q", text, err, out.String())
		}
		for _, ev := range events {
			after = ev.N
			out.Write(ev.Data)
		}
		if strings.Contains(out.String(), text) {
			return after, out.String()
		}
	}
}

func (b *bed) typeIn(e *Exec, text string) {
	b.Helper()
	if err := e.WriteStdin(b.Context(), []byte(text), false); err != nil {
		b.Fatal(err)
	}
}

func TestTerminal(t *testing.T) {
	b := newBed(t)
	e := b.start(inTerminal(`stty size; tty; [ -t 0 ] && [ -t 1 ] && [ -t 2 ] && echo all three; : </dev/tty && echo controlling; read -r l; echo "got $l"; exit 3`))
	b.until(e, "controlling\r\n")
	b.typeIn(e, "hello\n")
	r := b.wait(e)
	b.wantExit(r, 3)
	for _, want := range []string{"24 80\r\n", "/dev/pts/", "all three\r\n", "controlling\r\n", "hello\r\ngot hello\r\n"} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("no %q in %q", want, r.stdout)
		}
	}
	if r.stderr != "" || r.Stderr.Total != 0 || r.Stdout.Total != uint64(len(r.stdout)) {
		t.Errorf("stderr %q, totals %d and %d, output of %d", r.stderr, r.Stdout.Total, r.Stderr.Total, len(r.stdout))
	}
	if err := e.Resize(Size{1, 1}); !errors.Is(err, ErrEnded) {
		t.Errorf("resize after the end: %v", err)
	}
}

func TestTerminalResize(t *testing.T) {
	b := newBed(t)
	e := b.start(inTerminal(`trap 'echo "now $(stty size)"' WINCH; echo ready; while :; do sleep 0.05; done`))
	b.until(e, "ready")
	if err := e.Resize(Size{Cols: 132, Rows: 50}); err != nil {
		t.Fatal(err)
	}
	b.until(e, "now 50 132")
	for _, bad := range []Size{{}, {0, 1}, {1, 0}, {MaxSide + 1, 1}, {1, MaxSide + 1}} {
		if e.Resize(bad) == nil {
			t.Errorf("resized to %v", bad)
		}
	}
	if err := e.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	plain := b.start(shell("sleep 30"))
	if err := plain.Resize(Size{1, 1}); !errors.Is(err, ErrNoTerminal) {
		t.Errorf("resize of pipes: %v", err)
	}
	if err := plain.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestTerminalResizeBefore: a size that is asked for before the command runs is not lost.
func TestTerminalResizeBefore(t *testing.T) {
	b := newBed(t)
	for range 8 {
		e := b.start(inTerminal("sleep 0.1; stty size"))
		if err := e.Resize(Size{Cols: 99, Rows: 33}); err != nil {
			t.Fatal(err)
		}
		if r := b.wait(e); !strings.Contains(r.stdout, "33 99") {
			t.Errorf("size %q", r.stdout)
		}
	}
}

func TestTerminalKeys(t *testing.T) {
	b := newBed(t)
	e := b.start(inTerminal(`echo ready; sleep 60; echo "sleep: $?"; cat; echo end of file`))
	b.until(e, "ready")
	time.Sleep(50 * time.Millisecond) // the shell has begun its sleep
	b.typeIn(e, "\x03")
	r := b.wait(e)
	if r.Status != Exited || r.Code != 128+2 || !strings.Contains(r.stdout, "^C") {
		t.Fatalf("Ctrl-C: %+v, %q", r.Exit, r.stdout)
	}
	e = b.start(inTerminal("echo ready; cat; echo end of file"))
	b.until(e, "ready")
	if err := e.WriteStdin(t.Context(), []byte("line\n"), true); err != nil {
		t.Fatal(err)
	}
	r = b.wait(e)
	b.wantExit(r, 0)
	if !strings.HasSuffix(r.stdout, "line\r\nline\r\nend of file\r\n") {
		t.Errorf("%q", r.stdout)
	}
}

// TestTerminalTree: what a command in a terminal leaves behind is ended with it, also what ignores
// the hangup or made a session of its own; and a deadline ends it.
func TestTerminalTree(t *testing.T) {
	b := newBed(t)
	r := b.run(inTerminal(`trap '' HUP; sleep 1000 & echo pid $!; setsid sh -c 'echo pid $$; exec sleep 1000' & sleep 0.3`))
	b.wantExit(r, 0)
	pids := 0
	for f := range strings.FieldsSeq(r.stdout) {
		if pid, err := strconv.Atoi(f); err == nil {
			pids++
			if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err == nil {
				t.Errorf("process %d is left", pid)
			}
		}
	}
	if pids != 2 {
		t.Errorf("%d processes in %q", pids, r.stdout)
	}
	late := inTerminal("echo on; sleep 1000")
	late.Timeout = 500 * time.Millisecond
	if r := b.run(late); r.Status != TimedOut || !strings.Contains(r.stdout, "on") {
		t.Errorf("deadline: %+v, %q", r.Exit, r.stdout)
	}
}

// TestTerminalCloses: a command may close its terminal and open it again.
func TestTerminalCloses(t *testing.T) {
	b := newBed(t)
	r := b.run(inTerminal(`d=$(tty); exec <&- >&- 2>&-; sleep 0.3; exec <$d >$d 2>&1; echo back`))
	b.wantExit(r, 0)
	if !strings.HasSuffix(r.stdout, "back\r\n") {
		t.Errorf("%q", r.stdout)
	}
}

// TestTerminalLongOutput: a terminal goes on showing after its limit; the result is bounded as any
// other, and the file has the whole.
func TestTerminalLongOutput(t *testing.T) {
	b := newBed(t)
	req := inTerminal(`stty -opost; seq 1 30000; echo the end`)
	req.MaxOutput, req.MaxSpill, req.SpillDir = 16<<10, 1<<20, filepath.Join(b.spill, "s")
	e := b.start(req)
	if err := e.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	kept, n, last := 0, 0, uint64(0)
	var tail []byte
	for !e.ended(last) {
		events, err := e.Next(t.Context(), last, 10)
		if err != nil {
			t.Fatal(err)
		}
		for _, ev := range events {
			if n++; n > 1 && ev.N != last+1 {
				t.Fatalf("event %d after %d", ev.N, last)
			}
			last = ev.N
			kept += len(ev.Data)
			tail = append(tail, ev.Data...)
		}
	}
	if kept > int(req.MaxOutput) || kept < int(req.MaxOutput)/4 || !bytes.HasSuffix(tail, []byte("30000\nthe end\n")) {
		t.Errorf("%d bytes are kept, ending %q", kept, tail[max(0, len(tail)-20):])
	}
	x := e.log.exit
	want := new(bytes.Buffer)
	for i := range 30000 {
		fmt.Fprintln(want, i+1)
	}
	want.WriteString("the end\n")
	whole, err := os.ReadFile(x.Stdout.SpillPath)
	if err != nil || !bytes.Equal(whole, want.Bytes()) {
		t.Errorf("the file has %d bytes, want %d: %v", len(whole), want.Len(), err)
	}
	if x.Stdout.Total != uint64(want.Len()) || !bytes.Equal(x.Stdout.Tail, want.Bytes()[want.Len()-8<<10:]) {
		t.Errorf("total %d of %d, tail of %d", x.Stdout.Total, want.Len(), len(x.Stdout.Tail))
	}
}

// ended tells whether number last is the exit.
func (e *Exec) ended(last uint64) bool { return e.Ended() && last == e.LastEvent() }

func TestTerminalEventsAreFew(t *testing.T) {
	l := &eventLog{keep: 1 << 20, exited: make(chan struct{})}
	for range 3 * maxLive {
		l.output(false, []byte("x"))
	}
	if len(l.records) != maxLive || l.last() != 3*maxLive || l.bytes != maxLive {
		t.Errorf("%d events of %d bytes, the last is %d", len(l.records), l.bytes, l.last())
	}
	events, err := l.next(t.Context(), 5, 2)
	if err != nil || len(events) != 2 || events[0].N != 2*maxLive+1 {
		t.Errorf("%v, %v", events, err)
	}
}
