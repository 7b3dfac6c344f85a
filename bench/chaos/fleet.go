package main

import (
	"bytes"
	"context"
	"errors"
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

const (
	startTime = 2 * time.Minute
	stopTime  = time.Minute
)

const template = `name: base
description: for the chaos
image: {docker: "skerry/base:latest", oci: base}
runtime: runc
languages: [javascript, python, bash]
idle_timeout_s: 60
limits: {memory: 256MiB, cpu: 1000m, pids: 64, open_files: 1024, file_size: 64MiB, tmp: 16MiB, disk: 256MiB}
`

// process is a program that is started, and started again.
type process struct {
	name string
	argv []string
	env  []string
	log  string // file
	url  string // of a server

	mu      sync.Mutex
	cmd     *exec.Cmd
	done    chan struct{}
	stopped bool // by SIGSTOP
	taken   bool // something is done to it, which is not repaired yet
}

// take reports whether the process may be harmed now, and keeps others from it until free.
func (p *process) take() bool {
	if !p.running() {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.taken
	p.taken = true
	return !was
}

// fell reports whether the process ended although nothing was done to it.
func (p *process) fell() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd != nil && p.ended() && !p.taken
}

func (p *process) free() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken = false
}

func (p *process) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close() //nolint:errcheck // the child has it
	cmd := exec.Command(p.argv[0], p.argv[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), p.env...), out, out
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = cmd.Wait() }() // ends with the process
	p.cmd, p.done, p.stopped = cmd, done, false
	return nil
}

// signal sends a signal to the process, if it is there, and reports whether it was.
func (p *process) signal(sig syscall.Signal) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil || p.ended() {
		return false
	}
	p.stopped = sig == syscall.SIGSTOP
	return p.cmd.Process.Signal(sig) == nil
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// running reports whether the process is there and not stopped.
func (p *process) running() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd != nil && !p.ended() && !p.stopped
}

// kill ends it at once, and waits for its end.
func (p *process) kill() {
	if p.signal(syscall.SIGKILL) {
		<-p.done
	}
}

// stop ends it in order.
func (p *process) stop() error {
	if !p.signal(syscall.SIGTERM) {
		return nil
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(stopTime):
		p.kill()
		return fmt.Errorf("%s does not stop within %s of SIGTERM", p.name, stopTime)
	}
}

// fleet is everything that is started.
type fleet struct {
	settings
	dir     string // of all of it
	data    string
	servers []*process
	redis   *process
	redisAt string
	engine  engine // nil with the oci driver
	client  *http.Client
	names   []string // of threads

	balancer *balancer  // before the servers, for packs; nil without packs
	programs []*process // that provide packs
}

func newFleet(s settings) (*fleet, error) {
	dir, err := os.MkdirTemp("", "chaos")
	if err != nil {
		return nil, err
	}
	f := &fleet{settings: s, dir: dir, data: filepath.Join(dir, "data"), client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}}
	bin, err := filepath.Abs(s.bin)
	if err != nil {
		return nil, err
	}
	templates := filepath.Join(dir, "templates")
	err = errors.Join(os.Chmod(dir, 0o711), os.Mkdir(f.data, 0o711), os.Mkdir(templates, 0o755)) //nolint:gosec // sandboxes pass through
	if err == nil {
		err = os.WriteFile(filepath.Join(templates, "base.yaml"), []byte(template), 0o600)
	}
	ports, e := freePorts(3)
	if err = errors.Join(err, e); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	f.redisAt = "127.0.0.1:" + ports[2]
	f.redis = &process{name: "redis", log: filepath.Join(dir, "redis.log"), argv: []string{
		"redis-server", "--bind", "127.0.0.1", "--port", ports[2], "--dir", dir, "--save", "", "--appendonly", "no",
	}}
	for i := range 2 {
		at := "127.0.0.1:" + ports[i]
		f.servers = append(f.servers, &process{
			name: fmt.Sprintf("server %d", i+1), url: "http://" + at, log: filepath.Join(dir, fmt.Sprintf("server-%d.log", i+1)),
			argv: []string{filepath.Join(bin, "skerry"), "serve", "--listen", at, "--data", f.data, "--driver", s.driver, "--redis", "redis://" + f.redisAt},
			env: []string{
				"SKERRY_TEMPLATES=" + templates, "SKERRY_IMAGES=" + filepath.Join(s.cache, "images"), "SKERRY_SANDBOXD=" + filepath.Join(bin, "skerry-sandboxd"),
				"SKERRY_DISK_QUOTA=off", "SKERRY_AUTH=none",
			},
		})
	}
	if err := f.addPacks(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return f, nil
}

