package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit/segment"
	"github.com/skerry-sandbox/skerry/internal/audit/verify"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// waitFor waits until ok, which a background goroutine makes true.
func waitFor(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("after 20 s: not %s", what)
		}
	}
}

func sizeOf(t testing.TB, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	must(t, err)
	return info.Size()
}

// TestRoomAhead: a segment has zeros behind its records while it is written, and none when it is full or closed.
func TestRoomAhead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := Options{Dir: dir, SegmentBytes: 64 << 10, Ahead: 16 << 10}
	l := openLog(t, o)
	path := filepath.Join(dir, l.Writer(), segment.Name(1))
	waitFor(t, "room", func() bool { return sizeOf(t, path) >= 16<<10 })
	recs := fill(t, l, 5)
	wantOK(t, dir, 5)
	must(t, l.Commit(t.Context(), recs[4]))
	fill(t, l, 300)
	_, err := l.AppendSync(t.Context(), Record{})
	must(t, err)
	text, err := os.ReadFile(path)
	must(t, err)
	if bytes.IndexByte(text, 0) >= 0 {
		t.Error("a full segment keeps its zeros")
	}
	must(t, l.Close())
	segs, err := segment.List(filepath.Join(dir, l.Writer()))
	must(t, err)
	if text, err = os.ReadFile(segs[len(segs)-1].Path); err != nil || bytes.IndexByte(text, 0) >= 0 {
		t.Errorf("a closed segment keeps its zeros (%v)", err)
	}
	wantOK(t, dir, 306)
}

// TestPowerCut: of what was written since the last commit a power cut keeps any sectors, in any order. What was
// committed is there, and no check takes the hole for damage.
func TestPowerCut(t *testing.T) {
	t.Parallel()
	for round := range 60 {
		random := rand.New(rand.NewPCG(uint64(round), 1)) //nolint:gosec // a test that can be repeated
		dir := t.TempDir()
		o := Options{Dir: dir, Ahead: 64 << 10}
		l := openLog(t, o)
		path := filepath.Join(dir, l.Writer(), segment.Name(1))
		waitFor(t, "room", func() bool { return sizeOf(t, path) >= 64<<10 })
		recs := fill(t, l, 1+random.IntN(20))
		last := recs[len(recs)-1]
		must(t, l.Commit(t.Context(), last))
		safe, err := os.ReadFile(path)
		must(t, err)
		fill(t, l, 1+random.IntN(20))
		text, err := os.ReadFile(path)
		must(t, err)
		for at := 0; at < len(text); at += 512 {
			if random.IntN(2) == 0 {
				copy(text[at:min(at+512, len(text))], safe[min(at, len(safe)):])
			}
		}
		must(t, l.Close())
		must(t, os.WriteFile(path, text, 0o600))
		l = openLog(t, o)
		if at := l.journal.Appended(); at < last.Seq {
			t.Fatalf("round %d: the log ends with record %d, and %d was committed", round, at, last.Seq)
		}
		next := fill(t, l, 1)[0]
		must(t, l.Close())
		wantOK(t, dir, next.Seq)
		kept, err := os.ReadFile(path)
		must(t, err)
		if !bytes.Contains(kept, []byte(last.Hash)) {
			t.Fatalf("round %d: a committed record is lost", round)
		}
	}
}

// TestHoleBehindASignature: what a signature covers was durable, so a hole in it is no power cut.
func TestHoleBehindASignature(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := openLog(t, Options{Dir: dir, Signer: testKey(1), SignWithin: time.Hour})
	fill(t, l, 5)
	must(t, l.Close())
	path := filepath.Join(dir, l.Writer(), segment.Name(1))
	text, err := os.ReadFile(path)
	must(t, err)
	clear(text[1500:1600])
	must(t, os.WriteFile(path, text, 0o600))
	l = openLog(t, Options{Dir: dir})
	fill(t, l, 1)
	must(t, l.Close())
	if res, err := verify.Verify(context.Background(), dir, verify.Options{}); err != nil || res.OK || res.FirstBad.Reason != verify.BadChanged {
		t.Errorf("%+v, %v", res, err)
	}
}

