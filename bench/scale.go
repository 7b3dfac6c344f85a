package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

var (
	scaleLive   = flag.Int("live", 150, "scale: most sandboxes of -driver that live at once")
	scaleFleet  = flag.Int("fleet", 50_000, "scale: played sandboxes in all")
	scaleAsleep = flag.Int("hibernated", 100_000, "scale: hibernated threads")
	scaleRedis  = flag.String("redis-server", "redis-server", "scale: program of Redis")
)

const (
	scaleCalls   = 200
	scaleWorkers = 8
	// descriptorsEach are those of a server for one sandbox: two sockets that listen, and the link.
	descriptorsEach = 3
)

// scale says what a call costs as the number of threads grows, and what the server and Redis need for each: with played
// sandboxes (bench/fleet), which measure the server alone, and with those of -driver.
func scale(ctx context.Context, b *bench) error {
	fleet := filepath.Join(b.dir, "fleet")
	build := exec.CommandContext(ctx, "go", "build", "-o", fleet, "./bench/fleet")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("build bench/fleet (run from the root of the repository): %w", err)
	}
	if err := b.scaleOf(fleet, true); err != nil {
		return fmt.Errorf("redis: %w", err)
	}
	if err := b.scaleOf(fleet, false); err != nil {
		return fmt.Errorf("embedded: %w", err)
	}
	return b.scaleLiving()
}

// scaleLiving is the cost of a call with sandboxes that really live.
func (b *bench) scaleLiving() error {
	f := &fleetServer{server: b.server, pid: b.cmd.Process.Pid}
	fmt.Printf("\ndriver %s, sandboxes that live\n%s\n", b.driver, scaleHead)
	live := 0
	for _, n := range []int{1, 10, 100, *scaleLive} {
		if n > *scaleLive || n <= live {
			continue
		}
		for ; live < n; live++ {
			b.uses(f.name(live))
			if err := f.acquire(live); err != nil {
				return err
			}
		}
		if err := f.row(n); err != nil {
			return err
		}
	}
	return nil
}

// scaleOf measures a server of bench/fleet, with a Redis of its own or embedded state.
func (b *bench) scaleOf(program string, withRedis bool) (err error) {
	what, data, args := "embedded", filepath.Join(b.dir, "fleet-embedded"), []string{}
	var redis *fleetRedis
	if withRedis {
		what, data = "Redis", filepath.Join(b.dir, "fleet-redis")
		if redis, err = startFleetRedis(b.dir); err != nil {
			return err
		}
		defer redis.stop()
		args = append(args, "-redis", "redis://"+redis.addr+"/0")
	}
	args = append(args, "-data", data)
	before := redis.memory()
	began := time.Now()
	seed := exec.Command(program, append(args, "-seed", strconv.Itoa(*scaleAsleep))...) //nolint:gosec // built above
	seed.Stderr = os.Stderr
	if err := seed.Run(); err != nil {
		return fmt.Errorf("seed: %w", err)
	}
	fmt.Printf("\nstate %s, %d hibernated threads of one user (made in %.0f s)\n", what, *scaleAsleep, time.Since(began).Seconds())
	if redis != nil {
		fmt.Printf("Redis: %.0f bytes each\n", float64(redis.memory()-before)/float64(*scaleAsleep))
	}
	began = time.Now()
	f, err := startFleet(program, args)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.stop()) }()
	fmt.Printf("the server starts in %.1f s\n%s\n", time.Since(began).Seconds(), scaleHead)
	live := 0
	for _, n := range []int{1, 10, 100, 1000} {
		for ; live < n; live++ {
			if err := f.acquire(live); err != nil {
				return err
			}
		}
		if err := f.row(n); err != nil {
			return err
		}
	}
	if !withRedis {
		return nil
	}
	return b.scaleCrowd(f, redis, live)
}

