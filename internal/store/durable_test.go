package store

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store/journal"
	"github.com/skerry-sandbox/skerry/internal/store/redistest"
)

func TestJournalSurvivesRestart(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	o := Options{Journal: filepath.Join(t.TempDir(), "state.jsonl")}
	s, err := Open(ctx, o)
	must(t, err)
	gone := sandbox.Thread{Owner: ann, ID: "gone"}
	for _, th := range []sandbox.Thread{main, gone} {
		must(t, s.PutThread(ctx, sandbox.ThreadInfo{Thread: th, Labels: map[string]string{"a": "1"}, CreatedAt: t0}))
	}
	must(t, s.PutThread(ctx, sandbox.ThreadInfo{Thread: main, Labels: map[string]string{"a": "2"}, CreatedAt: t0}))
	must(t, s.DeleteThread(ctx, gone))
	must(t, s.PutKey(ctx, KeyRecord{ID: "k1", Tenant: "acme", User: "ann", Hash: "aa"}))
	must(t, s.PutKey(ctx, KeyRecord{ID: "k2", Tenant: "acme", User: "ann", Hash: "bb"}))
	must(t, s.DeleteKey(ctx, "acme", "k2"))
	for range 3 {
		_, err = s.NextUID(ctx, 1_000_000)
		must(t, err)
	}
	_, err = s.AcquireLease(ctx, main, "r1", time.Hour)
	must(t, err)
	_, err = Open(ctx, o)
	wantKind(t, err, sandbox.Conflict)
	must(t, s.Close())
	_, err = s.Thread(ctx, main)
	wantKind(t, err, sandbox.Unavailable)

	for range 2 { // the second time from a compacted file
		s = open(t, o)
		got, err := s.Thread(ctx, main)
		must(t, err)
		if got.Labels["a"] != "2" || !got.CreatedAt.Equal(t0) {
			t.Errorf("got %+v", got)
		}
		items, _, err := s.ThreadPage(ctx, ThreadQuery{Owner: ann}, "", 100)
		must(t, err)
		if len(items) != 1 || items[0].ID != "main" {
			t.Errorf("threads %+v", items)
		}
		if _, err := s.KeyByHash(ctx, "aa"); err != nil {
			t.Error(err)
		}
		_, err = s.KeyByHash(ctx, "bb")
		wantKind(t, err, sandbox.NotFound)
		_, err = s.AcquireLease(ctx, main, "r2", time.Hour)
		must(t, err)
		must(t, s.Close())
	}
	s = open(t, o)
	if uid, err := s.NextUID(ctx, 1_000_000); err != nil || uid != 1_000_003 {
		t.Errorf("uid %d, %v", uid, err)
	}
	if info, err := os.Stat(o.Journal); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("journal %v, %v: it holds hashes of keys", info.Mode(), err)
	}
}

func TestJournalDamage(t *testing.T) {
	t.Parallel()
	good := `{"k":"skerry:{:uid}","f":"last","v":1000007}` + "\n"
	for name, c := range map[string]struct {
		text string
		uid  int
		kind sandbox.Kind
	}{
		"torn":    {good + `{"k":"skerry:{:uid}","f":"la`, 1_000_008, ""},
		"zeros":   {good + strings.Repeat("\x00", 9000), 1_000_008, ""},
		"zeros\n": {good + strings.Repeat("\x00", 100) + "\n\x00", 1_000_008, ""},
		"empty":   {"", 1_000_000, ""},
		"middle":  {"{\n" + good, 0, sandbox.Unavailable},
		"garbage": {good + "hello\n", 0, sandbox.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			o := Options{Journal: filepath.Join(t.TempDir(), "j")}
			must(t, os.WriteFile(o.Journal, []byte(c.text), 0o600))
			s, err := Open(t.Context(), o)
			if c.kind != "" {
				wantKind(t, err, c.kind)
				if !strings.Contains(err.Error(), "damaged") {
					t.Error(err)
				}
				return
			}
			must(t, err)
			defer s.Close()
			if uid, err := s.NextUID(t.Context(), 1_000_000); err != nil || uid != c.uid {
				t.Errorf("uid %d, %v; want %d", uid, err, c.uid)
			}
		})
	}
}

