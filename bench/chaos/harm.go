package main

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// harm kills one thing after another.
type harm struct {
	*fleet
	rand *rand.Rand

	mu     sync.Mutex
	counts map[string]int
	fails  []string
}

func newHarm(f *fleet, s settings) *harm {
	return &harm{fleet: f, rand: rand.New(rand.NewPCG(s.seed, 1)), counts: map[string]int{}} //nolint:gosec // repeatable on purpose
}

// ways are what can happen, each as often as it stands here.
var ways = []string{
	"server killed", "server killed", "server killed", "server ended in order", "server stopped for a while",
	"sandboxd killed", "sandboxd killed", "sandboxd killed", "container killed", "container killed",
	"redis killed", "redis killed", "engine killed", "both servers killed", "packs killed", "packs killed",
}

func (h *harm) run(ctx context.Context) {
	var repairs sync.WaitGroup
	defer repairs.Wait()
	repairs.Go(func() { h.supervise(ctx) })
	for {
		pause := h.every/2 + time.Duration(h.rand.Int64N(int64(h.every)))
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		way := ways[h.rand.IntN(len(ways))]
		server := h.servers[h.rand.IntN(len(h.servers))]
		down := 200*time.Millisecond + time.Duration(h.rand.Int64N(int64(4*time.Second)))
		if h.do(ctx, &repairs, way, server, down) {
			h.mu.Lock()
			h.counts[way]++
			h.mu.Unlock()
		}
	}
}

// superviseEvery is how soon a server is started again that ended by itself.
const superviseEvery = time.Second

// supervise starts servers that ended by themselves, as the init of a machine does: a start fails while Redis or the
// engine is away.
func (h *harm) supervise(ctx context.Context) {
	for ctx.Err() == nil {
		wait(ctx, superviseEvery)
		for _, s := range h.servers {
			if s.fell() {
				h.failed(s.start())
				h.mu.Lock()
				h.counts["server did not start at once"]++
				h.mu.Unlock()
			}
		}
	}
}

// do does one harm, and has it repaired after a while. It reports whether there was something to harm.
func (h *harm) do(ctx context.Context, repairs *sync.WaitGroup, way string, server *process, down time.Duration) bool {
	again := func(p *process) {
		repairs.Go(func() { defer p.free(); time.Sleep(down); h.failed(p.start()) })
	}
	switch way {
	case "server killed":
		if !server.take() {
			return false
		}
		server.kill()
		again(server)
	case "both servers killed":
		for _, s := range h.servers {
			if s.take() {
				s.kill()
				again(s)
			}
		}
	case "server ended in order":
		if !server.take() {
			return false
		}
		repairs.Go(func() { defer server.free(); h.failed(server.stop()); time.Sleep(down); h.failed(server.start()) })
	case "server stopped for a while":
		if !server.take() {
			return false
		}
		server.signal(syscall.SIGSTOP)
		repairs.Go(func() { defer server.free(); wait(ctx, 10*down); server.signal(syscall.SIGCONT) })
	case "sandboxd killed":
		return h.killOne(h.inits())
	case "container killed":
		return h.killContainer()
	case "redis killed":
		if !h.redis.take() {
			return false
		}
		h.redis.kill()
		again(h.redis)
	case "packs killed":
		if len(h.programs) == 0 {
			return false
		}
		p := h.programs[h.rand.IntN(len(h.programs))]
		if !p.take() {
			return false
		}
		p.kill()
		again(p)
	case "engine killed":
		if h.engine == nil {
			return false
		}
		h.failed(h.engine.Kill())
		wait(ctx, down)
		h.failed(h.engine.Run())
	}
	return true
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func (h *harm) failed(err error) {
	if err != nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.fails = append(h.fails, err.Error())
	}
}

// inits are the processes that are PID 1 in a sandbox of ours.
func (f *fleet) inits() []int {
	return f.processes(func(dir string) bool {
		status, err := os.ReadFile(filepath.Join(dir, "status"))
		if err != nil {
			return false
		}
		for line := range strings.Lines(string(status)) {
			if ids := strings.Fields(line); ids[0] == "NSpid:" {
				return len(ids) > 2 && ids[len(ids)-1] == "1"
			}
		}
		return false
	})
}

// processes are those in whose mounts our data folder is, apart from the servers, and that are wanted.
func (f *fleet) processes(wanted func(dir string) bool) []int {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil
	}
	var pids []int
	for _, dir := range dirs {
		if !wanted(dir) {
			continue
		}
		mounts, err := os.ReadFile(filepath.Join(dir, "mountinfo"))
		if err != nil || !strings.Contains(string(mounts), strings.TrimPrefix(f.data, "/tmp")+"/run/skerry-") {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

func (h *harm) killOne(pids []int) bool {
	if len(pids) == 0 {
		return false
	}
	return syscall.Kill(pids[h.rand.IntN(len(pids))], syscall.SIGKILL) == nil
}

// killContainer takes a container away behind the driver's back: with runc, or by the end of its shim.
func (h *harm) killContainer() bool {
	if h.engine == nil {
		ids, err := filepath.Glob(filepath.Join(h.data, "oci/runc/skerry-*"))
		if err != nil || len(ids) == 0 {
			return false
		}
		id := filepath.Base(ids[h.rand.IntN(len(ids))])
		return exec.Command("runc", "--root", filepath.Join(h.data, "oci/runc"), "delete", "--force", id).Run() == nil
	}
	var shims []int
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return false
	}
	for _, dir := range dirs {
		line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil || !strings.Contains(string(line), "containerd-shim-runc-v2") || !strings.Contains(string(line), h.engine.Shims()) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil {
			shims = append(shims, pid)
		}
	}
	return h.killOne(shims)
}

func (h *harm) print() {
	h.mu.Lock()
	defer h.mu.Unlock()
	fmt.Println("what was done:")
	for _, way := range slices.Sorted(maps.Keys(h.counts)) {
		fmt.Printf("  %-28s %5d\n", way, h.counts[way])
	}
	for _, text := range h.fails {
		fmt.Println("  failed:", text)
	}
}
