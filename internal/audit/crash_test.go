package audit

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestKill kills a writing process again and again: every record that it was told is written is
// there, and the chain is whole.
func TestKill(t *testing.T) {
	dir := t.TempDir()
	acked := map[string]bool{}
	for round := range 8 {
		ctx, cancel := context.WithCancel(t.Context())
		cmd := exec.CommandContext(ctx, os.Args[0])
		cmd.Env = append(os.Environ(), "SKERRY_TEST_AUDIT_CHILD="+dir)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		time.AfterFunc(time.Duration(150+37*round)*time.Millisecond, cancel) // SIGKILL
		in := bufio.NewReader(out)
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				break
			}
			acked[strings.TrimSpace(line)] = true
		}
		_ = cmd.Wait()
		if res, err := Verify(dir); err != nil || !res.OK {
			t.Fatalf("round %d: %+v, %v", round, res.FirstBad, err)
		}
	}
	if len(acked) < 100 {
		t.Fatalf("the children wrote %d records", len(acked))
	}
	l := openLog(t, Options{Dir: dir, SegmentBytes: 32 << 10})
	wantOK(t, dir, l.appended.Load())
	segs, err := segments(l.dir)
	must(t, err)
	for _, s := range segs {
		_, err := scan(s.path, func(r Record) { delete(acked, r.ID) })
		must(t, err)
	}
	if len(acked) > 0 {
		t.Errorf("%d acknowledged records are lost", len(acked))
	}
}

// appendUntilKilled prints the ID of every record after Append (survives the end of the process).
func appendUntilKilled(dir string) {
	l, err := Open(Options{Dir: dir, SegmentBytes: 32 << 10})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	var mu sync.Mutex
	for range 4 {
		go func() {
			for i := 0; ; i++ {
				r, err := l.Append(context.Background(), Record{Tenant: "acme", Phase: PhaseAttempt, Action: ActionExec, Subject: strings.Repeat("x", i%900)})
				if err == nil && i%8 == 0 {
					err = l.Commit(context.Background(), r)
				}
				if err != nil {
					fmt.Fprintln(os.Stderr, err)
					os.Exit(1)
				}
				mu.Lock()
				_, _ = os.Stdout.WriteString(r.ID + "\n")
				mu.Unlock()
			}
		}()
	}
	select {}
}

func benchRecord() Record {
	args, hash := Args(map[string]any{"command": "ls -la | head", "timeout_s": 30})
	return Record{Tenant: "acme", User: "ann", Thread: "main", Phase: PhaseAttempt, Action: ActionExec,
		Subject: "ls -la | head", Args: args, ArgsHash: hash, RequestID: "0190-1234", Source: "127.0.0.1"}
}

func BenchmarkAppend(b *testing.B) {
	l := openLog(b, Options{Dir: b.TempDir()})
	rec := benchRecord()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := l.Append(b.Context(), rec); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppendCommit(b *testing.B) {
	for _, writers := range []int{1, 8, 64} {
		b.Run(fmt.Sprint(writers), func(b *testing.B) {
			l := openLog(b, Options{Dir: b.TempDir()})
			rec := benchRecord()
			begin := time.Now()
			var wg sync.WaitGroup
			for w := range writers {
				wg.Go(func() {
					for range b.N/writers + min(1, max(0, b.N%writers-w)) {
						if _, err := l.AppendSync(b.Context(), rec); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/time.Since(begin).Seconds(), "records/s")
		})
	}
}
