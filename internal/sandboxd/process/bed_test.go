package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandboxd/procfs"
)

// bed is a Manager with the test binary as supervisor and this process in the place of PID 1.
type bed struct {
	*testing.T
	m     *Manager
	spill string
	count int
}

func newBed(t *testing.T, change ...func(*Options)) *bed {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b := &bed{T: t, spill: t.TempDir()}
	o := Options{
		Supervisor: []string{exe, SuperviseCommand}, Orphans: true, SpillRoot: b.spill,
		OOMCounters: procfs.OOMCounters, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	for _, c := range change {
		c(&o)
	}
	if b.m, err = New(o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.m.Close(context.Background())
		b.noChildren()
	})
	return b
}

// noChildren fails when a process that this one started, or a zombie of one, is left.
func (b *bed) noChildren() {
	procs, err := procfs.Scan()
	if err != nil {
		b.Fatal(err)
	}
	for _, p := range procs {
		if p.Parent == os.Getpid() {
			b.Errorf("process %d is left (zombie: %v)", p.PID, p.Zombie)
		}
	}
}

func request(argv ...string) Request {
	return Request{Argv: argv, Cwd: "/tmp", Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin"}, Timeout: 30 * time.Second, MaxOutput: 1 << 20}
}

func shell(script string) Request { return request("bash", "-c", script) }

func (b *bed) start(r Request) *Exec {
	b.Helper()
	b.count++
	e, started, err := b.m.Start(fmt.Sprintf("%s-%d", b.Name(), b.count), r)
	if err != nil || !started {
		b.Fatalf("start: %v, %v", started, err)
	}
	return e
}

// result of an exec, read from its events.
type result struct {
	*Exit
	stdout, stderr string
	pid            int
}

func (b *bed) wait(e *Exec) result {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), 40*time.Second)
	defer cancel()
	r, err := follow(ctx, e, 0)
	if err != nil {
		b.Fatal(err)
	}
	return r
}

func follow(ctx context.Context, e *Exec, after uint64) (r result, err error) {
	for {
		events, err := e.Next(ctx, after, 100)
		if errors.Is(err, io.EOF) {
			return r, nil
		}
		if err != nil {
			return r, err
		}
		for _, ev := range events {
			if after++; ev.N != after || len(ev.Data) > MaxChunk {
				return r, fmt.Errorf("event %d with %d bytes, want number %d", ev.N, len(ev.Data), after)
			}
			switch {
			case r.Exit != nil:
				return r, fmt.Errorf("event %d after the exit", ev.N)
			case ev.Started != nil:
				r.pid = ev.Started.PID
			case ev.Exit != nil:
				r.Exit = ev.Exit
			case ev.Stderr:
				r.stderr += string(ev.Data)
			default:
				r.stdout += string(ev.Data)
			}
		}
	}
}

func (b *bed) run(r Request) result {
	b.Helper()
	return b.wait(b.start(r))
}

func (b *bed) wantExit(r result, code int) {
	b.Helper()
	if r.Status != Exited || r.Code != code {
		b.Fatalf("ended as %d with code %d (%s), want code %d; stderr %.300q", r.Status, r.Code, r.Reason, code, r.stderr)
	}
}
