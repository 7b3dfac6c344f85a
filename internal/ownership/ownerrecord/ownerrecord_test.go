package ownerrecord

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

var main = sandbox.Thread{Owner: sandbox.Owner{Tenant: "t", User: "u"}, ID: "main"}

func openBook(t *testing.T) *Book {
	t.Helper()
	b, err := Open(filepath.Join(t.TempDir(), "claims"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestPage: what is written is read, and an erased page leaves no file.
func TestPage(t *testing.T) {
	b := openBook(t)
	if _, ok, err := b.Read(main); ok || err != nil {
		t.Fatalf("an empty book: %v, %v", ok, err)
	}
	p, err := b.Lock(t.Context(), main)
	if err != nil {
		t.Fatal(err)
	}
	want := Of(main, "r1", 7, "skerry-1")
	if err := p.Write(want); err != nil {
		t.Fatal(err)
	}
	p.Close()
	p.Close()
	if got, ok, err := b.Read(main); got != want || !ok || err != nil {
		t.Errorf("%+v, %v, %v", got, ok, err)
	}
	if all, err := b.All(); err != nil || len(all) != 1 || all[0] != want || all[0].Thread() != main {
		t.Errorf("%+v, %v", all, err)
	}
	if p, err = b.Lock(t.Context(), main); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(p.Erase(), p.Erase()); err != nil {
		t.Error(err)
	}
	p.Close()
	if left, err := os.ReadDir(b.dir); err != nil || len(left) != 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
}

// TestLockBounded: who waits for a page does so until its context ends.
func TestLockBounded(t *testing.T) {
	b := openBook(t)
	p, err := b.Lock(t.Context(), main)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if _, err := b.Lock(ctx, main); !errors.Is(err, sandbox.Unavailable) {
		t.Errorf("a locked page: %v", err)
	}
	other, err := b.Lock(t.Context(), sandbox.Thread{Owner: main.Owner, ID: "other"})
	if err != nil {
		t.Fatal(err)
	}
	other.Close()
}

// TestOneAtATime: also while the page comes and goes, and its lock file with it.
func TestOneAtATime(t *testing.T) {
	b := openBook(t)
	var inside atomic.Int32
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := range 30 {
				p, err := b.Lock(t.Context(), main)
				if err != nil {
					t.Error(err)
					return
				}
				if inside.Add(1) != 1 {
					t.Error("two have the page")
				}
				if (i+n)%2 == 0 {
					err = p.Write(Of(main, "r", int64(n), ""))
				} else {
					err = p.Erase()
				}
				if err != nil {
					t.Error(err)
				}
				inside.Add(-1)
				p.Close()
			}
		})
	}
	wg.Wait()
}

func TestTornPage(t *testing.T) {
	b := openBook(t)
	if err := os.WriteFile(b.path(main, pageSuffix), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.Read(main); err == nil {
		t.Error("a torn page is read")
	}
	if _, err := b.All(); err == nil {
		t.Error("a torn page is left out")
	}
}
