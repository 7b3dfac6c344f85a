package audit

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit/segment"
	"github.com/skerry-sandbox/skerry/internal/audit/verify"
)

// kills is how many times TestKill kills; with -short fewer.
const kills = 250

// TestKill kills a writing process again and again, at random moments: every record that it was told is written is
// there, once, and the chain is whole and signed.
func TestKill(t *testing.T) {
	t.Parallel()
	n := kills
	if testing.Short() {
		n = 50
	}
	random := rand.New(rand.NewPCG(3, 4)) //nolint:gosec // a test that can be repeated
	const each = 10                       // rounds of one log: all of it is read at their end
	answered, written, torn := 0, 0, 0
	for done := 0; done < n; done += each {
		dir, told := t.TempDir(), map[string]int{}
		for range each {
			for _, id := range killOnce(t, dir, random) {
				told[id] = 0
			}
			if res, err := verify.Verify(context.Background(), dir, verify.Options{}); err != nil || !res.OK {
				t.Fatalf("after %d kills: %+v, %v", done, res.FirstBad, err)
			}
		}
		l := openLog(t, Options{Dir: dir, Signer: testKey(1)})
		must(t, l.Close())
		res, err := verify.Verify(context.Background(), dir, verify.Options{Keys: []verify.PublicKey{testKey(1).public()}})
		must(t, err)
		if !res.OK || res.Records != l.journal.Appended() || res.Records > 0 && res.Writers[0].SignedSeq+1 < res.Records {
			t.Fatalf("after %d kills: %+v %+v", done, res, res.FirstBad)
		}
		seen := map[string]bool{}
		segs, err := segment.List(l.journal.Dir())
		must(t, err)
		for _, s := range segs {
			_, err := segment.Scan(s.Path, func(r Record) {
				if seen[r.ID] {
					t.Errorf("record %s is there twice", r.ID)
				}
				seen[r.ID] = true
			})
			must(t, err)
		}
		for id := range told {
			if !seen[id] {
				t.Errorf("after %d kills: the answered record %s is lost", done, id)
			}
		}
		aside, err := filepath.Glob(filepath.Join(l.journal.Dir(), "*.torn-*"))
		must(t, err)
		answered, written, torn = answered+len(told), written+len(seen), torn+len(aside)
		must(t, os.RemoveAll(dir))
	}
	if answered < 10*n {
		t.Errorf("the children wrote %d records", answered)
	}
	t.Logf("%d kills: %d records, %d of them answered: none lost, none twice, all chains whole and signed; %d torn ends", n, written, answered, torn)
}

// killOnce starts a process that writes, kills it at a random moment, and returns the records that it was told are written.
func killOnce(t *testing.T, dir string, random *rand.Rand) (told []string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), "SKERRY_TEST_AUDIT_CHILD="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	after := time.Duration(random.Int64N(int64(30 * time.Millisecond)))
	early := random.IntN(8) == 0 // maybe while it opens the log
	if early {
		time.AfterFunc(after, cancel) // SIGKILL
	}
	in := bufio.NewReader(out)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			break
		}
		if told = append(told, strings.TrimSpace(line)); len(told) == 1 && !early {
			time.AfterFunc(after, cancel)
		}
	}
	_ = cmd.Wait()
	return told
}

// appendUntilKilled prints the ID of every record after Append (survives the end of the process).
func appendUntilKilled(dir string) {
	l, err := Open(Options{Dir: dir, SegmentBytes: 128 << 10, Signer: testKey(1), SignEvery: 20, SignWithin: 5 * time.Millisecond})
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