// TestMend: a log whose sync fails refuses, and goes on when it works again, with nothing twice.
func TestMend(t *testing.T) {
	t.Parallel()
	for _, open := range []bool{false, true} {
		t.Run(fmt.Sprint("open ", open), func(t *testing.T) {
			dir := t.TempDir()
			var failing atomic.Bool
			l := openLog(t, Options{Dir: dir, FailOpen: open, failSync: func() error {
				if failing.Load() {
					return errors.New("the disk is gone")
				}
				return nil
			}})
			waitFor(t, "room", func() bool { return l.State().Room > 0 })
			_, err := l.AppendSync(t.Context(), Record{Tenant: "acme", Subject: "before"})
			must(t, err)
			failing.Store(true)
			_, first := l.AppendSync(t.Context(), Record{Tenant: "acme", Subject: "unsure"})
			_, second := l.AppendSync(t.Context(), Record{Tenant: "acme", Subject: "missed"})
			if open {
				must(t, errors.Join(first, second))
			} else {
				wantKind(t, first, sandbox.Unavailable)
				wantKind(t, second, sandbox.Unavailable)
			}
			if l.State().Err == nil {
				t.Error("the state says nothing")
			}
			failing.Store(false)
			waitFor(t, "mended", func() bool { return l.State().Err == nil })
			r, err := l.AppendSync(t.Context(), Record{Tenant: "acme", Subject: "after"})
			must(t, err)
			want := uint64(3)
			if open {
				want = 4 // and the gap
				wantGap(t, l, 2)
			}
			if r.Seq != want {
				t.Errorf("seq %d, want %d", r.Seq, want)
			}
			must(t, l.Close())
			wantOK(t, dir, want)
		})
	}
}

// wantGap checks that the log has one record of a gap, of so many records.
func wantGap(t *testing.T, l *Log, missed int) {
	t.Helper()
	gaps := 0
	segs, err := segment.List(l.journal.Dir())
	must(t, err)
	for _, s := range segs {
		_, err := segment.Scan(s.Path, func(r Record) {
			if r.Action == ActionGap {
				gaps++
				if !strings.Contains(string(r.Args), fmt.Sprintf(`"count":%d`, missed)) {
					t.Errorf("the gap is %s, want %d", r.Args, missed)
				}
			}
		})
		must(t, err)
	}
	if gaps != 1 {
		t.Errorf("%d gaps", gaps)
	}
}

// smallDisk mounts a file system of a few MiB.
func smallDisk(t *testing.T, kind string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	dir := t.TempDir()
	mount := []string{"-t", "tmpfs", "-o", "size=4m", "none", dir}
	if kind == "ext4" {
		image := filepath.Join(t.TempDir(), "image")
		must(t, os.WriteFile(image, nil, 0o600))
		must(t, os.Truncate(image, 8<<20))
		if out, err := exec.Command("mkfs.ext4", "-q", "-m", "0", image).CombinedOutput(); err != nil {
			t.Skipf("mkfs.ext4: %v %s", err, out)
		}
		mount = []string{"-o", "loop", image, dir}
	}
	if out, err := exec.Command("mount", mount...).CombinedOutput(); err != nil {
		t.Skipf("mount: %v %s", err, out)
	}
	t.Cleanup(func() {
		// A program that another test starts has this test's files until it execs.
		var err error
		waitFor(t, "free to unmount: "+dir, func() bool {
			err = syscall.Unmount(dir, 0)
			return !errors.Is(err, syscall.EBUSY)
		})
		if err != nil {
			t.Error(err)
		}
	})
	return dir
}

// TestFullDisk fills a real disk under a log. What was begun has its end recorded, what begins is refused, the refusal
// is recorded, and all goes on when there is room again.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"tmpfs", "ext4"} {
		for _, open := range []bool{false, true} {
			t.Run(fmt.Sprint(kind, " open ", open), func(t *testing.T) { testFullDisk(t, smallDisk(t, kind), open) })
		}
	}
}

