// Package redistest starts a real redis-server for a test: on loopback, on a free port, in a folder
// of its own.
package redistest

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Server is a redis-server that ends with its test.
type Server struct {
	tb      testing.TB
	dir     string
	port    int
	cluster bool
	watches *Server // it is a Sentinel
	cmd     *exec.Cmd

	password string // that it asks for
}

// Start starts a redis-server that writes every change to disk before it answers, so that Kill and
// Restart lose nothing. Without redis-server on PATH the test is skipped, in CI it fails.
func Start(tb testing.TB) *Server {
	tb.Helper()
	return launch(&Server{tb: tb, dir: tb.TempDir()})
}

// StartCluster starts a cluster of one server: it refuses scripts over keys of different slots, as
// every cluster does.
func StartCluster(tb testing.TB) *Server {
	tb.Helper()
	s := launch(&Server{tb: tb, dir: tb.TempDir(), cluster: true})
	c := s.Client()
	if err := c.ClusterAddSlotsRange(tb.Context(), 0, 16383).Err(); err != nil {
		tb.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		info, err := c.ClusterInfo(tb.Context()).Result()
		if strings.Contains(info, "cluster_state:ok") {
			return s
		}
		if time.Now().After(deadline) {
			tb.Fatalf("the cluster does not form: %s %v", info, err)
		}
	}
}

// Follow makes the server a replica of another one.
func (s *Server) Follow(master *Server) {
	s.tb.Helper()
	if err := s.Client().ReplicaOf(s.tb.Context(), "127.0.0.1", strconv.Itoa(master.port)).Err(); err != nil {
		s.tb.Fatal(err)
	}
}

// Protect makes the server ask for a password, as long as it runs.
func (s *Server) Protect(password string) {
	s.tb.Helper()
	if err := s.Client().ConfigSet(s.tb.Context(), "requirepass", password).Err(); err != nil {
		s.tb.Fatal(err)
	}
	s.password = password
}

// StartSentinel starts a Sentinel that watches a master, and returns its address. It believes the master's
// death after half a second. Its address asks for a password unless that is "".
func StartSentinel(tb testing.TB, master *Server, password string) (addr string) {
	tb.Helper()
	return launch(&Server{tb: tb, dir: tb.TempDir(), watches: master, password: password}).addr()
}

func launch(s *Server) *Server {
	tb := s.tb
	tb.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv("CI") != "" {
			tb.Fatal("redis-server is not on PATH; CI needs it")
		}
		tb.Skip("redis-server is not on PATH")
	}
	tb.Cleanup(s.Kill)
	// The port is free when it is chosen; another process may take it before redis-server does.
	for range 5 {
		s.port = freePort(tb)
		if err := s.start(); err == nil {
			return s
		}
	}
	tb.Fatal("redis-server did not start on any of five free ports")
	return nil
}

// URL is the address of the server, as store.Options takes it.
func (s *Server) URL() string {
	if s.cluster {
		return "redis://" + s.addr() + "?addr=" + s.addr()
	}
	return "redis://" + s.addr() + "/0"
}

// Client makes a client that is closed with the test.
func (s *Server) Client() *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: s.addr(), Password: s.password})
	s.tb.Cleanup(func() { _ = c.Close() })
	return c
}

// Kill ends the server at once, as a crash would.
func (s *Server) Kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	s.cmd = nil
}

// Stop makes the server hang: its connections stay open, and nothing is answered until Continue.
func (s *Server) Stop() { s.signal(syscall.SIGSTOP) }

// Continue ends what Stop began.
func (s *Server) Continue() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) {
	s.tb.Helper()
	if s.cmd == nil {
		s.tb.Fatal("redistest: the server does not run")
	}
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.tb.Fatal(err)
	}
}

// Restart starts the server again on the same port, with the data that it had.
func (s *Server) Restart() {
	s.tb.Helper()
	s.Kill()
	if err := s.start(); err != nil {
		s.tb.Fatal(err)
	}
}

// Wipe removes the data of a killed server.
func (s *Server) Wipe() {
	s.tb.Helper()
	if s.cmd != nil {
		s.tb.Fatal("redistest: Wipe needs a killed server")
	}
	if err := os.RemoveAll(filepath.Join(s.dir, "appendonlydir")); err != nil {
		s.tb.Fatal(err)
	}
}

func (s *Server) addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

func (s *Server) start() error {
	args := []string{"--bind", "127.0.0.1", "--port", strconv.Itoa(s.port), "--dir", s.dir,
		"--save", "", "--appendonly", "yes", "--appendfsync", "always", "--daemonize", "no", "--loglevel", "warning"}
	if s.cluster {
		bus := freePort(s.tb) // the default is far above the first, and may not exist
		args = append(args, "--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(bus))
	}
	if s.watches != nil {
		file := filepath.Join(s.dir, "sentinel.conf")
		text := fmt.Sprintf("sentinel monitor mymaster 127.0.0.1 %d 1\nsentinel down-after-milliseconds mymaster 500\nsentinel failover-timeout mymaster 5000\n", s.watches.port)
		if s.watches.password != "" {
			text += "sentinel auth-pass mymaster " + s.watches.password + "\n"
		}
		if s.password != "" {
			text += "requirepass " + s.password + "\n"
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return err
		}
		args = []string{file, "--sentinel", "--bind", "127.0.0.1", "--port", strconv.Itoa(s.port), "--dir", s.dir, "--daemonize", "no", "--loglevel", "warning"}
	}
	cmd := exec.Command("redis-server", args...)
	// A test binary that panics runs no cleanup; the server must end all the same.
	// In a group of its own: the kernel lets a stopped process go on when the shell that began its group ends.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("redis-server: %w", err)
	}
	s.cmd = cmd
	c := redis.NewClient(&redis.Options{Addr: s.addr(), Password: s.password, MaxRetries: -1, DialTimeout: time.Second, DialerRetries: 1})
	defer c.Close()
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if s.watches != nil { // it has no CONFIG GET
			if masters, err := c.Do(context.Background(), "SENTINEL", "MASTERS").Slice(); err == nil && len(masters) == 1 {
				return nil
			}
			continue
		}
		// Another process on the port would answer too: ask for the folder.
		if got, err := c.ConfigGet(context.Background(), "dir").Result(); err == nil {
			if got["dir"] == s.dir {
				return nil
			}
			break
		}
	}
	s.Kill()
	return fmt.Errorf("redis-server does not answer on port %d", s.port)
}

func freePort(tb testing.TB) int {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
