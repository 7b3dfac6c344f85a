package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

const (
	loadThreads = 50
	loadTime    = 60 * time.Second
)

// load has many threads work at once, each with a sandbox of its own, and counts what fails.
func load(_ context.Context, b *bench) (err error) {
	done := b.progress(fmt.Sprintf("%d threads for %v", loadThreads, loadTime))
	defer done()
	work := []struct {
		name string
		do   func(thread string) error
	}{
		{"exec true", func(t string) error { return b.exec(t, "true") }},
		{"Python print", func(t string) error { _, err := b.codeIn(t, "python", "print(1)"); return err }},
		{"write a file of 1 KB", func(t string) error {
			_, err := b.post(http.MethodPut, "/api/threads/"+t+"/files", map[string]any{"path": workspace + "a.txt", "content": strings.Repeat("0123456789abcde\n", 64)})
			return err
		}},
		{"read it", func(t string) error {
			_, err := b.post(http.MethodGet, "/api/threads/"+t+"/files?path="+workspace+"a.txt", nil)
			return err
		}},
	}
	names := make(chan string, loadThreads)
	var wg sync.WaitGroup
	errs := make(chan error, loadThreads)
	for i := range loadThreads {
		names <- fmt.Sprintf("load-%d", i)
	}
	close(names)
	for range 4 { // the sandboxes are there before the clock starts
		wg.Go(func() {
			for name := range names {
				b.uses(name)
				for _, w := range work {
					if err := w.do(name); err != nil {
						errs <- err
						return
					}
				}
			}
		})
	}
	wg.Wait()
	select {
	case err := <-errs:
		return err
	default:
	}
	var mu sync.Mutex
	times, failed := make([][]float64, len(work)), make([]int, len(work))
	end := time.Now().Add(loadTime)
	for i := range loadThreads {
		wg.Go(func() {
			name := fmt.Sprintf("load-%d", i)
			for n := i; time.Now().Before(end); n++ {
				k := n % len(work)
				began := time.Now()
				err := work[k].do(name)
				took := since(began)
				mu.Lock()
				if err != nil {
					failed[k]++
				} else {
					times[k] = append(times[k], took)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	total := 0
	for k, w := range work {
		total += len(times[k])
		b.row("ms", sampled(fmt.Sprintf("%s, %d threads at once", w.name, loadThreads), times[k]), nil, spread, bar{}, fmt.Sprintf("%d errors", failed[k]))
	}
	rate := float64(total) / loadTime.Seconds()
	b.row("a second", sample{Name: "all of these", N: total, P50: rate, P99: rate}, nil, middle, bar{}, "")
	for i := range loadThreads {
		if err := b.drop(fmt.Sprintf("load-%d", i)); err != nil {
			return err
		}
	}
	return nil
}
