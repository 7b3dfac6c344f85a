package paths

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// TestHeldNames: the names that a walk holds are bounded over all folders that it is in, and what needs no
// order holds hardly any.
func TestHeldNames(t *testing.T) {
	if testing.Short() {
		t.Skip("it makes more than 100,000 files")
	}
	f, host := thread(t)
	dir := filepath.Join(host, "workspace")
	const levels, each = 12, 10_000
	for range levels {
		for i := range each {
			name := fmt.Sprintf("%0250d", i)
			if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		dir = filepath.Join(dir, "z") // last
		mkdirs(t, dir)
	}
	ctx := t.Context()
	l, err := f.Glob(ctx, ws, "**/none")
	if err != nil || !l.Truncated {
		t.Errorf("a walk that held %d names of 250 bytes: truncated %v, %v", levels*each, l.Truncated, err)
	}
	u, err := f.Usage(ctx)
	if sandbox.KindOf(err) != sandbox.Timeout && (err != nil || u.Files != levels*each) { // a busy machine may need more than WalkBudget
		t.Errorf("usage %+v, %v", u, err)
	}
}

// TestLongPaths: what is kept of many files with long paths is bounded, too.
func TestLongPaths(t *testing.T) {
	f, host := thread(t)
	dir := filepath.Join(host, "workspace")
	for range 15 { // paths of almost 4 KiB
		dir = filepath.Join(dir, strings.Repeat("d", 240))
	}
	mkdirs(t, dir)
	for i := range MaxEntryBytes/3600 + 1 {
		put(t, filepath.Join(dir, fmt.Sprint(i)), "")
	}
	ctx := t.Context()
	if l, err := f.List(ctx, ws, 20, 0); err != nil || !l.Truncated || len(l.Items) == 0 {
		t.Errorf("a list of %d: truncated %v, %v", len(l.Items), l.Truncated, err)
	}
	if s, err := f.Snapshot(ctx); err != nil || s.OK() {
		t.Errorf("a snapshot: %v, %v", s.OK(), err)
	}
	_, err := NewWatch(ws, true).Look(ctx, f)
	wantKind(t, err, sandbox.QuotaExceeded)
}

// TestSpoolKeepsRoom: what senders send stops before it has filled the server's disk, however many they are.
func TestSpoolKeepsRoom(t *testing.T) {
	for free, kind := range map[int64]sandbox.Kind{reserved: "", reserved - 1: sandbox.CapacityExceeded} {
		err := roomOn("", func(string) (int64, int64, error) { return 1 << 40, free, nil })
		wantKind(t, err, kind)
	}
	wantKind(t, roomOn("", func(string) (int64, int64, error) { return 1000, 51, nil }), "")
	asked := 0
	full := sandbox.Errorf(sandbox.CapacityExceeded, "full")
	r := &boundedReader{ctx: t.Context(), r: zeros{}, room: func() error {
		if asked++; asked == 3 {
			return full
		}
		return nil
	}}
	n, err := io.Copy(io.Discard, r)
	if !errors.Is(err, full) || n < 2*spoolCheck || n > 3*spoolCheck {
		t.Errorf("%d bytes came, %v", n, err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }
