package snapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestThereAndBack: a thread's files come back on another disk byte for byte, owned by the uid that it has
// there. They are not sent again.
func TestThereAndBack(t *testing.T) {
	t.Parallel()
	stores(t, func(t *testing.T, o Objects) {
		a, b := newServer(t, o, nil), newServer(t, o, nil)
		dir := a.make(thread1)
		hostile(t, dir)
		a.about = `{"labels":{}}`
		a.mustKeep(thread1)
		want := tree(t, dir)
		about, err := b.restoreIt(thread1, true)
		if err != nil || about != a.about {
			t.Fatal(about, err)
		}
		sameTree(t, want, tree(t, b.dir(thread1)))
		info, err := os.Stat(filepath.Join(b.dir(thread1), "workspace", "sparse"))
		if err != nil || info.Sys().(*syscall.Stat_t).Blocks*512 > 1<<20 {
			t.Error("the holes of a sparse file are gone", err)
		}
		if st := info.Sys().(*syscall.Stat_t); int(st.Uid) != b.uid {
			t.Errorf("it belongs to %d", st.Uid)
		}
		asked := b.store.asked()
		b.mustKeep(thread1)
		if n := b.store.asked() - asked; n != 0 {
			t.Errorf("nothing changed, and the store was asked %d times", n)
		}
		// And on: b changes something, a gets it.
		put(t, b.dir(thread1), "workspace/a.txt", []byte("changed by b"))
		if err := os.RemoveAll(filepath.Join(b.dir(thread1), "workspace", "a", "b", "c")); err != nil {
			t.Fatal(err)
		}
		b.mustKeep(thread1)
		want = tree(t, b.dir(thread1))
		a.mustRestore(thread1, true)
		sameTree(t, want, tree(t, dir))
	})
}