// scaleCrowd acquires the whole fleet. When the process may not have descriptors for all at once, the oldest sandboxes are
// released meanwhile.
func (b *bench) scaleCrowd(f *fleetServer, redis *fleetRedis, live int) error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	room := min(*scaleFleet, (int(min(limit.Max, 1<<30))-2000)/descriptorsEach) //nolint:gosec // bounded
	start, redisBefore := f.memory(), redis.memory()
	var acquired, released []float64
	next, first, began := live, 0, time.Now()
	for next < *scaleFleet {
		n := min(room-(next-first), *scaleFleet-next, 1000)
		if n > 0 {
			took, err := f.many(n, func(i int) error { return f.acquire(next + i) })
			if err != nil {
				return err
			}
			acquired, next = append(acquired, took...), next+n
			if next-first == room || next == *scaleFleet {
				if start.heap > 0 {
					now, each := f.memory(), float64(next-first-live)
					fmt.Printf("%d live at once: a sandbox costs the server %.0f KiB RSS (heap %.0f, stacks %.0f, %.1f goroutines), Redis %.0f bytes\n", next-first,
						float64(now.rss-start.rss)/each/1024, float64(now.heap-start.heap)/each/1024, float64(now.stacks-start.stacks)/each/1024, float64(now.goroutines-start.goroutines)/each, float64(redis.memory()-redisBefore)/each)
					if err := f.rowAt(next-first, next-1); err != nil {
						return err
					}
					start.heap = 0
					began = began.Add(0)
				}
			}
			continue
		}
		took, err := f.many(min(1000, next-first), func(i int) error { return f.release(first + i) })
		if err != nil {
			return err
		}
		released, first = append(released, took...), first+len(took)
	}
	for first < next {
		took, err := f.many(min(1000, next-first), func(i int) error { return f.release(first + i) })
		if err != nil {
			return err
		}
		released, first = append(released, took...), first+len(took)
	}
	fmt.Printf("fleet of %d, at most %d at once, %d callers, %.0f s in all: acquire %s; release %s\n", *scaleFleet, room, scaleWorkers, time.Since(began).Seconds(), rate(acquired), rate(released))
	return nil
}

func rate(ms []float64) string {
	sum := 0.0
	for _, v := range ms {
		sum += v
	}
	return fmt.Sprintf("%.0f/s, p50 %.1f ms, p99 %.1f ms", float64(len(ms))*scaleWorkers/sum*1000, at(ms, 50), at(ms, 99))
}

// fleetServer is a server that is measured.
type fleetServer struct {
	*server
	pid int
	in  sync.Mutex
}

func startFleet(program string, args []string) (*fleetServer, error) {
	f := &fleetServer{server: &server{
		cmd:  exec.Command(program, args...), //nolint:gosec // built by this program
		http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: scaleWorkers}},
	}}
	f.cmd.Stderr = os.Stderr
	f.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	out, err := f.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := f.cmd.Start(); err != nil {
		return nil, err
	}
	f.pid = f.cmd.Process.Pid
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		return nil, errors.Join(errors.New("the server did not start"), f.cmd.Wait())
	}
	_, f.url, _ = strings.Cut(lines.Text(), "serving on ")
	return f, nil
}

func (f *fleetServer) stop() error {
	return errors.Join(f.cmd.Process.Signal(syscall.SIGTERM), f.cmd.Wait())
}

func (f *fleetServer) name(i int) string { return "fleet-" + strconv.Itoa(i) }

func (f *fleetServer) call(method, path, body string) ([]byte, error) {
	return f.send(method, path, "application/json", strings.NewReader(body))
}

func (f *fleetServer) acquire(i int) error {
	_, err := f.call(http.MethodPut, "/api/threads/"+f.name(i)+"/sandbox", `{"wait_s": 60}`)
	return err
}

func (f *fleetServer) release(i int) error {
	_, err := f.call(http.MethodDelete, "/api/threads/"+f.name(i)+"/sandbox", "")
	return err
}

// many calls do n times, by several callers at once, and returns how long each took.
func (f *fleetServer) many(n int, do func(int) error) (ms []float64, err error) {
	var wg sync.WaitGroup
	work := make(chan int)
	for range min(scaleWorkers, n) {
		wg.Go(func() {
			for i := range work {
				began := time.Now()
				e := do(i)
				took := float64(time.Since(began).Microseconds()) / 1000
				f.in.Lock()
				ms, err = append(ms, took), errors.Join(err, e)
				f.in.Unlock()
			}
		})
	}
	for i := range n {
		work <- i
	}
	close(work)
	wg.Wait()
	return ms, err
}

