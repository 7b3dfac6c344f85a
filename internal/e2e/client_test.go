package e2e

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	skerry "github.com/skerry-sandbox/skerry/sdk/go"
)

// TestClientOutlivesRestart: while a server drains, is away and comes back, every command of a client ends well, and none runs twice.
func TestClientOutlivesRestart(t *testing.T) {
	t.Parallel()
	s := start(t, options{})
	// The same address again after the restart.
	s.args[slices.Index(s.args, "--listen")+1] = strings.TrimPrefix(s.url, "http://")
	client := skerry.New(s.url, skerry.Options{Patience: 2 * time.Minute})
	// Several, because all commands that wait run at once when the server is back, and a sandbox bounds its processes.
	threads := make([]*skerry.Thread, 4)
	for i := range threads {
		threads[i] = client.Thread(fmt.Sprintf("restart-%d", i))
		if _, err := threads[i].Exec(t.Context(), skerry.Command{Command: "true"}); err != nil {
			t.Fatal(err)
		}
	}
	long := make(chan error, 1)
	go func() { // it holds up the drain, so that others meet it
		res, err := threads[0].Exec(t.Context(), skerry.Command{Command: "sleep 3; echo through"})
		if err == nil && res.Stdout != "through\n" {
			err = fmt.Errorf("%+v", res)
		}
		long <- err
	}()
	var wg sync.WaitGroup
	begin := func(i int) {
		wg.Go(func() {
			if res, err := threads[i%len(threads)].Exec(t.Context(), skerry.Command{Command: fmt.Sprintf("echo %d >>log", i)}); err != nil || !res.OK() {
				t.Errorf("%d: %+v, %v", i, res, err)
			}
		})
	}
	const before, all = 10, 40
	for i := range before {
		begin(i)
	}
	stopped := make(chan struct{})
	go func() { defer close(stopped); s.stop() }()
	for i := before; i < all; i++ {
		begin(i)
		time.Sleep(100 * time.Millisecond) // some meet the drain, some a closed port
	}
	<-stopped
	s.boot()
	wg.Wait()
	if err := <-long; err != nil {
		t.Error("the one that ran when the server began to stop:", err)
	}
	var lines []string
	for _, thread := range threads {
		file, err := thread.ReadFile(t.Context(), "/mnt/user-data/workspace/log", 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, strings.Fields(file.Content)...)
	}
	if slices.Sort(lines); len(lines) != all || len(slices.Compact(lines)) != all {
		t.Errorf("%d commands left %d lines: %v", all, len(lines), lines)
	}
}