// TestIncrement: only what is new is sent, and nothing when nothing is.
func TestIncrement(t *testing.T) {
	t.Parallel()
	sv := newServer(t, NewFolder(t.TempDir()), nil)
	dir := sv.make(thread1)
	for i := range 10_000 {
		put(t, dir, fmt.Sprintf("workspace/%02d/%d.txt", i%50, i), random(1000, uint64(i)))
	}
	file := filepath.Join(dir, "workspace", "huge")
	huge, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if _, err := huge.Write(random(8<<20, uint64(i)+20_000)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(huge.Truncate(1<<30), huge.Close()); err != nil {
		t.Fatal(err)
	}
	sent := func() (writes, bytes int64) {
		t.Helper()
		w, n := sv.store.writes.Load(), sv.store.bytes.Load()
		sv.mustKeep(thread1)
		return sv.store.writes.Load() - w, sv.store.bytes.Load() - n
	}
	if w, n := sent(); w > 20 || n < 33<<20 || n > 36<<20 {
		t.Errorf("the first: %d objects, %d bytes", w, n)
	}
	if w, _ := sent(); w != 0 {
		t.Errorf("nothing changed: %d objects", w)
	}
	put(t, dir, "workspace/07/7.txt", []byte("new"))
	if w, n := sent(); w != 2 || n > 200_000 {
		t.Errorf("one small file: %d objects, %d bytes", w, n)
	}
	huge, err = os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = huge.Write(random(1000, 1))
	if err := errors.Join(err, huge.Close()); err != nil {
		t.Fatal(err)
	}
	if w, n := sent(); w != 2 || n > 300_000 {
		t.Errorf("1 kB at the end of 1 GB: %d objects, %d bytes", w, n)
	}
	if err := os.Rename(file, file+" moved"); err != nil {
		t.Fatal(err)
	}
	if w, n := sent(); w != 2 || n > 300_000 {
		t.Errorf("a file that was moved: %d objects, %d bytes", w, n)
	}
	if err := os.Chmod(file+" moved", 0o600); err != nil {
		t.Fatal(err)
	}
	if w, n := sent(); w != 2 || n > 300_000 {
		t.Errorf("another mode: %d objects, %d bytes", w, n)
	}
	// Without what this folder knows, nothing is sent twice either.
	if err := os.Remove((indexes{sv.Snapshots}).indexFile(thread1)); err != nil {
		t.Fatal(err)
	}
	if w, n := sent(); w > 2 || n > 300_000 {
		t.Errorf("without an index: %d objects, %d bytes", w, n)
	}
}

// TestManyChanges: a thread that changes file by file is restored from few objects, and unused objects are removed.
func TestManyChanges(t *testing.T) {
	t.Parallel()
	sv := newServer(t, NewFolder(t.TempDir()), nil)
	dir := sv.make(thread1)
	for i := range 150 {
		put(t, dir, fmt.Sprintf("workspace/%d", i), random(10_000, uint64(i)))
		sv.mustKeep(thread1)
	}
	idx := indexes{sv.Snapshots}.readIndex(thread1)
	if n := len(idx.Head.Packs); n > mostSmall+2 {
		t.Errorf("%d packs", n)
	}
	if len(idx.Garbage) == 0 {
		t.Fatal("nothing is to be removed")
	}
	for i := range idx.Garbage {
		idx.Garbage[i].Since = time.Now().Add(-2 * garbageGrace)
	}
	if err := (indexes{sv.Snapshots}).writeIndex(thread1, idx); err != nil {
		t.Fatal(err)
	}
	put(t, dir, "workspace/last", nil)
	sv.mustKeep(thread1)
	packs := 0
	if err := sv.store.List(t.Context(), place(thread1)+"/packs", func(Object) error { packs++; return nil }); err != nil || packs > mostSmall+10 {
		t.Errorf("%d packs are left, %v", packs, err)
	}
	b := newServer(t, sv.store.Objects, nil)
	b.mustRestore(thread1, false)
	sameTree(t, tree(t, dir), tree(t, b.dir(thread1)))
}

// TestSweep: packs that no snapshot refers to are removed when they are old, and never a pack that is young or in use.
func TestSweep(t *testing.T) {
	t.Parallel()
	stores(t, func(t *testing.T, o Objects) {
		sv := newServer(t, o, nil)
		dir := sv.make(thread1)
		put(t, dir, "workspace/a", []byte("a"))
		sv.mustKeep(thread1)
		orphan := packName(thread1, "01234567-89ab-7def-8123-456789abcdef")
		if _, err := o.Replace(t.Context(), orphan, []byte("x"), ""); err != nil {
			t.Fatal(err)
		}
		idx := indexes{sv.Snapshots}.readIndex(thread1)
		count := func() (n int) {
			if err := o.List(t.Context(), place(thread1)+"/packs", func(Object) error { n++; return nil }); err != nil {
				t.Fatal(err)
			}
			return n
		}
		if err := sv.sweep(t.Context(), thread1, idx, time.Now().Add(-orphanGrace)); err != nil || count() != 2 {
			t.Errorf("%d packs, %v", count(), err)
		}
		if err := sv.sweep(t.Context(), thread1, idx, time.Now().Add(time.Hour)); err != nil || count() != 1 {
			t.Errorf("%d packs, %v", count(), err)
		}
		b := newServer(t, o, nil)
		b.mustRestore(thread1, false)
		sameTree(t, tree(t, dir), tree(t, b.dir(thread1)))
	})
}

// TestFencing: a server whose thread another one went on with cannot put it back, and gets what that one has.
func TestFencing(t *testing.T) {
	t.Parallel()
	stores(t, func(t *testing.T, o Objects) {
		a, b := newServer(t, o, nil), newServer(t, o, nil)
		put(t, a.make(thread1), "workspace/a", []byte("1"))
		a.mustKeep(thread1)
		b.mustRestore(thread1, true) // without a change of its own
		put(t, a.dir(thread1), "workspace/a", []byte("late"))
		if err := a.saveIt(thread1); !errors.Is(err, sandbox.Conflict) {
			t.Fatalf("a late snapshot: %v", err)
		}
		put(t, b.dir(thread1), "workspace/b", []byte("2"))
		b.mustKeep(thread1)
		if err := (indexes{a.Snapshots}).dropIndex(thread1); err != nil {
			t.Fatal(err)
		}
		if err := a.saveIt(thread1); !errors.Is(err, sandbox.Conflict) {
			t.Fatalf("a late snapshot of one that knows nothing: %v", err)
		}
		a.mustRestore(thread1, true)
		sameTree(t, tree(t, b.dir(thread1)), tree(t, a.dir(thread1)))
		// A folder that was exchanged under a sandbox is not what the sandbox writes into.
		err := a.Save(t.Context(), thread1, Thread{Dir: a.dir(thread1), UID: a.uid + 100_000, About: func() ([]byte, error) { return nil, nil }})
		if !errors.Is(err, sandbox.Conflict) {
			t.Errorf("another folder: %v", err)
		}
	})
}

// TestLostAnswer: a head that is there although the answer got lost is this server's own.
func TestLostAnswer(t *testing.T) {
	t.Parallel()
	sv := newServer(t, NewFolder(t.TempDir()), nil)
	put(t, sv.make(thread1), "workspace/a", []byte("1"))
	sv.mustKeep(thread1)
	old := *indexes{sv.Snapshots}.readIndex(thread1)
	put(t, sv.dir(thread1), "workspace/a", []byte("two"))
	sv.mustKeep(thread1)
	if err := (indexes{sv.Snapshots}).writeIndex(thread1, &old); err != nil { // as if the server had died before it noted it
		t.Fatal(err)
	}
	put(t, sv.dir(thread1), "workspace/b", []byte("three"))
	sv.mustKeep(thread1)
	b := newServer(t, sv.store.Objects, nil)
	b.mustRestore(thread1, false)
	sameTree(t, tree(t, sv.dir(thread1)), tree(t, b.dir(thread1)))
}

// TestOlderDisk: files of before the last snapshot, as from a copy of the disk, do not win over what is kept; those of a
// server that died before it noted its last snapshot do.
func TestOlderDisk(t *testing.T) {
	t.Parallel()
	sv := newServer(t, NewFolder(t.TempDir()), nil)
	put(t, sv.make(thread1), "workspace/a", []byte("1"))
	sv.mustKeep(thread1)
	copied := t.TempDir()
	if err := os.CopyFS(copied, os.DirFS((indexes{sv.Snapshots}).state(thread1))); err != nil {
		t.Fatal(err)
	}
	old := *indexes{sv.Snapshots}.readIndex(thread1)
	put(t, sv.dir(thread1), "workspace/a", []byte("two"))
	sv.mustKeep(thread1)
	want := tree(t, sv.dir(thread1))
	if err := (indexes{sv.Snapshots}).writeIndex(thread1, &old); err != nil {
		t.Fatal(err)
	}
	put(t, sv.dir(thread1), "workspace/not kept yet", nil)
	if about, err := sv.restoreIt(thread1, true); err != nil || about != "-" {
		t.Errorf("after a crash the disk was replaced: %v", err)
	}
	if err := errors.Join((indexes{sv.Snapshots}).dropIndex(thread1), os.CopyFS((indexes{sv.Snapshots}).state(thread1), os.DirFS(copied))); err != nil {
		t.Fatal(err)
	}
	put(t, sv.dir(thread1), "workspace/a", []byte("1"))
	for range 2 { // with what the copy knows, and without
		if err := sv.saveIt(thread1); !errors.Is(err, sandbox.Conflict) {
			t.Errorf("old files were kept: %v", err)
		}
		if err := (indexes{sv.Snapshots}).dropIndex(thread1); err != nil {
			t.Fatal(err)
		}
	}
	sv.mustRestore(thread1, true)
	sameTree(t, want, tree(t, sv.dir(thread1)))
}

// TestRestoreRefused: when what is kept is not put in the place of what is here, nothing of what is known changes: not when
// it is a newer snapshot, and not when the thread was deleted.
func TestRestoreRefused(t *testing.T) {
	t.Parallel()
	o := NewFolder(t.TempDir())
	a, b := newServer(t, o, nil), newServer(t, o, nil)
	put(t, a.make(thread1), "workspace/a", []byte("1"))
	a.mustKeep(thread1)
	no := errors.New("no")
	refused := func() {
		t.Helper()
		looks{a.Snapshots}.forgetLook(thread1)
		before := indexes{a.Snapshots}.readIndex(thread1).Head.ID
		for _, fill := range []bool{false, true} {
			err := a.Restore(t.Context(), thread1, a.dir(thread1), true, func(r Restored) error {
				if fill && r.Fill != nil {
					if err := r.Fill(t.Context(), t.TempDir(), a.uid); err != nil {
						t.Error(err)
					}
				}
				return no
			})
			if !errors.Is(err, no) || (indexes{a.Snapshots}).readIndex(thread1) == nil || (indexes{a.Snapshots}).readIndex(thread1).Head.ID != before {
				t.Errorf("%v, %v", err, indexes{a.Snapshots}.readIndex(thread1))
			}
		}
		if err := a.saveIt(thread1); err != nil && !errors.Is(err, sandbox.Conflict) {
			t.Error(err)
		}
	}
	b.mustRestore(thread1, true)
	put(t, b.dir(thread1), "workspace/b", []byte("2"))
	b.mustKeep(thread1)
	refused()
	if err := b.Forget(t.Context(), thread1, func() error { return os.RemoveAll(b.dir(thread1)) }); err != nil {
		t.Fatal(err)
	}
	refused()
	a.mustRestore(thread1, true)
	if have, _ := onDisk(a.dir(thread1)); have {
		t.Error("a deleted thread is still there")
	}
}

// TestForget: nothing of a deleted thread is left but a mark. It does not come back on a disk that has it,
// and its name can be used again.
func TestForget(t *testing.T) {
	t.Parallel()
	stores(t, func(t *testing.T, o Objects) {
		a, b := newServer(t, o, nil), newServer(t, o, nil)
		put(t, a.make(thread1), "workspace/a", []byte("1"))
		a.mustKeep(thread1)
		b.mustRestore(thread1, true)
		if err := b.Forget(t.Context(), thread1, func() error { return os.RemoveAll(b.dir(thread1)) }); err != nil {
			t.Fatal(err)
		}
		var left []string
		if err := o.List(t.Context(), place(thread1), func(x Object) error { left = append(left, x.Key); return nil }); err != nil || len(left) != 1 || left[0] != "head" {
			t.Errorf("%q, %v", left, err)
		}
		if _, err := b.restoreIt(thread1, true); err != nil {
			t.Error(err)
		}
		if have, _ := onDisk(b.dir(thread1)); have {
			t.Error("it came back")
		}
		looks{a.Snapshots}.forgetLook(thread1)
		a.mustRestore(thread1, false)
		if have, _ := onDisk(a.dir(thread1)); have {
			t.Error("another server still has it")
		}
		put(t, a.make(thread1), "workspace/new", []byte("2"))
		a.mustKeep(thread1)
		b.mustRestore(thread1, false)
		sameTree(t, tree(t, a.dir(thread1)), tree(t, b.dir(thread1)))
	})
}

// TestBroken: whatever is wrong with an object is one error that names it, and no half of a thread.
func TestBroken(t *testing.T) {
	t.Parallel()
	o := NewFolder(t.TempDir())
	a := newServer(t, o, nil)
	hostile(t, a.make(thread1))
	a.mustKeep(thread1)
	var names []string
	if err := o.List(t.Context(), place(thread1), func(x Object) error { names = append(names, x.Key); return nil }); err != nil || len(names) < 3 {
		t.Fatal(names, err)
	}
	for _, name := range names {
		path := filepath.Join(o.dir, place(thread1), filepath.FromSlash(name))
		good, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		flipped := bytes.Clone(good)
		flipped[len(flipped)/2] ^= 1
		for what, bad := range map[string][]byte{"flipped": flipped, "short": good[:len(good)/2], "empty": {}, "gone": nil} {
			if name == "head" && (what == "gone" || what == "flipped") {
				continue // there is nothing to restore; or it is in base64 of About
			}
			if err := os.WriteFile(path, bad, 0o600); err != nil {
				t.Fatal(err)
			}
			if what == "gone" {
				os.Remove(path)
			}
			b := newServer(t, o, nil)
			_, err := b.restoreIt(thread1, true)
			if !errors.Is(err, sandbox.Unavailable) || !strings.Contains(err.Error(), filepath.Base(name)) {
				t.Errorf("%s %s: %v", name, what, err)
			}
			if have, _ := onDisk(b.dir(thread1)); have {
				t.Errorf("%s %s: it was restored", name, what)
			}
		}
		if err := os.WriteFile(path, good, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b := newServer(t, o, nil)
	b.mustRestore(thread1, true)
}

// TestStoreFails: a snapshot that could not be written changes nothing of what is kept, and the next one has all.
func TestStoreFails(t *testing.T) {
	t.Parallel()
	sv := newServer(t, NewFolder(t.TempDir()), nil)
	put(t, sv.make(thread1), "workspace/a", []byte("1"))
	sv.mustKeep(thread1)
	want := tree(t, sv.dir(thread1))
	put(t, sv.dir(thread1), "workspace/a", random(partBytes*6, 1))
	gone := error(sandbox.Errorf(sandbox.Unavailable, "the store is away"))
	sv.store.fail.Store(&gone)
	if err := sv.saveIt(thread1); !errors.Is(err, sandbox.Unavailable) {
		t.Fatal(err)
	}
	b := newServer(t, sv.store.Objects, nil)
	b.mustRestore(thread1, false)
	sameTree(t, want, tree(t, b.dir(thread1)))
	sv.store.fail.Store(nil)
	sv.mustKeep(thread1)
	c := newServer(t, sv.store.Objects, nil)
	c.mustRestore(thread1, false)
	sameTree(t, tree(t, sv.dir(thread1)), tree(t, c.dir(thread1)))
}

// TestWhileItChanges: files that come, go and change under a snapshot break nothing, and the one after has what is there.
func TestWhileItChanges(t *testing.T) {
	t.Parallel()
	sv := newServer(t, NewFolder(t.TempDir()), nil)
	dir := sv.make(thread1)
	w := filepath.Join(dir, "workspace")
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			p := filepath.Join(w, fmt.Sprint(i%20))
			switch i % 7 {
			case 0:
				os.RemoveAll(p)
			case 1:
				os.Mkdir(p, 0o755)
			case 2:
				os.RemoveAll(p)
				os.Symlink("/etc", p)
			case 3:
				os.RemoveAll(p)
				unix.Mkfifo(p, 0o600)
			case 4:
				os.Link(filepath.Join(w, fmt.Sprint((i+3)%20)), p)
			default:
				os.WriteFile(p, random(i%5000, uint64(i)), 0o600)
			}
		}
	}()
	for range 30 {
		sv.mustKeep(thread1)
		b := newServer(t, sv.store.Objects, nil)
		b.mustRestore(thread1, false)
	}
	close(stop)
	<-done
	sv.mustKeep(thread1)
	b := newServer(t, sv.store.Objects, nil)
	b.mustRestore(thread1, false)
	sameTree(t, tree(t, dir), tree(t, b.dir(thread1)))
}

// TestRewriteWithinATick: a file that is written again so shortly after it was kept that size and times are the same is
// kept again.
func TestRewriteWithinATick(t *testing.T) {
	t.Parallel()
	sv := newServer(t, NewFolder(t.TempDir()), nil)
	dir := sv.make(thread1)
	for i := range 20 {
		put(t, dir, "workspace/a", []byte(fmt.Sprintf("%06d", i)))
		sv.mustKeep(thread1)
		last := indexes{sv.Snapshots}.readIndex(thread1).Entries
		if got := last[1].Entry.Chunks[0].Sum; got != sumOf([]byte(fmt.Sprintf("%06d", i))) {
			t.Fatalf("round %d is not kept", i)
		}
	}
}

// TestTooMuch: a tree beyond the limits is one clear error.
func TestTooMuch(t *testing.T) {
	t.Parallel()
	sv := newServer(t, NewFolder(t.TempDir()), nil)
	dir := sv.make(thread1)
	deep := filepath.Join(dir, "workspace", strings.Repeat("d/", maxDepth))
	if err := os.MkdirAll(deep, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := sv.saveIt(thread1); !errors.Is(err, sandbox.QuotaExceeded) {
		t.Error(err)
	}
	if err := os.RemoveAll(filepath.Join(dir, "workspace", "d")); err != nil {
		t.Fatal(err)
	}
	holes, err := os.Create(filepath.Join(dir, "workspace", "holes"))
	if err != nil {
		t.Fatal(err)
	}
	defer holes.Close()
	for i := range int64(200) {
		if _, err := holes.WriteAt([]byte("x"), i*partBytes); err != nil {
			t.Fatal(err)
		}
	}
	if err := sv.saveIt(thread1); !errors.Is(err, sandbox.QuotaExceeded) || !strings.Contains(err.Error(), "workspace/holes") {
		t.Error(err)
	}
}

// TestFailedSaveLeavesNothing: code makes snapshots fail after most of them was sent, and changes its files each time. The store does not
// grow by that.
func TestFailedSaveLeavesNothing(t *testing.T) {
	t.Parallel()
	stores(t, func(t *testing.T, o Objects) {
		sv := newServer(t, o, nil)
		dir := sv.make(thread1)
		put(t, dir, "workspace/kept", random(1000, 1))
		sv.mustKeep(thread1)
		holes, err := os.Create(filepath.Join(dir, "workspace", "z"))
		if err != nil {
			t.Fatal(err)
		}
		defer holes.Close()
		for i := range int64(200) {
			if _, err := holes.WriteAt([]byte("x"), i*partBytes); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 3 {
			put(t, dir, "workspace/a", random(3*packBytes, uint64(i)+2))
			writes := sv.store.writes.Load()
			if err := sv.saveIt(thread1); !errors.Is(err, sandbox.QuotaExceeded) || sv.store.writes.Load() == writes {
				t.Fatalf("%v after %d objects", err, sv.store.writes.Load()-writes)
			}
			packs := 0
			if err := o.List(t.Context(), place(thread1)+"/packs", func(Object) error { packs++; return nil }); err != nil || packs != 1 {
				t.Errorf("%d packs are there after %d failures, %v", packs, i+1, err)
			}
		}
		if err := os.Remove(holes.Name()); err != nil {
			t.Fatal(err)
		}
		sv.mustKeep(thread1)
		b := newServer(t, o, nil)
		b.mustRestore(thread1, false)
		sameTree(t, tree(t, dir), tree(t, b.dir(thread1)))
	})
}

// TestMany: a thread with many files waits for its turn, and passes it on.
func TestMany(t *testing.T) {
	t.Parallel()
	sv := newServer(t, NewFolder(t.TempDir()), nil)
	dir := filepath.Join(sv.make(thread1), "workspace")
	for n := range manyEntries {
		if err := os.Symlink("x", filepath.Join(dir, fmt.Sprint(n))); err != nil {
			t.Fatal(err)
		}
	}
	sv.large = make(chan struct{}, 1)
	sv.large <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	root, err := os.OpenRoot(sv.dir(thread1))
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	turn := sv.largeThread(ctx)
	if _, err := scan(t.Context(), root, maxScanBytes, turn.wait); !errors.Is(err, sandbox.Timeout) || turn.has {
		t.Errorf("it is not its turn: %v", err)
	}
	<-sv.large
	sv.mustKeep(thread1)
	if len(sv.large) != 0 {
		t.Error("the turn was not given back")
	}
}

// TestLate: what is still to be kept is known to the next process, until it was kept.
func TestLate(t *testing.T) {
	t.Parallel()
	sv := newServer(t, NewFolder(t.TempDir()), nil)
	put(t, sv.make(thread1), "workspace/a", nil)
	if err := sv.MarkPending(thread1); err != nil {
		t.Fatal(err)
	}
	if all, err := sv.Pending(); err != nil || len(all) != 1 || all[0] != thread1 {
		t.Fatal(all, err)
	}
	sv.mustKeep(thread1)
	if all, err := sv.Pending(); err != nil || len(all) != 0 {
		t.Fatal(all, err)
	}
}

// TestNoConditions: a store that does not hold to conditions is refused at the start.
func TestNoConditions(t *testing.T) {
	t.Parallel()
	_, err := Open(t.Context(), Options{Objects: careless{NewFolder(t.TempDir())}, Dir: t.TempDir(), Holder: "h"})
	if !errors.Is(err, sandbox.NotSupported) {
		t.Error(err)
	}
	_, err = Open(t.Context(), Options{Objects: NewFolder("/nowhere/at/all"), Dir: t.TempDir(), Holder: "h"})
	if !errors.Is(err, sandbox.Unavailable) {
		t.Error(err)
	}
}

type careless struct{ Objects }

func (c careless) Replace(ctx context.Context, name string, data []byte, version string) (string, error) {
	v, err := c.Objects.Replace(ctx, name, data, version)
	if errors.Is(err, sandbox.Conflict) {
		return "", nil
	}
	return v, err
}
