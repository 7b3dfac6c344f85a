package sidecar

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/sidecar/tree"
	"github.com/skerry-sandbox/skerry/internal/sidecar/wire"
)

// TestLongNamesAreBounded: the paths and links that a sidecar names are kept in memory. 200,000 of them may have 8 kB each.
func TestLongNamesAreBounded(t *testing.T) {
	ours, theirs := net.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	from := wire.NewStream(ctx, theirs)
	sent := make(chan int, 1)
	go func() {
		n := 0
		folder := strings.Repeat("/"+strings.Repeat("d", 250), 15)[1:]
		target := strings.Repeat("t", 4000)
		_ = wire.SendEntries(from, true, func() *wire.Entry { // until the other side hangs up
			if n++; n > 100_000 {
				return nil
			}
			path := fmt.Sprintf("%s/%06d", folder, n)
			return wire.FromTree(0, path, &tree.Entry{Path: path, Kind: tree.Link, Target: target})
		})
		sent <- n
	}()
	tr, err := tree.Open(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	p := &pull{s: wire.NewStream(ctx, ours), sides: []*side{{m: sandbox.Mount{Target: "/mnt/user-data"}, t: tr}}}
	defer p.close(ctx)
	if err := p.receiveChanges(); !errors.Is(err, tree.ErrTooMuch) {
		t.Errorf("%v", err)
	}
	p.s.Close()
	from.Close()
	if n := <-sent; n > 3*tree.MaxNames/8000 {
		t.Errorf("%d entries were taken", n)
	}
}
