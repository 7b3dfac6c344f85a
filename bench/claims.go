package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/sandbox-templates"
)

const (
	waiting = 20  // sandboxes that wait for a thread, of the default template
	crowd   = 100 // likewise, of the template for the case of many at once
	crowds  = 3   // how often so many come at once
	// fillTime bounds the wait for sandboxes that are to wait.
	fillTime = 5 * time.Minute
)

// claims measures threads that get a sandbox which waits for them. Whether this build keeps any is asked of its
// own check of templates.
func claims(ctx context.Context, b *bench) (err error) {
	dir := filepath.Join(b.dir, "templates")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	base, err := sandboxtemplates.FS.ReadFile("base.yaml")
	if err != nil {
		return err
	}
	pooled := func(text string, n int) []byte {
		return fmt.Appendf(nil, "%s\npool: {target: %d}\n", text, n)
	}
	err = errors.Join(
		os.WriteFile(filepath.Join(dir, "base.yaml"), pooled(string(base), waiting), 0o644),                                                 //nolint:gosec // no secret
		os.WriteFile(filepath.Join(dir, "crowd.yaml"), pooled(strings.Replace(string(base), "name: base", "name: crowd", 1), crowd), 0o644)) //nolint:gosec // no secret
	if err != nil {
		return err
	}
	if said, err := exec.Command(filepath.Join(b.bin, "skerry"), "templates", "lint", dir).CombinedOutput(); err != nil {
		if !strings.Contains(string(said), "pool: there is no such field") {
			return fmt.Errorf("templates lint: %s", said)
		}
		b.leave("claims of sandboxes that wait", "no pool in this build: the server does not know the template key pool")
		return nil
	}
	s, err := b.serve("claims", b.driver, "SKERRY_TEMPLATES="+dir, "SKERRY_MAX_SANDBOXES=400")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	p := &pool{server: s, ctx: ctx}
	if err := p.fill(waiting + crowd); err != nil {
		return err
	}
	if err := b.claimOne(p); err != nil {
		return err
	}
	return b.claimMany(p)
}

// pool is a server with sandboxes that wait.
type pool struct {
	*server
	ctx     context.Context
	n, cold int
}

// fill waits until so many sandboxes run.
func (p *pool) fill(n int) error {
	last := 0
	full, err := await(p.ctx, fillTime, func() (bool, error) {
		s, err := takeStock(p.data, p.cmd.Process.Pid)
		last = s.sandboxes
		return s.sandboxes >= n, err
	})
	if err == nil && !full {
		err = fmt.Errorf("%d of %d sandboxes wait after %v", last, n, fillTime)
	}
	return err
}

// warm reports whether the thread's sandbox came from the pool.
func (p *pool) warm(thread string) (bool, error) {
	raw, err := p.post(http.MethodGet, "/api/threads/"+thread, nil)
	if err != nil {
		return false, err
	}
	var t struct{ Sandbox struct{ Warm bool } }
	return t.Sandbox.Warm, json.Unmarshal(raw, &t)
}

func (b *bench) claimOne(p *pool) error {
	name := ""
	claim := func() error {
		p.n++
		name = fmt.Sprintf("claim-%d", p.n)
		p.uses(name)
		return p.exec(name, "true")
	}
	clear := func() error {
		warm, err := p.warm(name)
		if err == nil && !warm {
			p.cold++
		}
		// The next one waits before it is claimed: neither side pays for its start.
		return errors.Join(err, p.drop(name), p.fill(waiting+crowd))
	}
	times, err := b.alternate("claim of a sandbox that waits", side{name: "claim", do: claim}, side{name: "clear", do: clear}, side{name: "docker run", do: dockerRun, every: startsEvery})
	if err != nil {
		return err
	}
	note := ""
	if p.cold > 0 {
		note = fmt.Sprintf("%d of them were cold starts", p.cold)
	}
	other := sampled("docker run --rm true", times[2])
	b.row("ms", sampled("claim of a sandbox that waits", times[0]), &other, faster, bar{atLeast: 25}, note)
	return nil
}

// claimMany has a hundred threads come at once.
func (b *bench) claimMany(p *pool) error {
	defer b.progress(fmt.Sprintf("%d claims at once", crowd))()
	var all, each []float64
	cold := 0
	for k := range crowds {
		if err := p.fill(waiting + crowd); err != nil {
			return err
		}
		names := make([]string, crowd)
		for i := range names {
			names[i] = fmt.Sprintf("crowd-%d-%d", k, i)
			p.uses(names[i])
		}
		times, errs := make([]float64, crowd), make([]error, crowd)
		began := time.Now()
		var wg sync.WaitGroup
		for i, name := range names {
			wg.Go(func() {
				start := time.Now()
				_, errs[i] = p.post(http.MethodPut, "/api/threads/"+name+"/sandbox", map[string]any{"template": "crowd", "wait_s": 60})
				times[i] = since(start)
			})
		}
		wg.Wait()
		all, each = append(all, since(began)), append(each, times...)
		if err := errors.Join(errs...); err != nil {
			return err
		}
		for _, name := range names {
			warm, err := p.warm(name)
			if err != nil {
				return err
			}
			if !warm {
				cold++
			}
		}
		for _, name := range names {
			if err := p.drop(name); err != nil {
				return err
			}
		}
	}
	note := ""
	if cold > 0 {
		note = fmt.Sprintf("%d of %d were cold starts", cold, crowds*crowd)
	}
	b.row("ms", sampled(fmt.Sprintf("%d claims at once, all done", crowd), all), nil, slowest, bar{atMost: 1000}, note)
	b.row("ms", sampled(fmt.Sprintf("%d claims at once, each", crowd), each), nil, spread, bar{atMost: 10}, note)
	return nil
}