const scaleHead = "   live   exec p50/p99 ms   acquire p50/p99 ms   list p50/p99 ms   idle server, % of a core   RSS MiB"

// row measures calls of one caller after the other while n sandboxes live, and what the server does without calls.
func (f *fleetServer) row(n int) error { return f.rowAt(n, n-1) }

func (f *fleetServer) rowAt(n, newest int) error {
	measure := func(do func(i int) error) ([]float64, error) {
		var ms []float64
		for i := range scaleCalls {
			began := time.Now()
			if err := do(newest - i%n); err != nil {
				return nil, err
			}
			ms = append(ms, float64(time.Since(began).Microseconds())/1000)
		}
		return ms, nil
	}
	execs, err1 := measure(func(i int) error {
		_, err := f.call(http.MethodPost, "/api/threads/"+f.name(i)+"/exec", `{"argv": ["true"]}`)
		return err
	})
	acquires, err2 := measure(f.acquire)
	lists, err3 := measure(func(int) error {
		_, err := f.call(http.MethodGet, "/api/threads?limit=100", "")
		return err
	})
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	began := cpuTime(f.pid)
	time.Sleep(settle)
	idle := float64(cpuTime(f.pid)-began) / settle.Seconds() // hundredths of a second
	fmt.Printf("%7d %8.2f %8.2f %9.2f %9.2f %9.2f %8.2f %15.1f %18.0f\n", n, at(execs, 50), at(execs, 99), at(acquires, 50), at(acquires, 99), at(lists, 50), at(lists, 99),
		idle, float64(kilobytes(field(fmt.Sprintf("/proc/%d/status", f.pid), "VmRSS:")))/(1<<20))
	return nil
}

// cpuTime is what a process has used, in hundredths of a second.
func cpuTime(pid int) int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	f := strings.Fields(rest)
	if len(f) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(f[11])
	system, _ := strconv.Atoi(f[12])
	return user + system
}

// fleetMemory is what a server has, in bytes.
type fleetMemory struct{ rss, heap, stacks, goroutines int64 }

func (f *fleetServer) memory() (m fleetMemory) {
	text, err := f.call(http.MethodGet, "/memory", "")
	var in struct{ Heap, Stacks, Goroutines int64 }
	if err != nil || json.Unmarshal(text, &in) != nil {
		return m
	}
	return fleetMemory{kilobytes(field(fmt.Sprintf("/proc/%d/status", f.pid), "VmRSS:")), in.Heap, in.Stacks, in.Goroutines}
}

// fleetRedis is a Redis that keeps what it is told, as operations.md advises.
type fleetRedis struct {
	cmd  *exec.Cmd
	addr string
}

func startFleetRedis(dir string) (*fleetRedis, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &fleetRedis{addr: l.Addr().String()}
	_ = l.Close()
	_, port, _ := net.SplitHostPort(r.addr)
	r.cmd = exec.Command(*scaleRedis, "--bind", "127.0.0.1", "--port", port, "--dir", dir, "--save", "", "--appendonly", "yes", "--loglevel", "warning") //nolint:gosec // named by who runs it
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := r.cmd.Start(); err != nil {
		return nil, err
	}
	for range 100 {
		if r.memory() > 0 {
			return r, nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	r.stop()
	return nil, errors.New("redis-server did not start")
}

// memory is used_memory of INFO, 0 when there is no Redis.
func (r *fleetRedis) memory() int64 {
	if r == nil {
		return 0
	}
	c, err := net.DialTimeout("tcp", r.addr, time.Second)
	if err != nil {
		return 0
	}
	defer c.Close() //nolint:errcheck // it was read
	_ = c.SetDeadline(time.Now().Add(2 * time.Second))
	if _, err := io.WriteString(c, "INFO memory\r\n"); err != nil {
		return 0
	}
	for in := bufio.NewScanner(c); in.Scan(); {
		if text, ok := strings.CutPrefix(in.Text(), "used_memory:"); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
			return n
		}
	}
	return 0
}

func (r *fleetRedis) stop() {
	_ = r.cmd.Process.Kill()
	_ = r.cmd.Wait()
}