func TestJournalCompactsWhileOpen(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	o := Options{Journal: filepath.Join(t.TempDir(), "j")}
	s := open(t, o)
	labels := map[string]string{"big": strings.Repeat("x", 200<<10)}
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			th := sandbox.Thread{Owner: ann, ID: fmt.Sprint("t", i)}
			for range 60 {
				if err := s.PutThread(ctx, sandbox.ThreadInfo{Thread: th, Labels: labels}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	info, err := os.Stat(o.Journal)
	must(t, err)
	if info.Size() > journal.CompactAt+1<<20 {
		t.Errorf("the journal has %d bytes; 48 MB were written to it, 800 KB live", info.Size())
	}
	must(t, s.Close())
	s = open(t, o)
	if items, _, err := s.ThreadPage(ctx, ThreadQuery{Owner: ann}, "", 100); err != nil || len(items) != 4 {
		t.Errorf("%d threads, %v", len(items), err)
	}
}

// TestJournalSurvivesKill kills a process that writes, and looks for all that it was told is done.
func TestJournalSurvivesKill(t *testing.T) {
	t.Parallel()
	if path := os.Getenv("SKERRY_TEST_JOURNAL"); path != "" {
		writeUntilKilled(path)
	}
	path := filepath.Join(t.TempDir(), "j")
	last := 0
	for range 5 {
		ctx, cancel := context.WithCancel(t.Context())
		cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestJournalSurvivesKill$")
		cmd.Env = append(os.Environ(), "SKERRY_TEST_JOURNAL="+path)
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		time.AfterFunc(300*time.Millisecond, cancel) // SIGKILL
		uid := 0
		for {
			if _, err := fmt.Fscanln(out, &uid); err != nil {
				break
			}
			if uid <= last {
				t.Errorf("uid %d was given after %d", uid, last)
			}
			last = uid
		}
		_ = cmd.Wait()
	}
	if last == 0 {
		t.Fatal("the child wrote nothing")
	}
	s := open(t, Options{Journal: path})
	if _, err := s.Thread(t.Context(), sandbox.Thread{Owner: ann, ID: fmt.Sprint("t", last)}); err != nil {
		t.Error(err)
	}
	if uid, err := s.NextUID(t.Context(), 1); err != nil || uid <= last {
		t.Errorf("uid %d after %d, %v", uid, last, err)
	}
}

func writeUntilKilled(path string) {
	ctx := context.Background()
	s, err := Open(ctx, Options{Journal: path})
	for err == nil {
		var uid int
		if uid, err = s.NextUID(ctx, 1_000_000); err == nil {
			err = s.PutThread(ctx, sandbox.ThreadInfo{Thread: sandbox.Thread{Owner: ann, ID: fmt.Sprint("t", uid)}})
		}
		if err == nil {
			fmt.Println(uid)
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func TestRedisAway(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	r := redistest.Start(t)
	s := open(t, Options{URL: r.URL()})
	must(t, s.PutThread(ctx, sandbox.ThreadInfo{Thread: main}))
	r.Kill()
	for name, call := range map[string]func() error{
		"Ping":         func() error { return s.Ping(ctx) },
		"PutThread":    func() error { return s.PutThread(ctx, sandbox.ThreadInfo{Thread: main}) },
		"Thread":       func() error { _, err := s.Thread(ctx, main); return err },
		"AcquireLease": func() error { _, err := s.AcquireLease(ctx, main, "r", time.Second); return err },
		"KeyByHash":    func() error { _, err := s.KeyByHash(ctx, "aa"); return err },
	} {
		begin := time.Now()
		err := call()
		wantKind(t, err, sandbox.Unavailable)
		if took := time.Since(begin); took > 3*callTimeout {
			t.Errorf("%s took %v to fail", name, took)
		}
	}
	r.Restart()
	if _, err := s.Thread(ctx, main); err != nil {
		t.Errorf("after the restart: %v", err)
	}
}

func TestOpenURL(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"http://x", "redis://:s3cret@host:notaport", "redis://:s3cret@h:1/x", "redis://:s3cret@h?nope=1", "::"} {
		_, err := Open(t.Context(), Options{URL: bad})
		wantKind(t, err, sandbox.Invalid)
		if err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("the password is in %q", err)
		}
	}
	for _, good := range []string{"redis://u:p@h:1/2", "rediss://h", "unix:///x/y.sock", "redis://h:1?addr=g:2"} {
		s, err := Open(t.Context(), Options{URL: good})
		if err != nil {
			t.Errorf("%s: %v", good, err)
			continue
		}
		must(t, s.Close())
	}
}

// TestEmbeddedAnswersAreBounded: what is dropped is not run again.
func TestEmbeddedAnswersAreBounded(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := open(t, Options{})
	big := make([]byte, MaxAnswer)
	of := func(i int) sandbox.Owner { // each has less than its own bound
		return sandbox.Owner{Tenant: "acme", User: fmt.Sprint("u", i%3)}
	}
	for i := range maxAnswers>>20 + 2 {
		key := fmt.Sprint("k", i)
		if first, _, err := s.Begin(ctx, of(i), key, "f", 0); err != nil || !first {
			t.Fatal(first, err)
		}
		must(t, s.Finish(ctx, of(i), key, big))
	}
	_, _, err := s.Begin(ctx, of(1), "k1", "f", 0)
	wantKind(t, err, sandbox.Conflict)
	if first, answer, err := s.Begin(ctx, of(2), "k2", "f", 0); err != nil || first || len(answer) != MaxAnswer {
		t.Errorf("first %v, %d bytes, %v", first, len(answer), err)
	}
}

// TestFullDisk: a journal that found no room goes on when there is some.
func TestFullDisk(t *testing.T) {
	if os.Getenv("SKERRY_TEST_FULL_DISK") == "" {
		// In a process of its own: the limit below would fail the writes of the test tool too.
		cmd := exec.Command(os.Args[0], "-test.run=^TestFullDisk$")
		cmd.Env = append(os.Environ(), "SKERRY_TEST_FULL_DISK=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	ctx := t.Context()
	o := Options{Journal: filepath.Join(t.TempDir(), "j")}
	s := open(t, o)
	info := sandbox.ThreadInfo{Thread: main, Labels: map[string]string{"x": strings.Repeat("x", 3000)}}
	must(t, s.PutThread(ctx, info))
	lift := limitFileSize(t, 8<<10)
	var err error
	for i := 0; err == nil && i < 10; i++ {
		err = s.PutThread(ctx, info)
	}
	wantKind(t, err, sandbox.Unavailable)
	wantKind(t, s.PutThread(ctx, info), sandbox.Unavailable)
	lift()
	uid, err := s.NextUID(ctx, 7)
	must(t, err)
	must(t, s.Close())
	s = open(t, o)
	if next, err := s.NextUID(ctx, 7); err != nil || next != uid+1 {
		t.Errorf("uid %d after %d, %v", next, uid, err)
	}
}

// limitFileSize makes writes beyond a size fail, until lift is called.
func limitFileSize(t *testing.T, size uint64) (lift func()) {
	t.Helper()
	var was syscall.Rlimit
	must(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was))
	signal.Ignore(syscall.SIGXFSZ)
	must(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: size, Max: was.Max}))
	lift = sync.OnceFunc(func() { _ = syscall.Setrlimit(syscall.RLIMIT_FSIZE, &was) })
	t.Cleanup(lift)
	return lift
}

func BenchmarkEmbedded(b *testing.B) {
	s, err := Open(b.Context(), Options{Journal: filepath.Join(b.TempDir(), "j")})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	ctx := b.Context()
	b.Run("PutThread", func(b *testing.B) {
		for b.Loop() {
			if err := s.PutThread(ctx, sandbox.ThreadInfo{Thread: main}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Thread", func(b *testing.B) {
		for b.Loop() {
			if _, err := s.Thread(ctx, main); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("AcquireLease", func(b *testing.B) {
		for b.Loop() {
			if _, err := s.AcquireLease(ctx, main, "r", time.Minute); err != nil {
				b.Fatal(err)
			}
		}
	})
}
