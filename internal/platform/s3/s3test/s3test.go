// Package s3test starts a real S3-compatible server, versitygw over a folder, for a test: on loopback, on a
// free port.
package s3test

import (
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// Credentials and region of every Server.
const (
	AccessKey = "skerry-test"
	SecretKey = "not-a-secret"
	Region    = "us-east-1"
)

// Server is a server that ends with its test.
type Server struct {
	Endpoint string // http://127.0.0.1:port
	dir      string
	tb       testing.TB
}

// Start starts a server without buckets. Without versitygw (scripts/install.sh s3) the test is skipped, in CI
// it fails.
func Start(tb testing.TB) *Server {
	tb.Helper()
	program := find(tb)
	s := &Server{tb: tb, dir: tb.TempDir()}
	// The port is free when it is chosen; another process may take it first.
	for range 5 {
		if s.start(program) {
			return s
		}
	}
	tb.Fatal("versitygw did not start on any of five free ports")
	return nil
}

func find(tb testing.TB) string {
	tb.Helper()
	cache := os.Getenv("SKERRY_CACHE")
	if cache == "" {
		cache = "/var/cache/skerry"
	}
	program := filepath.Join(cache, "bin", "versitygw")
	if _, err := os.Stat(program); err != nil {
		if program, err = exec.LookPath("versitygw"); err != nil {
			if os.Getenv("CI") != "" {
				tb.Fatal("versitygw is missing; CI needs it")
			}
			tb.Skip("versitygw is missing: scripts/install.sh s3")
		}
	}
	return program
}

func (s *Server) start(program string) bool {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.tb.Fatal(err)
	}
	address := ln.Addr().String()
	_ = ln.Close()
	cmd := exec.Command(program, "--quiet", "--port", address, "--access", AccessKey, "--secret", SecretKey, "--region", Region, "posix", s.dir) //nolint:gosec // our own program
	cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + s.dir}
	if err := cmd.Start(); err != nil {
		s.tb.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	stop := func() { _ = cmd.Process.Kill(); <-ended }
	s.Endpoint = "http://" + address
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		select {
		case <-ended:
			return false
		default:
		}
		if s.answers() {
			s.tb.Cleanup(stop)
			return true
		}
	}
	stop()
	return false
}

func (s *Server) answers() bool {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Endpoint+"/", nil)
	if err != nil {
		return false
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil {
		return false
	}
	_ = res.Body.Close()
	return true
}

// Put stores an object; its bucket is made when it is not there. versitygw serves what lies in its folder.
func (s *Server) Put(bucket, key string, data []byte) {
	s.tb.Helper()
	file := filepath.Join(s.dir, bucket, filepath.FromSlash(key))
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		s.tb.Fatal(err)
	}
	if err := os.WriteFile(file, data, 0o644); err != nil { //nolint:gosec // a test's
		s.tb.Fatal(err)
	}
}
