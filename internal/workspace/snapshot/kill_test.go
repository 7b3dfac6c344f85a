package snapshot

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// TestKilledWriter is the process that TestKill kills: it changes files and keeps them, until it is.
func TestKilledWriter(t *testing.T) {
	t.Parallel()
	dir := os.Getenv("SKERRY_TEST_KILL")
	if dir == "" {
		t.Skip("only as a process of TestKill")
	}
	sv := killed(t, dir)
	for i := 0; ; i++ {
		// All files of a round have its number: a snapshot with two numbers is half of one.
		for f := range 20 {
			put(t, sv.dir(thread1), fmt.Sprintf("workspace/%d", f), fmt.Appendf(random(200_000, uint64(f)), " round %d", i))
		}
		sv.mustKeep(thread1)
		fmt.Println("kept")
	}
}

// killed is the server whose process is killed, again and again.
func killed(t *testing.T, dir string) *server {
	sv := newServer(t, NewFolder(filepath.Join(dir, "store")), nil)
	sv.data, sv.uid = filepath.Join(dir, "data"), 1_000_001
	sv.o.Dir, sv.o.Holder = filepath.Join(dir, "state"), "holder"
	sv.make(thread1)
	return sv
}

// TestKill: whenever a server is killed, what is kept is one whole snapshot, and the next process goes on from its disk.
func TestKill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "store"), 0o700); err != nil {
		t.Fatal(err)
	}
	found := 0
	for i := range 6 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestKilledWriter$")        //nolint:gosec // this test
		cmd.Env = append(os.Environ(), "SKERRY_TEST_KILL="+dir, "TMPDIR="+dir) // its own files go with ours
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if i > 0 { // the first is killed on its way to its first snapshot
			if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Duration(i*137) * time.Millisecond) // any moment will do
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if cmd.Wait() == nil {
			t.Fatal("it ended by itself")
		}
		if wholeRound(t, NewFolder(filepath.Join(dir, "store"))) {
			found++
		}
	}
	if found == 0 {
		t.Error("it was always killed before its first snapshot")
	}
	sv := killed(t, dir)
	put(t, sv.dir(thread1), "workspace/after", nil)
	if about, err := sv.restoreIt(thread1, true); err != nil || about != "-" {
		t.Errorf("its own disk was replaced: %v", err)
	}
	sv.mustKeep(thread1)
	b := newServer(t, sv.store.Objects, nil)
	b.mustRestore(thread1, true)
	sameTree(t, tree(t, sv.dir(thread1)), tree(t, b.dir(thread1)))
}

// wholeRound restores what is kept and makes sure that it is of one round; false: nothing is kept yet.
func wholeRound(t *testing.T, o Objects) bool {
	t.Helper()
	b := newServer(t, o, nil)
	b.mustRestore(thread1, false)
	if have, _ := onDisk(b.dir(thread1)); !have {
		return false
	}
	rounds := map[string]int{}
	for f := range 20 {
		text, err := os.ReadFile(filepath.Join(b.dir(thread1), "workspace", fmt.Sprint(f)))
		if err != nil {
			t.Fatal(err)
		}
		rounds[string(text[200_000:])]++
	}
	if len(rounds) != 1 {
		t.Errorf("it is of several rounds: %v", rounds)
	}
	return true
}

func benchServer(b *testing.B, o Objects) *server {
	sv := newServer(b, o, nil)
	dir := sv.make(thread1)
	for i := range 10_000 {
		put(b, dir, fmt.Sprintf("workspace/%02d/%d.txt", i%50, i), random(1000, uint64(i)))
	}
	sv.mustKeep(thread1)
	time.Sleep(racyTime)
	sv.mustKeep(thread1)
	return sv
}

// BenchmarkKeep is what a change costs in a thread of 10,000 files of 1 kB: nothing changed, and one file.
func BenchmarkKeep(b *testing.B) {
	for kind, o := range map[string]func() Objects{"folder": func() Objects { return NewFolder(b.TempDir()) }, "s3": func() Objects { return bucket(b) }} {
		sv := benchServer(b, o())
		b.Run(kind+"/unchanged", func(b *testing.B) {
			for b.Loop() {
				sv.mustKeep(thread1)
			}
		})
		b.Run(kind+"/one_file", func(b *testing.B) {
			i, sent := 0, sv.store.bytes.Load()
			for b.Loop() {
				i++
				put(b, sv.dir(thread1), "workspace/07/7.txt", random(1000, uint64(50_000+i)))
				sv.mustKeep(thread1)
			}
			b.ReportMetric(float64(sv.store.bytes.Load()-sent)/float64(b.N), "B-sent/op")
		})
		b.Run(kind+"/restore", func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				other := newServer(b, sv.store.Objects, nil)
				b.StartTimer()
				other.mustRestore(thread1, false)
			}
		})
		small := newServer(b, sv.store.Objects, nil)
		t2 := sandbox.Thread{Owner: thread1.Owner, ID: "small"}
		put(b, small.make(t2), "workspace/a", nil)
		small.mustKeep(t2)
		time.Sleep(racyTime)
		small.mustKeep(t2)
		b.Run(kind+"/unchanged_small", func(b *testing.B) {
			for b.Loop() {
				small.mustKeep(t2)
			}
		})
	}
}