// freePorts returns ports that are free at the moment.
func freePorts(n int) (ports []string, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()                                                   //nolint:errcheck // given free for others
		ports = append(ports, strconv.Itoa(l.Addr().(*net.TCPAddr).Port)) //nolint:errcheck // of a TCP listener
	}
	return ports, nil
}

func (f *fleet) start(ctx context.Context) error {
	e, err := f.startEngine()
	if err != nil {
		return err
	}
	if f.engine = e; e != nil {
		for _, s := range f.servers {
			s.env = append(s.env, e.Env())
		}
	}
	return f.mend(ctx)
}

// mend starts everything that is down, and waits until it serves.
func (f *fleet) mend(ctx context.Context) error {
	if !f.redis.running() {
		if err := f.redis.start(); err != nil {
			return err
		}
	}
	for _, s := range f.servers {
		s.signal(syscall.SIGCONT)
		if !s.running() {
			if err := s.start(); err != nil {
				return err
			}
		}
		if err := f.await(ctx, s); err != nil {
			return err
		}
	}
	for _, p := range f.programs {
		if !p.running() {
			if err := p.start(); err != nil {
				return err
			}
		}
	}
	return nil
}

// await waits until a server is ready.
func (f *fleet) await(ctx context.Context, s *process) error {
	for deadline := time.Now().Add(startTime); time.Now().Before(deadline) && ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
		if status, _, err := f.call(ctx, s, http.MethodGet, "/readyz", nil); err == nil && status == http.StatusOK {
			return nil
		}
		if !s.running() {
			return fmt.Errorf("%s ended at its start; see %s", s.name, s.log)
		}
	}
	return fmt.Errorf("%s is not ready after %s", s.name, startTime)
}

// maxAnswer bounds what is read of an answer.
const maxAnswer = 16 << 20

// call makes one request of one server.
func (f *fleet) call(ctx context.Context, s *process, method, path string, body []byte, headers ...string) (int, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 90*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	res, err := f.client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close() //nolint:errcheck // it was read
	text, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	return res.StatusCode, text, err
}

// goroutines returns how many each server has.
func (f *fleet) goroutines(ctx context.Context) ([]int, error) {
	f.client.CloseIdleConnections()
	var counts []int
	for _, s := range f.servers {
		_, text, err := f.call(ctx, s, http.MethodGet, "/metrics", nil)
		if err != nil {
			return nil, err
		}
		n := -1
		for line := range strings.Lines(string(text)) {
			if rest, ok := strings.CutPrefix(line, "go_goroutines "); ok {
				if n, err = strconv.Atoi(strings.TrimSpace(rest)); err != nil {
					return nil, err
				}
			}
		}
		counts = append(counts, n)
	}
	return counts, nil
}

// clear deletes the threads of a run that was not seen to its end: what is left after that is for people to look at.
func (f *fleet) clear(ctx context.Context) {
	if err := f.mend(ctx); err != nil {
		fmt.Println("chaos: not cleared away:", err)
		return
	}
	for _, name := range f.names {
		if _, _, err := f.call(ctx, f.servers[0], http.MethodDelete, "/api/threads/"+name, nil); err != nil {
			fmt.Println("chaos: not cleared away:", name, err)
		}
	}
}

// remove ends what runs, and deletes the folder unless it is wanted.
func (f *fleet) remove(failed bool) error {
	var errs []error
	for _, s := range f.servers {
		s.signal(syscall.SIGCONT)
		errs = append(errs, s.stop())
	}
	for _, p := range f.programs {
		errs = append(errs, p.stop())
	}
	if f.balancer != nil {
		errs = append(errs, f.balancer.close())
	}
	f.redis.kill()
	f.client.CloseIdleConnections()
	if f.engine != nil {
		errs = append(errs, f.engine.Stop())
	}
	if f.keep || failed {
		fmt.Println("chaos: logs and data are in", f.dir)
		return errors.Join(errs...)
	}
	return errors.Join(append(errs, os.RemoveAll(f.dir))...)
}
