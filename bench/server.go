package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// server is a server under measurement, with its own data folder.
type server struct {
	data string
	url  string
	cmd  *exec.Cmd
	http *http.Client

	mu      sync.Mutex
	threads map[string]bool // to delete in the end
}

const (
	startTime = 2 * time.Minute
	// callTime bounds one request: the slowest starts a sandbox while fifty others start.
	callTime = 5 * time.Minute
)

// serve starts a server in a new folder; env is added to its environment.
func (b *bench) serve(name, driver string, env ...string) (*server, error) {
	program, err := filepath.Abs(filepath.Join(b.bin, "skerry"))
	if err != nil {
		return nil, err
	}
	s := &server{
		data: filepath.Join(b.dir, name), threads: map[string]bool{},
		http: &http.Client{Timeout: callTime, Transport: &http.Transport{MaxIdleConnsPerHost: 128}},
	}
	if err := os.MkdirAll(s.data, 0o711); err != nil { //nolint:gosec // sandboxes pass through it
		return nil, err
	}
	s.cmd = exec.Command(program, "serve", "--driver", driver, "--listen", "127.0.0.1:0", "--data", s.data)
	s.cmd.Stderr = os.Stderr
	// Nothing stays behind, however this ends; and an interrupt from the keyboard is for this program first.
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM, Setpgid: true}
	s.cmd.Env = append(append(os.Environ(), "SKERRY_LOG_LEVEL=error", "SKERRY_DISK_QUOTA=off", "SKERRY_IMAGES="+filepath.Join(b.cache, "images")), env...)
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	late := time.AfterFunc(startTime, func() { _ = s.cmd.Process.Kill() })
	defer late.Stop()
	lines := bufio.NewScanner(out)
	for s.url == "" && lines.Scan() {
		if _, url, ok := strings.Cut(lines.Text(), "serving on "); ok {
			s.url = strings.Fields(url)[0]
		}
	}
	if s.url == "" {
		return nil, errors.Join(fmt.Errorf("the server of the driver %s did not start", driver), s.cmd.Wait())
	}
	go io.Copy(io.Discard, out) //nolint:errcheck // ends with the server
	return s, nil
}

// uses notes a thread that is deleted in the end.
func (s *server) uses(thread string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.threads[thread] = true
}

// drop deletes a thread.
func (s *server) drop(thread string) error {
	s.mu.Lock()
	delete(s.threads, thread)
	s.mu.Unlock()
	_, err := s.post(http.MethodDelete, "/api/threads/"+thread, nil)
	if err != nil && strings.Contains(err.Error(), ": 404 ") {
		return nil // nothing came of it
	}
	return err
}

// stop deletes what threads are left and ends the server.
func (s *server) stop() error {
	s.mu.Lock()
	names := make(chan string, len(s.threads))
	for name := range s.threads {
		names <- name
	}
	close(names)
	s.mu.Unlock()
	var mu sync.Mutex
	var errs []error
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for name := range names {
				if err := s.drop(name); err != nil {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	s.http.CloseIdleConnections()
	return errors.Join(errors.Join(errs...), s.cmd.Process.Signal(syscall.SIGTERM), s.cmd.Wait())
}

// post makes a request with a JSON body, or none.
func (s *server) post(method, path string, body any) ([]byte, error) {
	var in io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		in = bytes.NewReader(raw)
	}
	return s.send(method, path, "application/json", in)
}

func (s *server) send(method, path, contentType string, in io.Reader) ([]byte, error) {
	req, err := http.NewRequest(method, s.url+path, in)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", contentType)
	res, err := s.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode >= 300 {
		err = fmt.Errorf("%s %s: %s: %.300s", method, path, res.Status, answer)
	}
	return answer, err
}

// exec runs a command, which has to succeed.
func (s *server) exec(thread string, argv ...string) error {
	raw, err := s.post(http.MethodPost, "/api/threads/"+thread+"/exec", map[string]any{"argv": argv})
	if err != nil {
		return err
	}
	_, err = output(raw)
	return err
}

// codeIn runs a program text and returns its stdout; a program that fails is an error.
func (s *server) codeIn(thread, language, text string) (string, error) {
	raw, err := s.post(http.MethodPost, "/api/threads/"+thread+"/execute_code", map[string]any{"code": text, "language": language, "timeout": 120})
	if err != nil {
		return "", err
	}
	return output(raw)
}

func output(raw []byte) (string, error) {
	var r struct {
		Stdout, Stderr string
		ExitCode       *int `json:"exit_code"`
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return "", err
	}
	if r.ExitCode == nil || *r.ExitCode != 0 {
		return "", fmt.Errorf("a run failed: %.300s", raw)
	}
	return r.Stdout, nil
}