func testFullDisk(t *testing.T, disk string, open bool) {
	dir := filepath.Join(disk, "audit")
	l, err := Open(Options{Dir: dir, Ahead: 256 << 10, FailOpen: open})
	must(t, err)
	defer l.Close() //nolint:errcheck // also when the test failed: the disk is unmounted
	waitFor(t, "room", func() bool { return l.State().Room >= 128<<10 })
	begin := func(i int) (Record, error) {
		return l.AppendSync(t.Context(), Record{Tenant: "acme", Phase: PhaseAttempt, Action: ActionExec, Subject: fmt.Sprint(i, strings.Repeat("x", 900))})
	}
	begun, err := begin(-1)
	must(t, err)

	ballast, err := os.Create(filepath.Join(disk, "ballast"))
	must(t, err)
	for err == nil {
		_, err = ballast.Write(make([]byte, 4<<10))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	must(t, ballast.Close())
	done := uint64(1)
	for i := range 2000 {
		if _, e := begin(i); e != nil {
			if !errors.Is(e, sandbox.Unavailable) || !strings.Contains(e.Error(), "disk of the audit log is full") {
				t.Fatalf("refused with %v", e)
			}
			break
		}
		if open && l.State().Missed > 0 {
			break
		}
		done++
	}
	if s := l.State(); s.Err == nil || done == 2001 || s.Room == 0 {
		t.Fatalf("after %d records on a full disk: %+v", done, s)
	}
	for range 50 { // the end of what was begun
		end, err := l.AppendSync(t.Context(), Record{Tenant: "acme", Phase: PhaseResult, Action: ActionExec, Parent: begun.ID, Outcome: "exited"})
		must(t, err)
		if end.Seq == 0 {
			t.Fatal("the result was not recorded")
		}
	}
	must(t, os.Remove(filepath.Join(disk, "ballast")))
	waitFor(t, "room again", func() bool { return l.State().Err == nil })
	r, err := begin(3000)
	must(t, err)
	must(t, l.Close())
	wantOK(t, dir, r.Seq)
	denied := 0
	_, err = segment.Scan(filepath.Join(dir, l.Writer(), segment.Name(1)), func(r Record) {
		if r.Outcome == "denied" {
			denied++
		}
	})
	must(t, err)
	if open {
		wantGap(t, l, 1)
	} else if denied != 1 {
		t.Errorf("%d refusals are recorded, want 1", denied)
	}
}

// TestFullDiskAtRotation: a log that cannot begin a segment goes on in the room of the full one.
func TestFullDiskAtRotation(t *testing.T) {
	t.Parallel()
	disk := smallDisk(t, "tmpfs")
	dir := filepath.Join(disk, "audit")
	l, err := Open(Options{Dir: dir, SegmentBytes: 300 << 10, Ahead: 256 << 10})
	must(t, err)
	defer l.Close() //nolint:errcheck // see above
	waitFor(t, "room", func() bool { return l.State().Room >= 256<<10 })
	begun := fill(t, l, 1)[0]
	ballast, err := os.Create(filepath.Join(disk, "ballast"))
	must(t, err)
	_, err = io.Copy(ballast, zeroes{})
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	must(t, ballast.Close())
	n := 0
	for ; l.State().Room > 40<<10 && n < 2000; n++ {
		_, err := l.AppendSync(t.Context(), Record{Parent: begun.ID, Phase: PhaseResult, Subject: strings.Repeat("x", 700)})
		must(t, err)
	}
	wantOK(t, dir, uint64(n)+1)
	must(t, os.Remove(ballast.Name()))
	waitFor(t, "room again", func() bool { return l.State().Err == nil })
	fill(t, l, 1000)
	must(t, l.Close())
	wantOK(t, dir, uint64(n)+1001)
	if segs, err := segment.List(filepath.Join(dir, l.Writer())); err != nil || len(segs) < 2 {
		t.Errorf("%d segments, %v", len(segs), err)
	}
}

type zeroes struct{}

func (zeroes) Read(p []byte) (int, error) { clear(p); return len(p), nil }
